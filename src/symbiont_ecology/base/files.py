"""Files that are there whole or not at all, and logs that a crash may have torn.

Order on the disk: the bytes of a file come before its name, and its name before whatever relies on
it. Nothing is ever written through a link: a run writes to files of its own only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from symbiont_ecology.base.errors import RunError

Stamp = tuple[int, ...]
"""Changes when a file does."""
FOLDER_LOCK_FILE = "folder.lock"
UNFINISHED, REMOVED = ".new", ".removed"
"""The ending of a file that is being written, and of a folder that is being removed."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file by atomic rename: who is killed meanwhile leaves what was there before, and
    after a power cut either the old or the new content is there.

    Raises:
        RunError: it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with written_whole(path) as temporary, open_own(temporary, "xb") as file:
        file.write(data)


def holds_other(path: Path, content: str | bytes) -> bool:
    """Whether something else has the name of a file that is to be written. Who is killed may type a
    command again: what it has written already is in nobody's way."""
    data = content.encode() if isinstance(content, str) else content
    return path.exists() and not (path.is_file() and path.read_bytes() == data)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file beside the path, for the block to write; it takes the path's place at the end. A block
    that fails leaves nothing behind.

    Raises:
        RunError: it cannot be written.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    try:
        remove_unfinished(temporary)
        yield temporary
        replace_durably(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError, RunError):  # a link or a folder is somebody else's
            remove_unfinished(temporary)


@contextmanager
def folder_made_whole(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder for the block to fill; at the end it takes the place of the folder,
    which is new or empty. What a killed process left of it is removed first.

    Raises:
        RunError: it cannot be written.
    """
    half = folder.with_name(f".{folder.name}{UNFINISHED}")
    shutil.rmtree(half, ignore_errors=True)  # a link is not followed, and stands in the way
    try:
        make_folder(half.parent)
        half.mkdir()
        yield half
        half.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(half, ignore_errors=True)


def replace_durably(temporary: Path, path: Path) -> None:
    """A file takes the path's place once its bytes are on the disk. Its name is there after
    ``sync_folder``, which may serve many files."""
    with temporary.open("r+b") as file:  # Windows syncs what is open for writing
        os.fsync(file.fileno())
    os.replace(temporary, path)


def sync_folder(folder: Path) -> None:
    """Makes names durable: a rename is not on the disk before its folder is. Windows cannot, and
    need not: it writes names down before it goes on."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and what is missing above it; after a power cut it is still there.

    Raises:
        OSError: it cannot be made.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def remove_folder(folder: Path) -> None:
    """Removes a folder that nobody is to see half of: it is hidden first.

    Raises:
        OSError: it cannot be removed.
    """
    hidden = folder.with_name(f".{folder.name}{REMOVED}")
    if hidden.exists():
        shutil.rmtree(hidden)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def remove_rests(place: Path) -> list[str]:
    """Removes what is left of folders that a killed process was removing; their former names.

    Raises:
        OSError: something cannot be removed.
    """
    rests = [path for path in sorted(place.glob(f".?*{REMOVED}")) if not path.is_symlink()]
    for path in rests:
        shutil.rmtree(path)
    return [path.name.removeprefix(".").removesuffix(REMOVED) for path in rests]


def open_own(path: Path, mode: str) -> BinaryIO:
    """Opens a file of a run for writing: ``xb`` makes it, ``ab`` and ``a+b`` append, ``r+b`` keeps
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
    """Whether this process is the one that holds an open file or folder; it waits for another one
    that does, or not. The lock goes with the process, however that ends."""
    from filelock import lock_descriptor

    return lock_descriptor(descriptor, blocking=waits, poll_interval=0.005)


def open_folder(folder: Path) -> int:
    """A descriptor to lock a folder by. It is the folder itself, so one that cannot be written can
    be locked, too; on Windows it is a file in it.

    Raises:
        OSError: it cannot be opened.
    """
    if hasattr(os, "O_DIRECTORY"):
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return os.open(folder / FOLDER_LOCK_FILE, os.O_RDWR | os.O_CREAT | _GUARDS, 0o666)


def remove_unfinished(temporary: Path) -> None:
    """Removes what a crash left under the name of a file that is being written.

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
    """Whether files can be made in a folder: not on a disk that is read-only, for example."""
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


def ignore_line(number: int) -> None:
    """Says nothing of a damaged line."""


def read_lines(
    path: Path, damaged: Callable[[int], None] = ignore_line
) -> Iterator[tuple[int, dict[str, object]]]:
    """The JSON objects of a log, with the numbers of their lines from 1. A line that is none, such
    as one that a crash tore, is left out and told to ``damaged``.

    Raises:
        RunError: it cannot be read.
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


def append_line(path: Path, record: Mapping[str, object], *, is_synced: bool = False) -> None:
    """Adds a JSON object to a log; half a line that a crash left does not take it along.

    With ``is_synced`` it is on the disk when this returns.

    Raises:
        RunError: it cannot be written.
    """
    try:
        with open_own(path, "a+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * is_torn + json.dumps(record).encode() + b"\n")
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def content_hash(path: Path) -> str:
    """Of a file, or of the adapter in a PEFT folder; empty where there is none."""
    parts = sorted(path.glob("adapter_*")) if path.is_dir() else [path] if path.is_file() else []
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest() if parts else ""


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file; empty where there is none."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def free_folder(name: str) -> Path:
    """``artifacts/<name>-<n>`` with the first n that is free."""
    number = 1
    while (folder := Path("artifacts") / f"{name}-{number}").exists():
        number += 1
    return folder
