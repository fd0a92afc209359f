"""``evoscope``: a page on which runs can be seen."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.evoscope.record import PageRecord

PAGE_FILE = "evoscope.html"


def evoscope(
    runs: Annotated[list[Path], argument("Folders of runs, or a phylogeny as a CSV file.", "RUN…")],
    out: Annotated[
        Path | None, option("The page to write.", default="RUN/evoscope.html, or evoscope.html")
    ] = None,
    show: Annotated[bool, option("Open it in the browser.", "--open")] = False,
    live: Annotated[
        bool, option("Serve the page on this machine, fed while the run goes on.", "--live")
    ] = False,
    port: Annotated[int, option("Port of --live; 0 is a free one.", least=0)] = 0,
    beside_host: Annotated[
        bool, option("Also ask the bare host the same questions. This loads it.", "--beside-host")
    ] = False,
    figures: Annotated[
        Path | None, option("Write every view as PNG and SVG into a folder.", default="none")
    ] = None,
    animate: Annotated[
        Path | None, option("Write the living canvas as a film: a .gif or .mp4.", default="none")
    ] = None,
) -> None:
    """Make one page on which runs can be seen, in any browser and without a network."""
    if (live or beside_host or figures) and (files := _phylogenies(runs)):
        raise ConfigError(
            "evoscope: --live, --beside-host and --figures are for folders of runs, and "
            f"{files[0]} is none: leave them out"
        )
    if animate and len(runs) > 1:
        raise ConfigError(f"evoscope --animate: expected one run, got {len(runs)}")
    if live:
        if out or figures or animate or beside_host:
            raise ConfigError(
                "evoscope --live: it serves a page and writes no file: leave --out, --figures, "
                "--animate and --beside-host out"
            )
        _serve(runs, port, show)
        return
    from symbiont_ecology.evoscope.page import page_html, write_page

    record = _record(runs, beside_host)
    if animate is not None:
        from symbiont_ecology.evoscope.animation import write_film

        write_film(record["runs"][0], animate)
        print(f"film: {animate}")
    if figures is not None:
        _draw(runs, figures)
    path = out or (runs[0] / PAGE_FILE if len(runs) == 1 and runs[0].is_dir() else Path(PAGE_FILE))
    write_page(page_html(record), path)
    print(f"page: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in any browser")
    if show:
        webbrowser.open(path.resolve().as_uri())


def _record(runs: list[Path], beside_host: bool) -> PageRecord:
    from symbiont_ecology.evoscope.page import page_record, whole_record
    from symbiont_ecology.evoscope.phylogenies import phylogeny_record

    if beside_host:
        from symbiont_ecology.evoscope.beside import host_replies

        return page_record(runs, host_replies)
    files = _phylogenies(runs)
    if not files:
        return page_record(runs)
    if len(files) == len(runs):
        return whole_record([phylogeny_record(path) for path in files])
    raise ConfigError("evoscope: expected folders of runs or CSV files, got both: show one kind")


def _phylogenies(runs: list[Path]) -> list[Path]:
    """Those that are no folders of runs."""
    return [path for path in runs if path.suffix == ".csv" and path.is_file()]


def _draw(runs: list[Path], figures: Path) -> None:
    """Every view of each run: in the folder itself, or in one for each if they are several."""
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.history.history import read_history
    from symbiont_ecology.history.timings import read_timings
    from symbiont_ecology.history.world import world_changes
    from symbiont_ecology.plots import save_figures

    for folder in runs:
        target = figures if len(runs) == 1 else figures / _own_end(folder, runs)
        history, config = read_history(folder), read_config(folder, runs_plugins=False)
        changes = world_changes(config, history.ends)
        names = save_figures(history, target, changes=changes, timings=read_timings(folder))
        print(f"figures: {len(names)} in {target}")


def _own_end(folder: Path, runs: list[Path]) -> Path:
    """The shortest end of a folder's path that no other run has."""
    own, *others = (path.resolve().parts[1:] for path in (folder, *runs))
    rivals = set(others) - {own}
    lengths = range(1, len(own))
    shared = (n for n in lengths if own[-n:] not in {rival[-n:] for rival in rivals})
    return Path(*own[-next(shared, len(own)) :])


def _serve(runs: list[Path], port: int, show: bool) -> None:
    """Until Ctrl-C."""
    from symbiont_ecology.evoscope.live import LOOPBACK, live_server

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
