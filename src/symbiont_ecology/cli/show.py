"""``show``: what organelles were asked, and what they replied."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.options import JsonOption, RunFolder, option
from symbiont_ecology.errors import ConfigError, RunError

if TYPE_CHECKING:
    from symbiont_ecology.transcripts import Transcript

WIDEST = 60
"""Characters of a prompt or a reply that a line shows."""


def show(
    folder: RunFolder,
    organelle: Annotated[
        str | None, option("Replies of this organelle, such as o7.", metavar="ID")
    ] = None,
    habitat: Annotated[str | None, option("Replies to this user.", metavar="ID")] = None,
    cell: Annotated[
        str | None, option("Replies to these questions, such as math.add/short.", metavar="CELL")
    ] = None,
    wrong: Annotated[bool, option("Only what was refused.", "--wrong")] = False,
    right: Annotated[bool, option("Only what was accepted.", "--right")] = False,
    last: Annotated[int, option("How many, the newest; 0 is all of them.", least=0)] = 20,
    json_file: JsonOption = None,
) -> None:
    """Show replies of a run: who was asked what, what came, and whether it was accepted."""
    from symbiont_ecology.cli.console import report
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.transcripts import TRANSCRIPTS_FILE, read_transcripts

    if wrong and right:
        raise ConfigError("show: expected --wrong or --right, got both: leave one out")
    read_config(folder, runs_plugins=False)
    record = read_transcripts(folder / TRANSCRIPTS_FILE)
    if not record.transcripts:
        raise RunError(
            f"no replies are kept in {folder}: expected a {TRANSCRIPTS_FILE} there; a run writes "
            "it unless run.transcripts=0"
        )
    matches = list(record.transcripts)
    for name, value, of in _wanted(organelle, habitat, cell):
        values = {of(transcript) for transcript in matches}
        if value not in values:
            raise ConfigError(
                f"show --{name}: no reply of {value!r} among these; there are {_few(values)}"
            )
        matches = [transcript for transcript in matches if of(transcript) == value]
    if wrong or right:
        matches = [transcript for transcript in matches if transcript.is_right == right]
    newest = matches[-last:] if last else matches
    with report(json_file) as write:
        for transcript in newest:
            print(line_of(transcript))
        print(_footer(len(newest), len(matches), record.one_in), file=sys.stderr)
        write([vars(transcript) for transcript in newest])


def line_of(transcript: Transcript) -> str:
    """One reply in a line: generation, organelle, user, verdict, the organelle's own probability
    per token, the question and the reply."""
    from symbiont_ecology.transcripts import escaped, plain

    prompt, reply = plain(transcript.prompt, WIDEST), plain(transcript.reply, WIDEST)
    behind = f"({transcript.examples} examples) " if transcript.examples else ""
    mark = "yes" if transcript.is_right else "no"
    is_told = transcript.target and not transcript.is_right
    target = f" (wanted: {plain(transcript.target, WIDEST)})" if is_told else ""
    sure = "–" if transcript.confidence is None else f"{math.exp(transcript.confidence):.0%}"
    return (
        f"{transcript.generation:4d}  {escaped(transcript.id):5s} "
        f"{escaped(transcript.habitat):5s} {mark:3s} "
        f"{sure:>4s}  {behind}{prompt} → {reply}{target}"
    )


def _wanted(
    organelle: str | None, habitat: str | None, cell: str | None
) -> list[tuple[str, str, Callable[[Transcript], str]]]:
    """What was asked for: the option, its value, and what must be equal to it."""
    options: list[tuple[str, str | None, Callable[[Transcript], str]]] = [
        ("organelle", organelle, lambda transcript: transcript.id),
        ("habitat", habitat, lambda transcript: transcript.habitat),
        ("cell", cell, lambda transcript: transcript.cell),
    ]
    return [(name, value, of) for name, value, of in options if value is not None]


def _few(values: set[str]) -> str:
    names = sorted(values - {""}, key=lambda name: (len(name), name))
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "none"


def _footer(count: int, total: int, one_in: int) -> str:
    share = f"; the file keeps one reply in {one_in}, by draw" if one_in > 1 else ""
    return f"{count} of {total} replies{share}"
