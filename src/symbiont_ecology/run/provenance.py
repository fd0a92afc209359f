"""Provenance of a run: host, data, plug-ins, versions, config.

A run goes on with the same host and data only. Other versions and plug-ins are warned of: who mends
a plug-in may go on.
"""

import hashlib
import json
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from symbiont_ecology.base.config_layers import parse_yaml
from symbiont_ecology.base.errors import EcologyWarning, HostError, RunError
from symbiont_ecology.base.files import content_hash, write_whole
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, dump_config
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks.data import DataTask

PROVENANCE_FILE = "provenance.json"
CONFIG, CHECKSUM = "config", "checksum"
"""Keys of the config as it was written, and of a checksum of everything else."""
MAX_NAMED_KEYS = 3
"""Keys that an error names."""


def write_provenance(config: RunConfig, folder: Path, host: Host) -> None:
    """Write where a run comes from.

    Raises:
        RunError: it cannot be written.
    """
    facts = {
        "host": host.fingerprint(),
        "data": {task.name: task.digest for task in _data_tasks(config)},
        "plugins": _plugin_hashes(config),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": versions(),
        CONFIG: _values(dump_config(config)),
    }
    _write(folder, facts)


def read_provenance(path: Path) -> dict[str, Any]:
    """Return what is written down of where a run comes from.

    Raises:
        RunError: the file is missing, damaged, or was edited.
    """
    try:
        facts = dict(json.loads(path.read_bytes()))
        if facts.get(CHECKSUM) != _checksum(facts):
            raise ValueError
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}: bring back a copy") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged or was edited: bring back a copy") from error
    return facts


def check_host(folder: Path, host: Host) -> str:
    """Return the fingerprint of a host; refuse one that a run was not founded with.

    Raises:
        HostError: the base weights differ.
        RunError: the run does not say what its host was.
    """
    founded = read_provenance(folder / PROVENANCE_FILE)["host"]
    fingerprint = host.fingerprint()
    if founded != fingerprint:
        raise HostError(
            f"the run in {folder} was founded on host {founded}, this one is {fingerprint}: "
            "bring back the model it was founded with"
        )
    return fingerprint


def check_data(config: RunConfig, folder: Path) -> None:
    """Refuse data files that are not what a run was founded with; nothing is loaded but the data.

    Raises:
        RunError: lines changed, came or went.
    """
    path = folder / PROVENANCE_FILE
    digests = read_provenance(path)["data"] if path.exists() else {}
    for task in _data_tasks(config) if digests else ():
        if digests.get(task.name) != task.digest:
            raise RunError(
                f"{task.source} is not what the run in {folder} was founded with: bring the old "
                "lines back, or start a new run"
            )


def check_versions(config: RunConfig, folder: Path) -> None:
    """Warn of versions and plug-ins that are not those that a run was founded with."""
    facts = read_provenance(folder / PROVENANCE_FILE)
    before = facts["packages"] | facts["plugins"]
    now = versions() | _plugin_hashes(config)
    changed = [
        f"{name} {before[name]}, this is {name} {version}"
        for name, version in now.items()
        if before.get(name, version) != version
    ]
    if changed:
        line = f"{folder} was founded with {'; '.join(changed)}: it may not go on bit by bit"
        warnings.warn(line, EcologyWarning, stacklevel=2)


def write_config(config: RunConfig, path: Path) -> None:
    """Write ``config.yaml``. The provenance of a run that is founded names it too: by that an edit
    by hand is found.

    Raises:
        RunError: a file cannot be written, or the provenance is damaged.
    """
    text, provenance = dump_config(config), path.with_name(PROVENANCE_FILE)
    write_whole(path, text)
    if provenance.exists():
        _write(path.parent, read_provenance(provenance) | {CONFIG: _values(text)})


def check_not_edited(path: Path, but_for: Iterable[str] = ()) -> None:
    """Refuse a ``config.yaml`` that was edited by hand, but for keys that are set anew.

    Raises:
        RunError: it was, the keys are named; or the provenance is damaged.
        ConfigError: the config is no YAML.
    """
    written = read_provenance(path.with_name(PROVENANCE_FILE))[CONFIG]
    old, new = dict(_flat(written)), dict(_flat(_values(path.read_text(encoding="utf-8"))))
    shown = [
        f"{key} was {old.get(key)!r:.60}, is {new.get(key)!r:.60}"
        for key in sorted((old.keys() | new.keys()).difference(but_for))
        if old.get(key) != new.get(key)
    ]
    if shown:
        raise RunError(
            f"{path} was edited by hand: {'; '.join(shown[:MAX_NAMED_KEYS])}: put back what was "
            f"written; another end is typed, such as symbiont resume {path.parent} "
            "run.generations=50"
        )


def _plugin_hashes(config: RunConfig) -> dict[str, str]:
    return {plugin: content_hash(Path(plugin)) for plugin in config.plugins}


def _write(folder: Path, facts: Mapping[str, object]) -> None:
    text = json.dumps({**facts, CHECKSUM: _checksum(facts)}, indent=1) + "\n"
    write_whole(folder / PROVENANCE_FILE, text)


def _checksum(facts: Mapping[str, object]) -> str:
    """Return the checksum of everything but a checksum; of a list, as it was once written."""
    rest = {key: fact for key, fact in facts.items() if key != CHECKSUM}
    return hashlib.sha256(json.dumps([rest], sort_keys=True).encode()).hexdigest()[:16]


def _values(text: str) -> dict[str, object]:
    """Return a config as plain values, as JSON has them."""
    return dict(json.loads(json.dumps(parse_yaml(text, "config.yaml"))))


def _flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a config by their keys, such as ``run.generations``."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _data_tasks(config: RunConfig) -> tuple[DataTask, ...]:
    """Return the tasks of a config that are data of one's own."""
    return tuple(task for task in mixture(config).tasks if isinstance(task, DataTask))


def versions() -> dict[str, str]:
    """Return what results may depend on, beside the config; ``source`` is a hash of the package's
    own code."""
    packages = ("symbiont-ecology", "torch", "transformers", "numpy")
    return {name: _version(name) for name in packages} | {"source": source()}


@cache
def source() -> str:
    """Return a hash of every Python and C file of the package, names and contents."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(path for kind in ("*.py", "*.c") for path in root.rglob(kind)):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
