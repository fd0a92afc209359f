"""Check of the folder of a run, part by part, and its repair.

A checkpoint is whole if its state matches its checksum, the log holds what it did then, and every
blob that it names matches its name. Two checkpoints are kept. Where the last one is damaged a
repair goes back to the one before, and the run lives the generations in between again: the same
ones, so that nothing but time is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import EcologyError, RunError
from symbiont_ecology.base.files import open_own, read_lines, remove_unfinished, write_whole
from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE, read_transcripts
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import PREVIOUS_FILE, STATE_FILE
from symbiont_ecology.run import open_run as living
from symbiont_ecology.run.checkpoints import check_log, unfinished_files
from symbiont_ecology.run.provenance import (
    PROVENANCE_COPY_FILE,
    PROVENANCE_FILE,
    copy_provenance,
    read_provenance,
    restore_config,
)
from symbiont_ecology.run.start import check_not_edited, read_config

EVALUATIONS_FILE, DAMAGED = "evaluations.jsonl", ".damaged"
"""A log whose lines stand for themselves, and the ending of a file that was set aside."""
MAX_NAMED_LINES = 3
"""Damaged lines that a message names."""


@dataclass(frozen=True)
class Part:
    """A part of a run. ``check`` raises if it is not whole. ``mend`` repairs it, as ``done`` or its
    result says; it is None where nothing can be done."""

    name: str
    check: Callable[[], object]
    mend: Callable[[], str | None] | None = None
    done: str = ""

    @property
    def fault(self) -> str:
        """Fault of it, empty if it is whole."""
        return _fault(self.check)


def parts_of(folder: Path) -> Iterator[Part]:
    """Yield the parts of the run in a folder, those first on which the repair of others depends.

    Raises:
        RunError: the folder has no checkpoint, and no trace of one.
    """
    if not any((folder / name).exists() for name in (STATE_FILE, PREVIOUS_FILE)):
        if not (folder / living.CONFIG_FILE).is_file():
            raise RunError(f"no run in {folder}: expected a {living.CONFIG_FILE} there")
        if not living.lived_generations(folder):
            raise RunError(f"{folder} has no checkpoint yet: symbiont resume {folder} begins anew")
    check_blob = cache(BlobStore(folder / "blobs").check)

    def check_state(path: Path) -> None:
        read = checkpoint.read_checkpoint(path)
        if path.parent == folder:
            check_log(folder / living.EVENTS_FILE, read)
        for ref in sorted(read.state.reachable()):
            check_blob(ref)

    last, previous = (partial(check_state, folder / name) for name in (STATE_FILE, PREVIOUS_FILE))
    yield Part(STATE_FILE, last, lambda: _gone_back(folder, _fault(last), _fault(previous)))
    yield from _config_parts(folder)
    spare: dict[Path, tuple[Callable[[Path], object], str]] = {
        folder / PREVIOUS_FILE: (check_state, "the next checkpoints make another one"),
        folder / living.TIMINGS_FILE: (
            lambda path: living.lived_seconds(folder),
            "seconds count from here on",
        ),
        folder / TRANSCRIPTS_FILE: (read_transcripts, "what was replied before is not shown"),
    }
    for path, (check, loss) in spare.items():
        if path.exists():
            name = str(path.relative_to(folder))
            done = f"set aside as {path.name}{DAMAGED}; {loss}"
            yield Part(name, partial(check, path), partial(_set_aside, path), done)
    evaluations, journal = folder / EVALUATIONS_FILE, folder / living.JOURNAL_FILE
    if evaluations.exists():
        keep = partial(_keep_lines, evaluations)
        yield Part(evaluations.name, partial(_check_lines, evaluations), keep)
    if journal.exists():
        yield Part(journal.name, partial(_check_lines, journal))


def repair(folder: Path) -> list[str]:
    """Mend what can be mended in a folder that this process has locked, and return what was done.

    Raises:
        RunError: no checkpoint is whole, or a file cannot be written.
    """
    done = [
        f"{part.name}: {part.mend() or part.done}"
        for part in parts_of(folder)
        if part.fault and part.mend
    ]
    for path in unfinished_files(folder):
        remove_unfinished(path)
        done.append(f"{path.relative_to(folder)}: removed, a crash left it")
    return done


def _config_parts(folder: Path) -> Iterator[Part]:
    """Yield the provenance, its copy, and the config, which is mended by the provenance."""
    first, second = (folder / name for name in (PROVENANCE_FILE, PROVENANCE_COPY_FILE))
    config = folder / living.CONFIG_FILE
    original, copy = (Part(path.name, partial(read_provenance, path)) for path in (first, second))

    def check_config() -> None:
        read_config(folder, runs_plugins=False)
        if not original.fault:  # by which an edit is found
            check_not_edited(folder)

    mend = None if copy.fault else partial(copy_provenance, second, first)
    yield replace(original, mend=mend, done="written again from its copy")
    is_whole = not original.fault
    if second.exists():
        mend = partial(copy_provenance, first, second) if is_whole else None
        yield replace(copy, mend=mend, done=f"written again from {first.name}")
    mend = partial(restore_config, config) if is_whole else None
    yield Part(config.name, check_config, mend, f"written again as {first.name} names it")


def _gone_back(folder: Path, fault: str, fault_before: str) -> str:
    """Make the previous checkpoint the last one."""
    if fault_before:
        raise RunError(
            f"{folder} cannot be repaired: {fault}; nor is there a whole checkpoint before it: "
            f"{fault_before}: bring back a copy, or live it again: symbiont run "
            f"{folder / living.CONFIG_FILE} --out NEW"
        )
    previous = checkpoint.read_checkpoint(folder / PREVIOUS_FILE)
    count = living.lived_generations(folder)
    # The log first: who is killed in between types the repair again, which goes back once more.
    if previous.header.log:
        with open_own(folder / living.EVENTS_FILE, "r+b") as log:
            log.truncate(previous.header.log.bytes)
    write_whole(folder / STATE_FILE, (folder / PREVIOUS_FILE).read_bytes())
    generation = previous.state.generation
    again = f"{max(count - generation, 0)} of {count} are lived again when the run is resumed"
    return f"gone back to generation {generation}; {again}"


def _check_lines(path: Path) -> None:
    damaged = list[int]()
    for _ in read_lines(path, damaged.append):
        pass
    if damaged:
        raise RunError(f"damaged lines: {', '.join(map(str, damaged[:MAX_NAMED_LINES]))} …")


def _keep_lines(path: Path) -> str:
    """Keep the lines that can be read, and the file as it was under another name."""
    damaged = list[int]()
    lines = [json.dumps(record) + "\n" for _, record in read_lines(path, damaged.append)]
    write_whole(path.with_name(path.name + DAMAGED), path.read_bytes())
    write_whole(path, "".join(lines))
    return f"{len(damaged)} damaged lines left out; {path.name}{DAMAGED} has them"


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_name(path.name + DAMAGED))
    except OSError as error:
        raise RunError(f"cannot rename {path}: {error.strerror}") from error


def _fault(check: Callable[[], object]) -> str:
    """Return what a check complains of; nothing if all is well."""
    try:
        check()
    except EcologyError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""
