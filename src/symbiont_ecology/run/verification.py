"""Check of the folder of a run, part by part, and the way back to the checkpoint before the last.

A checkpoint is whole if its state matches its checksum, the log holds what it did then, and every
blob that it names matches its name. Two checkpoints are kept. Where the last one is damaged the run
can go back to the one before, and live the generations in between again: the same ones, so that
nothing but time is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import EcologyError, RunError
from symbiont_ecology.base.files import is_writable, open_own, read_lines, write_whole
from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE, read_transcripts
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import PREVIOUS_FILE, STATE_FILE
from symbiont_ecology.run import open_run as living
from symbiont_ecology.run.checkpoints import check_blobs, check_log
from symbiont_ecology.run.open_run import read_config
from symbiont_ecology.run.provenance import PROVENANCE_FILE, check_not_edited, read_provenance

EVALUATIONS_FILE = "evaluations.jsonl"


def parts_of(folder: Path) -> dict[str, str]:
    """Return the fault of every part of a run by its name; empty if the part is whole.

    Raises:
        RunError: the folder holds no run, or another process is writing to it.
    """
    if not any((folder / name).exists() for name in (STATE_FILE, *living.TRACES)):
        raise living.no_run(folder)
    checks: dict[str, Callable[[Path], object]] = {
        STATE_FILE: _check_state,
        PROVENANCE_FILE: read_provenance,
        living.CONFIG_FILE: _check_config,
    }
    spare: dict[str, Callable[[Path], object]] = {
        PREVIOUS_FILE: _check_state,
        living.TIMINGS_FILE: lambda path: living.lived_seconds(path.parent),
        TRANSCRIPTS_FILE: read_transcripts,
        EVALUATIONS_FILE: _check_lines,
        living.JOURNAL_FILE: _check_lines,
    }
    checks |= {name: check for name, check in spare.items() if (folder / name).exists()}
    with living.locked(folder) if is_writable(folder) else nullcontext():
        return {name: _fault(check, folder / name) for name, check in checks.items()}


def go_back(folder: Path) -> str:
    """Make the checkpoint before the last one the last one, and return what was done.

    Raises:
        RunError: it is damaged, too, or the folder cannot be written.
    """
    path, log = folder / PREVIOUS_FILE, folder / living.EVENTS_FILE
    with living.locked(folder):
        if fault := _fault(_check_state, path):
            raise RunError(
                f"{folder} cannot be repaired, nor is the checkpoint before whole: {fault}: bring "
                f"back a copy, or live it again: symbiont run {folder / living.CONFIG_FILE} "
                "--out NEW"
            )
        previous = checkpoint.read_checkpoint(path)
        # The log first: who is killed in between types it again, and goes back once more.
        if previous.header.log:
            with open_own(log, "r+b") as file:
                file.truncate(previous.header.log.bytes)
        write_whole(folder / STATE_FILE, path.read_bytes())
    return (
        f"gone back to generation {previous.state.generation}: those behind it are lived again "
        "when the run is resumed"
    )


def _check_state(path: Path) -> None:
    read = checkpoint.read_checkpoint(path)
    check_log(path.with_name(living.EVENTS_FILE), read)
    check_blobs(BlobStore(path.with_name("blobs")), read.state.reachable())


def _check_config(path: Path) -> None:
    read_config(path.parent, runs_plugins=False)
    check_not_edited(path)


def _check_lines(path: Path) -> None:
    damaged = list[int]()
    for _ in read_lines(path, damaged.append):
        pass
    if damaged:
        raise RunError(f"{len(damaged)} damaged lines, the first is {damaged[0]}: remove them")


def _fault(check: Callable[[Path], object], path: Path) -> str:
    """Return what a check complains of; nothing if all is well."""
    try:
        check(path)
    except EcologyError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""
