"""Configs as layers of plain values: YAML files that extend each other, and overrides. Nothing here
knows what the keys mean; ``config`` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped, unused-ignore]

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import did_you_mean, with_new_names
from symbiont_ecology.base.removed import ADVICE, REMOVED_KEYS, RENAMED_KEYS, RENAMED_TASK_KEYS
from symbiont_ecology.base.shipped import find_preset, presets
from symbiont_ecology.base.untrusted import check_depth, read_regular

MAX_CONFIG_MB, MAX_FILE_NAME_CHARS = 1, 1000
"""Of a file, and characters of the name of one."""


def read_layers(name_or_path: str | Path) -> dict[str, object]:
    """The values of a preset or file, with everything that it extends merged below it; not yet
    checked."""
    return _compose(_find(str(name_or_path), None), ())


def host_layer(name: str) -> dict[str, Any]:
    """Return what a host brings by its name: all that its preset says, or the model of that name
    alone."""
    preset = f"host/{name}"
    return read_layers(preset) if preset in presets() else {"host": {"model": name}}


def has_host_preset(model: str) -> bool:
    """Return True for a model that a preset of a host names."""
    hosts = [name.partition("/")[2] for name in presets() if name.startswith("host/")]
    return any(host_layer(host)["host"]["model"] == model for host in hosts)


def config_name(name_or_path: str | Path) -> str:
    """Return the name of a config: its preset, or its file without the ending."""
    path = Path(name_or_path)
    return path.stem if path.suffix in (".yaml", ".yml") else path.name


def merge(base: Mapping[str, object], update: Mapping[str, object]) -> dict[str, object]:
    """``update`` over ``base``: mappings merge key by key, anything else replaces; neither is
    changed."""
    return {**base, **{key: _merge_value(base.get(key), value) for key, value in update.items()}}


def parse_override(override: str) -> dict[str, object]:
    """``run.generations=8`` as nested values, to be merged over others.

    Raises:
        ConfigError: it has another form.
    """
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override {override!r}: expected key.subkey=value")
    data = parse_yaml(f"value: {value}", f"override {override!r}")
    if not isinstance(data, dict) or list(data) != ["value"]:
        raise ConfigError(f"override {override!r}: expected one value")
    nested: object = data["value"]
    for part in reversed(parts[1:]):
        nested = {part: nested}
    return {parts[0]: nested}


def parse_yaml(text: str, where: str) -> object:
    """YAML as plain values. OmegaConf's reader knows that 3e-4 is a number and refuses a key given
    twice.

    Raises:
        ConfigError: it is no YAML, or refers to other values; ``where`` begins the message.
    """
    if "${" in text:
        # It could read environment variables, which neither decide a run nor belong in its record.
        raise ConfigError(
            f"{where}: '${{' is refused, a config cannot refer to other values: write the value"
        )
    try:
        value = OmegaConf.to_container(OmegaConf.load(StringIO(text)), resolve=False)
        check_depth(value)
        return value
    except RecursionError:
        raise ConfigError(f"{where}: not valid YAML: nested too deep") from None
    # OSError is its word for a lone scalar; a number may have too many digits to be read.
    except (YAMLError, OmegaConfBaseException, OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def with_known_keys(data: Mapping[str, object], where: str) -> dict[str, object]:
    """The same with keys under their new names, each old one at the cost of a warning, and with a
    host that is a name alone (``host: smollm2``) as its preset, or as the name of a model."""
    values = _without_removed(with_new_names(data, RENAMED_KEYS, where), where)
    if isinstance(tasks := values.get("tasks"), Mapping):
        values["tasks"] = with_new_names(tasks, RENAMED_TASK_KEYS, f"{where}: tasks")
    if not isinstance(host := values.get("host"), str):
        return values
    del values["host"]
    return merge(host_layer(host), values)


def _without_removed(values: dict[str, object], where: str) -> dict[str, object]:
    """Return the values without keys that are gone, which may have no other value than always."""
    for section, usual in REMOVED_KEYS.items():
        if not isinstance(parts := values.get(section), Mapping):
            continue
        for key in usual.keys() & parts.keys():
            if parts[key] != usual[key]:
                raise ConfigError(f"{where}: the key '{section}.{key}' is gone: {ADVICE}")
        values[section] = {key: part for key, part in parts.items() if key not in usual}
        if not values[section]:
            del values[section]
    return values


def _merge_value(old: object, new: object) -> object:
    if isinstance(new, Mapping):
        if isinstance(old, str):  # a component by name, whose fields come now
            old = {"kind": old}
        if isinstance(old, Mapping) and new.get("kind", old.get("kind")) == old.get("kind"):
            return merge(old, new)
        return dict(new)
    if isinstance(old, Mapping) and isinstance(new, str) and new == old.get("kind"):
        return old  # the kind that it is already, so its fields still hold
    return new


def _compose(path: Path, children: tuple[Path, ...]) -> dict[str, object]:
    """The data of a file with everything that it extends merged below it."""
    if path in children:
        chain = " -> ".join(file.name for file in (*children[children.index(path) :], path))
        raise ConfigError(f"config {path}: extends itself: {chain}")
    data = with_known_keys(_read(path), f"config {path}")
    parents = data.pop("extends", [])
    if isinstance(parents, str):
        parents = [parents]
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise ConfigError(f"config {path}: extends: expected a list of names, got {parents!r}")
    composed: dict[str, object] = {}
    for parent in parents:
        composed = merge(composed, _compose(_find(parent, path), (*children, path)))
    return merge(composed, data)


def _find(name: str, child: Path | None) -> Path:
    """A file beside the one that extends it, else a preset. On the command line, a file ends in
    .yaml."""
    if len(name) > MAX_FILE_NAME_CHARS or "\0" in name:
        raise ConfigError(f"config {name!r:.60}: expected the name of a preset or a file")
    path = Path(name) if child is None else child.parent / name
    is_file_name = path.suffix in (".yaml", ".yml")
    if child is not None and not is_file_name:
        path = Path(f"{path}.yaml")
    # A file never means itself, so experiments/base.yaml can extend the preset base.
    is_file = os.path.isfile(path)  # which a name that is too long for a file is not
    if path.suffix in (".yaml", ".yml") and is_file and path.resolve() != child:
        return path.resolve()
    if is_file_name:
        hint = did_you_mean(path.name, (file.name for file in path.parent.glob("*.y*ml")))
        raise ConfigError(
            f"no config file {str(path)!r};{hint} a preset is named without its ending"
        )
    return find_preset(name)


def _read(path: Path) -> dict[str, object]:
    try:
        text = read_regular(path, MAX_CONFIG_MB)
    except (OSError, ValueError) as error:
        raise ConfigError(f"config {path}: cannot be read ({error})") from error
    data = parse_yaml(text, f"config {path}")
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"config {path}: expected keys with values, got {data!r:.60}")
    return data
