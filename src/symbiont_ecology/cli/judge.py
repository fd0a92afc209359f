"""``judge``: people say what the replies of a run are worth, one by one or in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from symbiont_ecology.cli.console import command_line, prepare
from symbiont_ecology.cli.options import RunFolder, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symbiont_ecology.engine.judgements import Judgements, WaitingReply

MOST_FRAMED, MOST_LINES_FRAMED = 4_000, 60
"""Characters and lines of a text that the screen shows."""
MOST_MARKS = 10.0
WORTH_OF_WORDS = {"y": MOST_MARKS, "yes": MOST_MARKS, "n": 0.0, "no": 0.0}
"""What can be typed beside a number from 0 to ``MOST_MARKS``."""
ASKED_FOR = f"y, n, or 0 to {MOST_MARKS:g}; s skips, q quits: "


def judge_command(
    folder: RunFolder,
    export: Annotated[
        Path | None, option("Write the replies that wait as JSONL; - is stdout.", "--export")
    ] = None,
    import_file: Annotated[
        Path | None, option("Take judgements from JSONL: id, and worth from 0 to 1.", "--import")
    ] = None,
) -> None:
    """Judge the replies that a run waits for (reward=human), one by one; q ends it, nothing is
    lost."""
    from symbiont_ecology.engine.judgements import Judgements
    from symbiont_ecology.engine.run import read_config

    read_config(folder, runs_plugins=False)
    judgements = Judgements(folder)
    if import_file is not None:
        _take(import_file, judgements)
    if export is not None:
        _export(judgements.waiting(), export)
    elif import_file is None:
        _ask(judgements)
    _tell_next(len(judgements.waiting()), folder)


def _take(path: Path, judgements: Judgements) -> None:
    """Keeps what a file says; all of it is read before any of it is kept."""
    from symbiont_ecology.engine.judgements import read_judgements

    rows, known_ids = list(read_judgements(path)), set(judgements.known())
    queue, taken = {reply.id for reply in judgements.waiting()}, set[str]()
    for judgement in rows:
        if judgement.id not in known_ids:
            judgements.add(judgement)
            known_ids.add(judgement.id)
            taken.add(judgement.id)
    print(
        f"{len(taken)} judgements taken, {len(taken - queue)} of them of replies that do not wait "
        f"here; {len(rows) - len(taken)} were known before",
        file=sys.stderr,
    )


def _export(waiting: Sequence[WaitingReply], path: Path) -> None:
    from symbiont_ecology.engine.judgements import as_line
    from symbiont_ecology.files import write_whole

    text = "".join(as_line(reply.record) for reply in waiting)
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        prepare(path)
        write_whole(path, text)


def _ask(judgements: Judgements) -> None:
    """Shows reply after reply, and keeps each judgement at once."""
    from symbiont_ecology.engine.judgements import GivenJudgement

    waiting, console = judgements.waiting(), Console()
    for number, reply in enumerate(waiting, 1):
        asker = f" of {reply.habitat}" if reply.habitat else ""
        _show(f"question {number} of {len(waiting)}{asker}", reply.question, console)
        _show("reply", reply.reply, console)
        try:
            worth = _typed_worth()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if worth is not None:
            judgements.add(GivenJudgement(reply.id, worth))


def _show(title: str, text: str, console: Console) -> None:
    """A text in a frame that it cannot leave: control characters are escaped, and it is bounded."""
    from symbiont_ecology.transcripts import CUT, escaped

    lines = text[:MOST_FRAMED].split("\n")
    body = "\n".join(map(escaped, lines[:MOST_LINES_FRAMED]))
    is_cut = len(text) > MOST_FRAMED or len(lines) > MOST_LINES_FRAMED
    frame = Panel(Text(body + CUT * is_cut), title=Text(escaped(title)), title_align="left")
    console.print(frame)


def _typed_worth() -> float | None:
    """The worth that was typed, from 0 to 1; None to skip.

    Raises:
        EOFError: whoever types has had enough.
    """
    while True:
        word = input(ASKED_FOR).strip().lower()
        if word in ("q", "quit"):
            raise EOFError
        if word in ("s", "skip"):
            return None
        try:
            marks = WORTH_OF_WORDS[word] if word in WORTH_OF_WORDS else float(word)
        except ValueError:
            continue
        if 0 <= marks <= MOST_MARKS:
            return marks / MOST_MARKS


def _tell_next(count: int, folder: Path) -> None:
    """What is left to do."""
    from symbiont_ecology.engine.judgements import said_waiting

    if count:
        line = f"{said_waiting(count)}: {command_line('judge', folder)}"
    else:
        line = f"no reply waits: {command_line('resume', folder)}"
    print(line, file=sys.stderr)
