"""Whether the folder of a run is whole, file by file, and how it is repaired.

A checkpoint is whole if its state matches its checksum, the log holds what it did then, and every
blob that it names matches its name. Two checkpoints are kept. Where the last one is damaged a
repair goes back to the one before, and the run lives the generations in between again: the same
ones, so that nothing but time is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import PREVIOUS_FILE, STATE_FILE, Checkpoint
from symbiont_ecology.engine.checkpoints import check_log, unfinished_files
from symbiont_ecology.engine.living import (
    CONFIG_FILE,
    EVENTS_FILE,
    JOURNAL_FILE,
    TIMINGS_FILE,
    lived_generations,
    lived_seconds,
)
from symbiont_ecology.engine.provenance import (
    PROVENANCE_COPY_FILE,
    PROVENANCE_FILE,
    check_provenance,
    keep_copy,
    restore_config,
    restore_provenance,
)
from symbiont_ecology.engine.run import check_not_edited, read_config
from symbiont_ecology.errors import EcologyError, RunError
from symbiont_ecology.files import open_own, read_lines, remove_unfinished, write_whole
from symbiont_ecology.transcripts import TRANSCRIPTS_FILE, read_transcripts
from symbiont_ecology.types import BlobRef
from symbiont_ecology.weights.blobs import BlobStore

DAMAGED = ".damaged"
"""The ending of a file that was set aside."""
LINES = ("evaluations.jsonl",)
"""Logs whose lines stand for themselves."""
MOST_DAMAGED = 3
"""Damaged blobs or lines that a message names."""


@dataclass(frozen=True)
class Finding:
    """What is to be said of a part of a run: is it whole, or what is wrong with it?"""

    part: str
    is_whole: bool
    said: str


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint, as far as it can be read, and the findings about it."""

    read: Checkpoint | None
    findings: tuple[Finding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether a run can go on from it."""
        return all(finding.is_whole for finding in self.findings)


@dataclass(frozen=True)
class Verification:
    """Everything that was found in the folder of a run."""

    folder: Path
    last: FoundCheckpoint
    previous: FoundCheckpoint | None
    others: tuple[Finding, ...]

    @classmethod
    def of(cls, folder: Path) -> Verification:
        """Reads all that a folder holds, and hashes it again.

        Raises:
            RunError: it holds no run.
        """
        check_has_lived(folder)
        blobs = BlobCheck(folder)
        last = _found(folder, STATE_FILE, blobs)
        previous = None
        if (folder / PREVIOUS_FILE).exists():
            previous = _found(folder, PREVIOUS_FILE, blobs)
        return cls(folder, last, previous, tuple(_others(folder, blobs)))

    @property
    def findings(self) -> list[Finding]:
        """All of them."""
        before = self.previous.findings if self.previous else ()
        return [*self.last.findings, *before, *self.others]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return all(finding.is_whole for finding in self.findings)


class BlobCheck:
    """Hashes blobs of a run again, each of them once."""

    def __init__(self, folder: Path) -> None:
        self._store = BlobStore(folder / "blobs")
        self._wrong = dict[BlobRef, str]()

    def finding(self, state: checkpoint.EcologyState, part: str) -> Finding:
        """What is to be said of the blobs that a state names."""
        refs = sorted(state.reachable())
        damaged = [ref for ref in refs if self._problem(ref)]
        if not damaged:
            return Finding(part, True, f"{len(refs)} blobs")
        faults = "; ".join(self._wrong[ref] for ref in damaged[:MOST_DAMAGED])
        return Finding(part, False, f"{len(damaged)} of {len(refs)} blobs: {faults}")

    def unneeded(self) -> int:
        """How many files nobody has asked about."""
        names = {f"{ref}.safetensors" for ref in self._wrong}
        return sum(path.name not in names for path in self._store.files())

    def _problem(self, ref: BlobRef) -> str:
        if ref not in self._wrong:
            self._wrong[ref] = _problem(self._store.check, ref)
        return self._wrong[ref]


def check_has_lived(folder: Path) -> None:
    """Refuses a folder without a checkpoint, and without a trace of one.

    Raises:
        RunError: there is none.
    """
    if any((folder / name).exists() for name in (STATE_FILE, PREVIOUS_FILE)):
        return
    if not (folder / CONFIG_FILE).is_file():
        raise RunError(f"no run in {folder}: expected a {CONFIG_FILE} there")
    if not lived_generations(folder):
        raise RunError(f"{folder} has no checkpoint yet: symbiont resume {folder} begins anew")


def repair(found: Verification) -> list[str]:
    """Mends what can be mended in a folder that this process has locked, and says what was done.

    Raises:
        RunError: no checkpoint is whole, or a file cannot be written.
    """
    folder, done = found.folder, list[str]()
    if not found.last.is_whole:
        done.append(_gone_back(found))
    for path in unfinished_files(folder):
        remove_unfinished(path)
        done.append(f"{path.relative_to(folder)}: removed, a crash left it")
    done += _provenance_mended(folder)
    provenance = folder / PROVENANCE_FILE
    if _problem(_check_config, folder) and not _problem(check_provenance, provenance):
        restore_config(folder / CONFIG_FILE)
        done.append(f"{CONFIG_FILE}: written again as {PROVENANCE_FILE} names it")
    for name, (check, loss) in _SPARE.items():
        if _problem(check, folder):
            _set_aside(folder / name)
            done.append(f"{name}: set aside as {name}{DAMAGED}; {loss}")
    for name in LINES:
        if not _lines(folder / name).is_whole:
            done.append(_without_damaged_lines(folder / name))
    blobs = BlobCheck(folder)
    for path in checkpoint.kept_files(folder):
        if not all(finding.is_whole for finding in _kept(path, blobs)):
            _set_aside(path)
            done.append(
                f"{path.relative_to(folder)}: set aside; that evaluation cannot be repeated"
            )
    if found.previous and found.last.is_whole and not found.previous.is_whole:
        _set_aside(folder / PREVIOUS_FILE)
        done.append(f"{PREVIOUS_FILE}: set aside; the next checkpoints make another one")
    return done


def _provenance_mended(folder: Path) -> list[str]:
    """Writes the provenance again from its copy, or the copy from it, if one of them is damaged."""
    copy = folder / PROVENANCE_COPY_FILE
    is_damaged = bool(_problem(check_provenance, folder / PROVENANCE_FILE))
    is_copy_damaged = bool(_problem(check_provenance, copy))
    if is_damaged and not is_copy_damaged:
        restore_provenance(folder)
        return [f"{PROVENANCE_FILE}: written again from its copy"]
    if is_copy_damaged and not is_damaged:
        keep_copy(folder)
        return [f"{copy.name}: written again from {PROVENANCE_FILE}"]
    return []


def _gone_back(verification: Verification) -> str:
    """Makes the previous checkpoint the last one."""
    folder, previous = verification.folder, verification.previous
    fault = next(finding for finding in verification.last.findings if not finding.is_whole)
    if previous is None or previous.read is None or not previous.is_whole:
        more = "there is none before it"
        if previous is not None:
            before = next(finding for finding in previous.findings if not finding.is_whole)
            more = f"the one before it is damaged, too: {before.part}: {before.said}"
        raise RunError(
            f"{folder} cannot be repaired: {fault.part}: {fault.said}; {more}: bring back a copy, "
            f"or live it again: symbiont run {folder / CONFIG_FILE} --out NEW"
        )
    count, generation = lived_generations(folder), previous.read.state.generation
    # The log first: who is killed in between types the repair again, which goes back once more.
    if previous.read.header.log:
        with open_own(folder / EVENTS_FILE, "r+b") as log:
            log.truncate(previous.read.header.log.bytes)
    write_whole(folder / STATE_FILE, (folder / PREVIOUS_FILE).read_bytes())
    lost = max(count - generation, 0)
    return (
        f"{STATE_FILE}: gone back to generation {generation}; {lost} of {count} are lived again "
        "when the run is resumed"
    )


def _found(folder: Path, name: str, blobs: BlobCheck) -> FoundCheckpoint:
    """A checkpoint, its log and its blobs."""
    try:
        record = checkpoint.read_checkpoint(folder / name)
    except RunError as error:
        return FoundCheckpoint(None, (Finding(name, False, str(error)),))
    events, log = record.state.next_seq, f"{EVENTS_FILE} up to {name}"
    fault = _problem(check_log, folder / EVENTS_FILE, record)
    findings = (
        Finding(name, True, f"generation {record.state.generation}"),
        Finding(log, not fault, fault or f"{events} events"),
        blobs.finding(record.state, f"blobs of {name}"),
    )
    return FoundCheckpoint(record, findings)


def _others(folder: Path, blobs: BlobCheck) -> Iterator[Finding]:
    """What is to be said of all but the checkpoints."""
    fault = _problem(_check_config, folder)
    yield Finding(CONFIG_FILE, not fault, fault or "as it was written")
    for name in (PROVENANCE_FILE, PROVENANCE_COPY_FILE):
        if name == PROVENANCE_FILE or (folder / name).exists():
            fault = _problem(check_provenance, folder / name)
            yield Finding(name, not fault, fault or "names the host and the config")
    for path in checkpoint.kept_files(folder):
        yield from _kept(path, blobs)
    for name, (check, _) in _SPARE.items():
        if (folder / name).exists():
            fault = _problem(check, folder)
            yield Finding(name, not fault, fault or "readable")
    for name in (*LINES, JOURNAL_FILE):
        if (folder / name).exists():
            yield _lines(folder / name)
    unfinished = len(unfinished_files(folder))
    if unfinished or blobs.unneeded():
        text = f"{blobs.unneeded()} blobs, {unfinished} half-written files; a resume removes them"
        yield Finding("not needed", True, text)


def _kept(path: Path, blobs: BlobCheck) -> Iterator[Finding]:
    """The state of an evaluation, and its blobs."""
    name = f"{path.parent.name}/{path.name}"
    try:
        state = checkpoint.read_checkpoint(path).state
    except RunError as error:
        yield Finding(name, False, str(error))
        return
    yield Finding(name, True, f"generation {state.generation}")
    yield blobs.finding(state, f"blobs of {name}")


def _lines(path: Path) -> Finding:
    """Whether every line of a log is a JSON object."""
    damaged, count = list[int](), 0
    try:
        count = sum(1 for _ in read_lines(path, damaged.append))
    except RunError as error:
        return Finding(path.name, False, str(error))
    if damaged:
        shown = ", ".join(map(str, damaged[:MOST_DAMAGED]))
        more = " …" if len(damaged) > MOST_DAMAGED else ""
        return Finding(path.name, False, f"damaged lines: {shown}{more}")
    return Finding(path.name, True, f"{count} lines")


def _without_damaged_lines(path: Path) -> str:
    """Keeps the lines that can be read, and the file as it was under another name."""
    damaged = list[int]()
    lines = [json.dumps(record) + "\n" for _, record in read_lines(path, damaged.append)]
    write_whole(path.with_name(path.name + DAMAGED), path.read_bytes())
    write_whole(path, "".join(lines))
    return f"{path.name}: {len(damaged)} damaged lines left out; {path.name}{DAMAGED} has them"


def _check_config(folder: Path) -> None:
    read_config(folder, runs_plugins=False)
    if not _problem(check_provenance, folder / PROVENANCE_FILE):  # by which an edit is found
        check_not_edited(folder)


def _problem(check: Callable[..., object], *values: object) -> str:
    """What a check of these values complains of; nothing if all is well."""
    try:
        check(*values)
    except EcologyError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_name(path.name + DAMAGED))
    except OSError as error:
        raise RunError(f"cannot rename {path}: {error.strerror}") from error


_SPARE: dict[str, tuple[Callable[[Path], object], str]] = {
    TIMINGS_FILE: (lived_seconds, "seconds count from here on"),
    TRANSCRIPTS_FILE: (
        lambda folder: read_transcripts(folder / TRANSCRIPTS_FILE),
        "what was replied before is not shown",
    ),
}
"""Files that a run does without: how each is checked, and what is lost with it."""
