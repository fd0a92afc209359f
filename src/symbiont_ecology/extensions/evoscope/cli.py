"""Commands that look at runs: ``evoscope``, ``report``, ``show``, ``diff`` and ``phylogeny``. They
only read a run folder, and run no plug-in that its config names."""

from __future__ import annotations

import math
import sys
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.cli.options import USER, JsonOption, RunFolder, argument, option

if TYPE_CHECKING:
    from rich.table import Table

    from symbiont_ecology.base.transcripts import Transcript
    from symbiont_ecology.extensions.evoscope.compare import ComparedValue

PAGE_FILE, REPORT_FILE, PHYLOGENY_FILE = "evoscope.html", "report.md", "phylogeny.csv"
MAX_CELL_CHARS, MAX_REPLY_CHARS = 200, 60
"""Characters of a value that a table shows, and of a prompt or a reply in a line."""
MAX_NAMED = 8
"""Names that an error lists."""


def evoscope(
    runs: Annotated[list[Path], argument("Folders of runs.", "RUN…")],
    out: Annotated[
        Path | None, option("The page to write.", default="RUN/evoscope.html, or evoscope.html")
    ] = None,
    show: Annotated[bool, option("Open it in the browser.", "--open")] = False,
    live: Annotated[
        bool, option("Serve the page on this machine, fed while the run goes on.", "--live")
    ] = False,
    port: Annotated[int, option("Port of --live; 0 is a free one.", least=0)] = 0,
    figures: Annotated[
        Path | None, option("Write figures as PNG and SVG into a folder.", default="none")
    ] = None,
) -> None:
    """Make one page on which runs can be seen, in any browser and without a network."""
    if figures and len(runs) > 1:
        raise ConfigError(f"evoscope --figures: expected one run, got {len(runs)}")
    if live:
        if out or figures:
            raise ConfigError("evoscope --live writes no file: leave --out and --figures out")
        _serve(runs, port, show)
        return
    from symbiont_ecology.base.files import write_whole
    from symbiont_ecology.extensions.evoscope.page import page_html, page_record

    record = page_record(runs)
    if figures is not None:
        from symbiont_ecology.extensions.evoscope.figures import save

        print(f"figures: {len(save(runs[0], figures))} in {figures}")
    path = out or (runs[0] / PAGE_FILE if len(runs) == 1 and runs[0].is_dir() else Path(PAGE_FILE))
    write_whole(path, page_html(record))
    print(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in any browser")
    if show:
        webbrowser.open(path.resolve().as_uri())


def _serve(runs: list[Path], port: int, show: bool) -> None:
    """Serve the page until Ctrl-C."""
    from symbiont_ecology.extensions.evoscope.page import LOOPBACK, live_server

    server = live_server(runs, port)
    address = f"http://{LOOPBACK}:{server.server_port}/"
    print(f"live: {address} (Ctrl-C ends it; the run goes on by itself)", flush=True)
    if show:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nclosed")
    finally:
        server.server_close()


def report(
    folder: Annotated[Path, argument("Folder of a run, or of a suite.", "DIR")],
    out: Annotated[Path | None, option("The file.", default="DIR/report.md")] = None,
) -> None:
    """Write a report: figures with their queries, what happened, what looks wrong."""
    from symbiont_ecology.extensions.study.pack import PROTOCOL

    if (folder / PROTOCOL).exists():
        from symbiont_ecology.extensions.study.cli import pack

        pack([folder], out=out or folder / "report")
        return
    from symbiont_ecology.base.files import write_whole
    from symbiont_ecology.extensions.evoscope.report import RunReport

    target = out or folder / REPORT_FILE
    write_whole(target, RunReport.of(folder).page())
    print(f"report: {target}")


def diff(
    one: RunFolder,
    other: Annotated[Path, argument("Folder of another run.", "DIR")],
    json_file: JsonOption = None,
) -> None:
    """Compare two runs: their configs, the first event that differs, and their results."""
    from rich.console import Console

    from symbiont_ecology.cli.console import report as reporting
    from symbiont_ecology.extensions.evoscope.compare import RunDiff

    difference = RunDiff.of(one, other)
    with reporting(json_file) as write:
        console = Console(soft_wrap=True, highlight=False)
        names = difference.names
        if difference.config:
            console.print(_table("config", names, difference.config))
        else:
            print("their configs are equal")
        if (first := difference.first_difference) is None:
            print("their histories are equal, event by event")
        else:
            print(
                f"first difference: generation {first.generation}, event {first.number}, "
                f"{' and '.join(dict.fromkeys(first.kinds))} {', '.join(first.fields)}".rstrip()
            )
            console.print(_table("outcome", names, difference.outcome))
            console.print(_table("solved since", names, difference.solved))
        write(asdict(difference))


def _table(title: str, names: tuple[str, str], rows: tuple[ComparedValue, ...]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from symbiont_ecology.base.transcripts import plain

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (title, *names):
        table.add_column(escape(plain(name, MAX_CELL_CHARS)), overflow="fold")
    for row in rows:
        cells = (plain(text, MAX_CELL_CHARS) for text in (row.name, row.one, row.other))
        table.add_row(*map(escape, cells))
    return table


def phylogeny(
    folder: RunFolder,
    out: Annotated[
        Path | None,
        option("The file.", default="DIR/phylogeny.csv, or here where DIR is read-only"),
    ] = None,
    tree: Annotated[
        bool,
        option("Write only the first parent of a merge, for programs that read trees.", "--tree"),
    ] = False,
) -> None:
    """Write who descends from whom, in the artificial-life data standard."""
    from symbiont_ecology.base.files import is_writable
    from symbiont_ecology.extensions.evoscope.history import History
    from symbiont_ecology.extensions.evoscope.phylogeny import write_phylogeny

    taxa = History.of_run(folder).taxa
    path = out or (folder if is_writable(folder) else Path()) / PHYLOGENY_FILE
    write_phylogeny(taxa, path, is_tree=tree)
    print(f"{len(taxa)} organelles in {path}")


def show(
    folder: RunFolder,
    organelle: Annotated[
        str | None, option("Replies of this organelle, such as o7.", metavar="ID")
    ] = None,
    user: Annotated[str | None, option("Replies to this user.", *USER, metavar="ID")] = None,
    cell: Annotated[
        str | None, option("Replies to these questions, such as math.add/short.", metavar="CELL")
    ] = None,
    wrong: Annotated[bool, option("Only what was refused.", "--wrong")] = False,
    right: Annotated[bool, option("Only what was accepted.", "--right")] = False,
    last: Annotated[int, option("How many, the newest; 0 is all of them.", least=0)] = 20,
    json_file: JsonOption = None,
) -> None:
    """Show replies of a run: who was asked what, what came, and whether it was accepted."""
    from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE, read_transcripts
    from symbiont_ecology.cli.console import report as reporting
    from symbiont_ecology.run.open_run import read_config

    if wrong and right:
        raise ConfigError("show: expected --wrong or --right, got both: leave one out")
    read_config(folder, runs_plugins=False)  # raises where there is no run
    matches = read_transcripts(folder / TRANSCRIPTS_FILE)
    if not matches:
        raise RunError(
            f"no replies are kept in {folder}: expected a {TRANSCRIPTS_FILE} there; a run writes "
            "it unless run.transcripts=0"
        )
    for name, value in {"organelle": organelle, "user": user, "cell": cell}.items():
        if value is not None:
            matches = _matching(matches, name, value)
    if wrong or right:
        matches = [transcript for transcript in matches if transcript.is_right == right]
    newest = matches[-last:] if last else matches
    with reporting(json_file) as write:
        for transcript in newest:
            print(_reply_line(transcript))
        print(f"{len(newest)} of {len(matches)} replies", file=sys.stderr)
        write([vars(transcript) for transcript in newest])


def _matching(transcripts: list[Transcript], name: str, value: str) -> list[Transcript]:
    """Return those in which an option has a value.

    Raises:
        ConfigError: there is none.
    """
    field = "id" if name == "organelle" else name
    matches = [transcript for transcript in transcripts if getattr(transcript, field) == value]
    if not matches:
        values = {getattr(transcript, field) for transcript in transcripts} - {""}
        names = sorted(values, key=lambda name: (len(name), name))
        listed = ", ".join(names[:MAX_NAMED]) + (" …" if len(names) > MAX_NAMED else "")
        raise ConfigError(
            f"show --{name}: no reply of {value!r} among these; there are {listed or 'none'}"
        )
    return matches


def _reply_line(transcript: Transcript) -> str:
    """Return generation, organelle, user, verdict, the organelle's own probability per token, the
    question and the reply."""
    from symbiont_ecology.base.transcripts import escaped, plain

    prompt, reply = (plain(text, MAX_REPLY_CHARS) for text in (transcript.prompt, transcript.reply))
    behind = f"({transcript.examples} examples) " if transcript.examples else ""
    mark = "yes" if transcript.is_right else "no"
    is_told = transcript.target and not transcript.is_right
    target = f" (wanted: {plain(transcript.target, MAX_REPLY_CHARS)})" if is_told else ""
    sure = "–" if transcript.confidence is None else f"{math.exp(transcript.confidence):.0%}"
    return (
        f"{transcript.generation:4d}  {escaped(transcript.id):5s} "
        f"{escaped(transcript.user):5s} {mark:3s} "
        f"{sure:>4s}  {behind}{prompt} → {reply}{target}"
    )
