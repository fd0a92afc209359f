"""Where a run comes from: host, data, plug-ins, versions, seed.

A run goes on with the same host and data only. Other versions and plug-ins are warned of: who mends
a plug-in may go on.
"""

import hashlib
import json
import platform
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from omegaconf import OmegaConf

from symbiont_ecology.base.config_layers import parse_yaml
from symbiont_ecology.base.errors import EcologyWarning, HostError, RunError
from symbiont_ecology.base.files import content_hash, holds_other, write_whole
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, dump_config
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks.data import DataTask

PROVENANCE_FILE, PROVENANCE_COPY_FILE = "provenance.json", "provenance.copy.json"
"""The file, and a copy of it for a repair: nothing else says what it says."""
CONFIG, CONFIG_BEFORE, CHECKSUM = "config", "config_before", "config_checksum"
"""Under these keys it names the config as it was written; while another one is being written, the
one before; and a checksum of both."""
CHECKSUM_OF_ALL = "checksum"
"""The key of a checksum of everything else."""


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
        "plugins": _plugin_hashes(config),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": versions(),
    }
    _write(folder, facts, _values(dump_config(config)))


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


def check_versions(config: RunConfig, folder: Path) -> None:
    """Warns of versions and plug-ins that are not those that a run was founded with."""
    facts = read_provenance(folder)
    before = _entries(facts, "packages") | _entries(facts, "plugins")
    now = versions() | _plugin_hashes(config)
    changed = {name: v for name, v in now.items() if before.get(name, v) != v}
    if changed:
        old = ", ".join(f"{name} {before[name]}" for name in changed)
        new = ", ".join(f"{name} {version}" for name, version in changed.items())
        warnings.warn(
            f"{folder} was founded with {old}, this is {new}: it may not go on bit by bit",
            EcologyWarning,
            stacklevel=2,
        )


def write_config(config: RunConfig, path: Path) -> None:
    """Writes ``config.yaml``. The provenance of a run that is founded names it too: by that an edit
    by hand is found. Between the two files a crash leaves both values there.

    Raises:
        RunError: a file cannot be written, or the provenance is damaged.
    """
    folder, text = path.parent, dump_config(config)
    if path.is_file() and path.read_bytes() == text.encode():
        return
    facts = read_provenance(folder) if (folder / PROVENANCE_FILE).exists() else {}
    before, values = facts.get(CONFIG), _values(text)
    is_other = before not in (None, values)
    if is_other:
        _write(folder, facts, values, before)
    write_whole(path, text)
    if is_other:
        _write(folder, facts, values)


def keep_copy(folder: Path) -> None:
    """Writes the copy of a provenance, unless it is there.

    Raises:
        RunError: it cannot be written.
    """
    data, copy = (folder / PROVENANCE_FILE).read_bytes(), folder / PROVENANCE_COPY_FILE
    if holds_other(copy, data) or not copy.exists():
        write_whole(copy, data)


def edited_keys(path: Path) -> dict[str, tuple[object, object]]:
    """The keys of ``config.yaml`` that were edited by hand: their values as written, and as they
    are.

    Raises:
        RunError: the provenance is damaged.
        ConfigError: the config is no YAML.
    """
    configs, now = _known_configs(path.parent), _values(path.read_text(encoding="utf-8"))
    if now in configs:
        return {}
    old, new = dict(_flat(configs[0])), dict(_flat(now))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def check_provenance(path: Path) -> None:
    """Whether a provenance, or its copy, is as it was written down.

    Raises:
        RunError: it is not.
    """
    facts = _read(path)
    if "host" not in facts:
        raise RunError(f"{path} names no host")
    _configs_of(facts, path)
    if facts.get(CHECKSUM_OF_ALL) != _checksum_of_all(facts):
        raise RunError(f"{path} is damaged or was edited: it does not match its checksum")


def restore_provenance(folder: Path) -> None:
    """Writes ``provenance.json`` again as its copy has it, which is whole.

    Raises:
        RunError: it cannot be written.
    """
    write_whole(folder / PROVENANCE_FILE, (folder / PROVENANCE_COPY_FILE).read_bytes())


def restore_config(path: Path) -> None:
    """Writes ``config.yaml`` as the provenance names it.

    Raises:
        RunError: the provenance is damaged, or the file cannot be written.
    """
    config, *_ = _known_configs(path.parent)
    write_whole(path, str(OmegaConf.to_yaml(config)))


def read_provenance(folder: Path) -> dict[str, object]:
    """What is written down of where a run comes from.

    Raises:
        RunError: the file is missing or damaged.
    """
    return _read(folder / PROVENANCE_FILE)


def _read(path: Path) -> dict[str, object]:
    try:
        return dict(json.loads(path.read_bytes()))
    except OSError as error:
        fault = f"cannot read {path}: {error.strerror}"
        raise RunError(f"{fault}: {_mend(path)}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: expected a JSON object: {_mend(path)}") from error


def _mend(path: Path) -> str:
    return f"symbiont verify {path.parent} --repair writes it again from its copy"


def _founded_with(folder: Path, key: str) -> object:
    """The host or the data of a run, as its provenance names them."""
    facts = read_provenance(folder)
    if key not in facts:
        raise RunError(
            f"{folder / PROVENANCE_FILE} does not say which {key} the run was founded with"
        )
    return facts[key]


def _entries(facts: Mapping[str, object], key: str) -> dict[str, str]:
    """The versions or plug-ins that a provenance names; none if it does not."""
    value = facts.get(key)
    return {str(name): str(v) for name, v in value.items()} if isinstance(value, dict) else {}


def _plugin_hashes(config: RunConfig) -> dict[str, str]:
    return {plugin: content_hash(Path(plugin)) for plugin in config.plugins}


def _known_configs(folder: Path) -> list[dict[str, object]]:
    """The config as it was written, and the one before it where a crash came between the two.

    Raises:
        RunError: they do not match their checksum.
    """
    return _configs_of(read_provenance(folder), folder / PROVENANCE_FILE)


def _configs_of(facts: Mapping[str, object], path: Path) -> list[dict[str, object]]:
    values, before = facts.get(CONFIG), facts.get(CONFIG_BEFORE)
    if not isinstance(values, dict) or facts.get(CHECKSUM) != _checksum(values, before):
        raise RunError(
            f"{path} is damaged or was edited: the config that it names does not match its "
            f"checksum: {_mend(path)}"
        )
    return [dict(config) for config in (values, before) if isinstance(config, dict)]


def _write(
    folder: Path, facts: Mapping[str, object], values: object, before: object = None
) -> None:
    """Writes facts, and a config, with their checksums; and a copy of all that."""
    rest = {key: fact for key, fact in facts.items() if key != CONFIG_BEFORE}
    configs = {CONFIG: values} | ({} if before is None else {CONFIG_BEFORE: before})
    facts = rest | configs | {CHECKSUM: _checksum(values, before)}
    text = json.dumps(facts | {CHECKSUM_OF_ALL: _checksum_of_all(facts)}, indent=1) + "\n"
    for name in (PROVENANCE_FILE, PROVENANCE_COPY_FILE):
        write_whole(folder / name, text)


def _checksum(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _checksum_of_all(facts: Mapping[str, object]) -> str:
    return _checksum({key: fact for key, fact in facts.items() if key != CHECKSUM_OF_ALL})


def _values(text: str) -> dict[str, object]:
    """A config as plain values, as JSON has them."""
    return dict(json.loads(json.dumps(parse_yaml(text, "config.yaml"))))


def _flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """The values of a config by their keys, such as ``run.generations``."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


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
