"""Where a run comes from: host, data, versions, seed. A run goes on with the same ones only."""

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import HostError, RunError
from symbiont_ecology.files import content_hash, write_whole
from symbiont_ecology.tasks.data import DataTask

PROVENANCE_FILE = "provenance.json"


def write_provenance(config: RunConfig, folder: Path, host: Host) -> None:
    """Writes where a run comes from.

    Raises:
        RunError: it cannot be written.
    """
    facts = {
        "host": host.fingerprint(),
        "model": config.host.model,
        "seed": config.seed,
        "data": {task.name: task.digest for task in data_tasks(config)},
        "plugins": {plugin: content_hash(Path(plugin)) for plugin in config.plugins},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": versions(),
    }
    write_whole(folder / PROVENANCE_FILE, json.dumps(facts, indent=1) + "\n")


def check_host(folder: Path, host: Host) -> str:
    """The fingerprint of a host; refuses one that is not the one that a run was founded with.

    Raises:
        HostError: the base weights differ.
        RunError: the run does not say what its host was.
    """
    founded, fingerprint = _founded_with(folder, "host"), host.fingerprint()
    if founded != fingerprint:
        raise HostError(
            f"the run in {folder} was founded on host {founded}, this one is {fingerprint}: "
            "bring back the model it was founded with"
        )
    return fingerprint


def check_data(config: RunConfig, folder: Path) -> None:
    """Refuses data files that are not what a run was founded with; nothing is loaded but the data.

    Raises:
        RunError: lines changed, came or went.
    """
    data = data_tasks(config)
    if not data or not (folder / PROVENANCE_FILE).exists():
        return
    digests = _founded_with(folder, "data")
    for task in data:
        if not isinstance(digests, dict) or digests.get(task.name) != task.digest:
            raise RunError(
                f"{task.source} is not what the run in {folder} was founded with: bring the old "
                "lines back, or start a new run"
            )


def _founded_with(folder: Path, what: str) -> object:
    """The host or the data of a run, as its provenance names them."""
    path = folder / PROVENANCE_FILE
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))[what]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} does not say which {what} the run was founded with") from error


def data_tasks(config: RunConfig) -> tuple[DataTask, ...]:
    """The tasks of a config that are data of one's own."""
    return tuple(task for task in mixture(config).tasks if isinstance(task, DataTask))


def versions() -> dict[str, str]:
    """What results may depend on, beside the config; ``source`` is a hash of this package's own
    code."""
    packages = ("symbiont-ecology", "torch", "transformers", "numpy")
    return {name: _version(name) for name in packages} | {"source": source()}


@cache
def source() -> str:
    """Hash of every Python and C file of the package, names and contents."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(path for kind in ("*.py", "*.c") for path in root.rglob(kind)):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
