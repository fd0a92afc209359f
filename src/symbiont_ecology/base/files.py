"""Files that are there whole or not at all, and append-only logs of JSON objects, one per line,
whose last line a crash may have torn.

Order on the disk: the bytes of a file come before its name, and its name before whatever relies on
it. Nothing is ever written through a link: a run writes to files of its own only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from symbiont_ecology.base.errors import RunError

Stamp = tuple[int, ...]
"""Changes when a file does."""
FOLDER_LOCK_FILE = "folder.lock"
UNFINISHED = ".new"
"""Ending of a file that is being written."""
_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def write_whole(path: Path, content: str | bytes, *, syncs_folder: bool = True) -> None:
    """Write a file by atomic rename: who is killed meanwhile leaves what was there before, and
    after a power cut either the old or the new content is there.

    The name of the file is on the disk after ``sync_folder``, which may serve many files.

    Raises:
        RunError: it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    writing = written_whole(path, syncs_folder=syncs_folder)
    with writing as temporary, open_own(temporary, "xb") as file:
        file.write(data)


@contextmanager
def written_whole(path: Path, *, syncs_folder: bool = True) -> Iterator[Path]:
    """Yield a file beside the path, for the block to write; it takes the path's place at the end. A
    block that fails leaves nothing behind.

    Raises:
        RunError: it cannot be written.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    try:
        remove_unfinished(temporary)
        yield temporary
        with temporary.open("r+b") as file:  # Windows syncs what is open for writing
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if syncs_folder:
            sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError, RunError):  # a link or a folder is somebody else's
            remove_unfinished(temporary)


def sync_folder(folder: Path) -> None:
    """Make names durable: a rename is not on the disk before its folder is. Windows cannot, and
    need not: it writes names down before it goes on."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it; after a power cut it is still there.

    Raises:
        OSError: it cannot be made.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def open_own(path: Path, mode: str) -> BinaryIO:
    """Open a file of a run for writing: ``xb`` makes it, ``ab`` and ``a+b`` append, ``r+b`` keeps
    what is there. A link is not followed.

    Raises:
        RunError: a link, a folder or a special file has its name.
        OSError: it cannot be opened for another reason.
    """
    try:
        if path.is_symlink():  # where no flag says so
            raise _not_own(path)
        descriptor = os.open(path, _FLAGS[mode] | _GUARDS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
            raise _not_own(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_own(path)
    return cast(BinaryIO, os.fdopen(descriptor, mode))


def lock(descriptor: int, *, waits: bool = True) -> bool:
    """Lock an open file or folder for this process, after another one that holds it or not at all,
    and return true if that worked. The lock goes with the process, however that ends."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=waits, poll_interval=0.005)


def open_folder(folder: Path) -> int:
    """Return a descriptor to lock a folder by. It is the folder itself, so one that cannot be
    written can be locked, too; on Windows it is a file in it.

    Raises:
        OSError: it cannot be opened.
    """
    if hasattr(os, "O_DIRECTORY"):
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return os.open(folder / FOLDER_LOCK_FILE, os.O_RDWR | os.O_CREAT | _GUARDS, 0o666)


def remove_unfinished(temporary: Path) -> None:
    """Remove what a crash left under the name of a file that is being written.

    Raises:
        RunError: a link, a folder or a special file has that name: no crash left it.
    """
    try:
        mode = temporary.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _not_own(temporary)
    temporary.unlink()


def is_writable(folder: Path) -> bool:
    """Return true if files can be made in a folder."""
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


_FLAGS = {
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "r+b": os.O_RDWR,
}
_GUARDS = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""A link is not followed, a pipe not waited for, and no byte is changed; where there is such a
flag."""


def _not_own(path: Path) -> RunError:
    kind = "a link" if path.is_symlink() else "no plain file"
    return RunError(f"{path} is {kind}, and a run writes to files of its own only: remove it")


@contextmanager
def opened(path: Path, mode: str) -> Iterator[BinaryIO]:
    """Open a file as ``open_own`` does.

    Raises:
        RunError: it cannot be opened, or what the block does with it fails.
    """
    try:
        with open_own(path, mode) as file:
            yield file
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def json_line(record: Mapping[str, object]) -> bytes:
    """Return a line of a log.

    Raises:
        ValueError: a value is NaN, infinite or no plain value.
    """
    return _JSON.encode(record).encode() + b"\n"


def append_lines(path: Path, lines: bytes, *, is_synced: bool = False) -> None:
    """Add whole lines to a log, which half a line that a crash left does not take along. Synced
    ones are on the disk when this returns.

    Raises:
        RunError: they cannot be written.
    """
    with opened(path, "a+b") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        is_torn = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * is_torn + lines)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())


def append_line(path: Path, record: Mapping[str, object]) -> None:
    """Add a JSON object to a log.

    Raises:
        RunError: it cannot be written.
    """
    append_lines(path, json.dumps(record).encode() + b"\n")


def read_lines(
    path: Path, damaged: Callable[[int], object] = lambda number: None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the JSON objects of a log with the numbers of their lines from 1; none where there is
    no file. A line that is no object, such as one that a crash tore, is left out, and its number
    goes to ``damaged``.

    Raises:
        RunError: the log cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(data.splitlines(), 1):
        try:
            record = dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            damaged(number)
            continue
        yield number, record


def content_hash(path: Path) -> str:
    """Return SHA-256 of a file; empty where there is none."""
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file; empty where there is none."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def free_folder(name: str) -> Path:
    """Return ``artifacts/<name>-<n>`` with the first n that is free."""
    number = 1
    while (folder := Path("artifacts") / f"{name}-{number}").exists():
        number += 1
    return folder
