"""``runs``: which runs there are, how far they are, what they take, and which may go."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from symbiont_ecology.cli.console import command_line, print_table, report, table
from symbiont_ecology.cli.options import JsonOption, argument, option
from symbiont_ecology.errors import EcologyError, RunError
from symbiont_ecology.files import remove_folder, remove_rests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class KnownRun:
    """A run in a folder; ``state`` is complete, unfinished, or what is wrong with it."""

    folder: str
    strategy: str
    generation: int
    state: str
    megabytes: float
    changed: float
    """Seconds since 1970."""


def runs(
    folder: Annotated[Path, argument("Where runs are.", "DIR")] = Path("artifacts"),
    keep: Annotated[
        int | None, option("Delete all runs but so many, those that changed last.", least=0)
    ] = None,
    yes: Annotated[bool, option("Delete without asking.", "--yes", "-y")] = False,
    json: JsonOption = None,
) -> None:
    """List the runs in a folder, the newest first; --keep N deletes the others. Suites are left
    alone."""
    with report(json) as write_json:
        all_runs = known_runs(folder)
        _tell(all_runs, folder)
        write_json([asdict(run) for run in all_runs])
    if keep is None:
        return
    with _deleting(folder):
        remove_rests(folder)
    if len(all_runs) <= keep:
        return
    doomed = all_runs[keep:]
    size = sum(run.megabytes for run in doomed)
    if not yes:
        if not sys.stdin.isatty():
            raise RunError(f"{len(doomed)} runs would be deleted, {size:.0f} MB: add --yes")
        typer.confirm(f"Delete {len(doomed)} runs, {size:.0f} MB?", abort=True)
    for run in doomed:
        delete_run(Path(run.folder))
    print(f"deleted {len(doomed)} runs, {size:.0f} MB", file=sys.stderr)


def known_runs(folder: Path) -> list[KnownRun]:
    """The runs right below a folder, those that changed last first.

    Raises:
        RunError: there is no such folder.
    """
    from symbiont_ecology.engine.living import CONFIG_FILE

    if not folder.is_dir():
        raise RunError(
            f"no folder {folder}: start a run with {command_line('run')}, or name another one"
        )
    places = [
        path.parent for path in folder.glob(f"[!.]*/{CONFIG_FILE}") if not path.parent.is_symlink()
    ]
    return sorted(map(_known, places), key=lambda run: -run.changed)


def delete_run(folder: Path) -> None:
    """Deletes a run that nobody is writing to.

    Raises:
        RunError: another process writes to it, or it cannot be deleted.
    """
    from symbiont_ecology.engine.living import locked

    with _deleting(folder), locked(folder):
        remove_folder(folder)


@contextmanager
def _deleting(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot delete {folder}: {error.strerror}") from error


def _known(folder: Path) -> KnownRun:
    from symbiont_ecology.ecology.state import load_state
    from symbiont_ecology.engine.budget import is_complete
    from symbiont_ecology.engine.living import lived_seconds
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.registry import kind_of

    files = list(_files_in(folder))
    size = sum(file.st_size for file in files) / 1e6
    changed = max((file.st_mtime for file in files), default=0.0)
    strategy, generation, status = "?", 0, ""
    try:
        config = read_config(folder, runs_plugins=False)
        strategy = kind_of(config.strategy)
        state = load_state(folder)
        generation = state.generation
        is_done = is_complete(config, state, lived_seconds(folder, generation))
        status = "complete" if is_done else "unfinished"
    except EcologyError as error:
        status = f"damaged: {error}"
    return KnownRun(str(folder), strategy, generation, status, size, changed)


def _files_in(folder: Path) -> Iterator[os.stat_result]:
    """Sizes and times of all files below a folder; a checkpoint may delete some meanwhile."""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if stat.S_ISREG((file := path.lstat()).st_mode):
                yield file


def _tell(all_runs: Sequence[KnownRun], folder: Path) -> None:
    if not all_runs:
        print(f"no run in {folder}")
        return
    rows = table("run", "strategy", "generations", "MB", "changed", "")
    for run in all_runs:
        moment = datetime.fromtimestamp(run.changed).strftime("%Y-%m-%d %H:%M")
        cells = run.strategy, f"{run.generation}", f"{run.megabytes:.1f}", moment, run.state[:60]
        rows.add_row(*map(escape, (run.folder, *cells)))
    print_table(rows)
    print(f"{len(all_runs)} runs, {sum(run.megabytes for run in all_runs):.0f} MB")
