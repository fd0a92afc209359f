"""A copy of a run at an address: a bucket, another machine, whatever fsspec opens.

Stores of objects can neither append to a file nor rename one. So a log is sent in parts, each named
by the byte with which it begins; blobs are sent once; the state comes last, and with it the
checkpoint. Whoever fetches a copy has the last checkpoint that was sent whole.

    config.yaml, provenance.json, …, state.json
    blobs/<hash>.safetensors
    events.jsonl.parts/<byte>
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.errors import ConfigError, EcologyError, RunError, lines_of
from symbiont_ecology.files import FOLDER_LOCK_FILE, UNFINISHED, folder_made_whole, write_whole

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LOG_SUFFIX, LOG_PARTS, BLOB_FOLDER, WRITER_MARK = ".jsonl", ".parts", "blobs", "writer"
REMOTE_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://.+")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
"""A file's name that cannot lead out of its folder. Files of a run have such names; others are
neither sent nor fetched."""
TAIL_BYTES = 256
"""Of a log, by which one that was written anew is told from one that grew."""
NOT_SENT = ("lock", FOLDER_LOCK_FILE, WRITER_MARK)


class RemoteFolder:
    """Files at an address, by names such as ``blobs/x``.

    Raises:
        ConfigError: nothing that is installed opens such an address.
        RunError: it does not answer (all methods).
    """

    def __init__(self, address: str) -> None:
        from fsspec.core import url_to_fs

        self.address = address
        if not REMOTE_ADDRESS.fullmatch(address):
            raise ConfigError(f"expected an address such as s3://bucket/run, got {address[:200]!r}")
        try:
            place: tuple[AbstractFileSystem, str] = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"nothing opens {address}: {error}") from error
        self._store, self._root = place

    def names(self) -> list[str]:
        """All files, sorted."""
        with self._expected("read"):
            self._store.invalidate_cache()
            paths = self._store.find(self._root) if self._store.exists(self._root) else ()
            return sorted(path[len(self._root) :].lstrip("/") for path in paths)

    def read(self, name: str) -> bytes:
        """A file's content."""
        with self._expected("read"):
            return bytes(self._store.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Makes or replaces a file."""
        path = f"{self._root}/{name}"
        with self._expected("write to"):
            self._store.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._store.pipe_file(path, data)

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files."""
        with self._expected("write to"):
            for name in sorted(names):
                self._store.rm_file(f"{self._root}/{name}")

    @contextmanager
    def _expected(self, verb: str) -> Iterator[None]:
        """A store is a package of somebody else, with errors of its own."""
        try:
            yield
        except EcologyError:
            raise
        except Exception as error:
            why = lines_of(error)[0]
            raise RunError(f"cannot {verb} {self.address}: {why:.200}") from error


class Mirror:
    """Keeps the copy of a run equal to its folder: ``push`` sends what is new.

    One process writes to an address. It leaves a mark there, and ends when it finds another's.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._there = folder, RemoteFolder(address)
        self._mark = secrets.token_hex(8).encode()
        self._blobs = {name for name in self._there.names() if name.startswith(f"{BLOB_FOLDER}/")}
        self._sent = dict[str, tuple[int, bytes]]()
        """How many bytes of each log were sent, and the last of them."""
        self._hashes = dict[str, str]()
        self._there.write(WRITER_MARK, self._mark)

    def push(self) -> None:
        """Sends what changed since the last time.

        Raises:
            RunError: it cannot be sent, or another process sends there.
        """
        if self._there.read(WRITER_MARK) != self._mark:
            raise RunError(
                f"another process writes to {self._there.address}: give each run its own address"
            )
        blobs = {f"{BLOB_FOLDER}/{path.name}": path for path in _files(self._folder / BLOB_FOLDER)}
        for name in sorted(blobs.keys() - self._blobs):
            self._there.write(name, blobs[name].read_bytes())
        # The state comes last: who fetches it must find all that it names.
        for path in sorted(_files(self._folder), key=lambda path: path.name == STATE_FILE):
            push = self._push_log if path.suffix == LOG_SUFFIX else self._push_file
            push(path)
        self._there.remove(self._blobs - blobs.keys())
        self._blobs = set(blobs)

    def _push_file(self, path: Path) -> None:
        data = path.read_bytes()
        digest = xxhash.xxh3_128(data).hexdigest()
        if self._hashes.get(path.name) != digest:
            self._there.write(path.name, data)
            self._hashes[path.name] = digest

    def _push_log(self, path: Path) -> None:
        """What was added. A log that nobody sent yet, or that was written anew (transcripts are
        thinned), is sent anew."""
        parts = f"{path.name}{LOG_PARTS}/"
        begin, last = self._sent.get(path.name, (0, b""))
        with path.open("rb") as file:
            file.seek(begin - len(last))
            is_new = not last or file.read(len(last)) != last
            begin = 0 if is_new else begin
            file.seek(begin)
            added = file.read()
        part = f"{parts}{begin:015d}"
        if added or is_new:
            self._there.write(part, added)
        if is_new:
            old = {name for name in self._there.names() if name.startswith(parts)}
            self._there.remove(old - {part})
        self._sent[path.name] = begin + len(added), (last + added)[-TAIL_BYTES:]


def fetch_copy(address: str, folder: Path, *, passed: Callable[[int, int], None]) -> None:
    """Brings the copy of a run into a new folder; ``passed`` hears how many files of how many came.

    The folder is whole or not there: until all is there it has another name, and what a killed
    process left under that is brought anew. A copy that was brought before and did not go on stays
    as it is.

    Raises:
        ConfigError: nothing opens such an address.
        RunError: there is no run, the folder is in use, or something cannot be read or written.
    """
    remote = RemoteFolder(address)
    names = [
        name
        for name in remote.names()
        if name.count("/") <= 1 and all(map(PLAIN_NAME.fullmatch, name.split("/")))
    ]
    if STATE_FILE not in names:
        raise RunError(f"no run at {address}: expected {STATE_FILE} there")
    state = folder / STATE_FILE
    if state.is_file() and state.read_bytes() == remote.read(STATE_FILE):
        return  # it was brought before
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is in use: choose another --out")
    plain = [
        name for name in names if LOG_PARTS not in name and name not in (*NOT_SENT, STATE_FILE)
    ]
    logs = sorted({name.partition(LOG_PARTS)[0] for name in names if LOG_PARTS in name})
    total = len(plain) + len(logs) + 1
    with folder_made_whole(folder) as half:
        for count, name in enumerate([*plain, *logs, STATE_FILE], 1):
            data = _log(remote, name, names) if name in logs else remote.read(name)
            path = half / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
            passed(count, total)


def _files(folder: Path) -> list[Path]:
    """Those that are sent of a folder, in the order of their names."""
    return [
        path
        for path in sorted(folder.glob("*"))
        if PLAIN_NAME.fullmatch(path.name)
        and path.is_file()
        and not path.is_symlink()
        and path.suffix != UNFINISHED
        and path.name not in NOT_SENT
    ]


def _log(remote: RemoteFolder, name: str, names: Sequence[str]) -> bytes:
    """The parts of a log; one that begins before the last one's end was replaced by it."""
    log = bytearray()
    for part in (n for n in names if n.startswith(f"{name}{LOG_PARTS}/")):
        begin = part.rpartition("/")[2]
        if begin.isdigit() and int(begin) == len(log):
            log += remote.read(part)
    return bytes(log)
