"""Files that come with the package: presets, protocols and data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import did_you_mean


def presets() -> dict[str, Path]:
    """Return every preset by name, such as ``strategy/ecology``: the ``config`` folder of a source
    checkout, or the copy of it inside the wheel."""
    folder = config_folder()
    paths = sorted(folder.rglob("*.yaml"))
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
    prefixes = ("protocols/", "ablations/")
    return {name: path for name, path in files.items() if not name.startswith(prefixes)}


def config_folder() -> Path:
    """Return the folder of presets, protocols and data files: beside the source, or inside the
    wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    return checkout / "config" if (checkout / "pyproject.toml").is_file() else package / "presets"


def find_data(path: Path) -> Path:
    """Return a data file from here; else the one of that name that comes with the package, such as
    ``evaluation/paper_holdout.jsonl``; else the path itself, for whoever opens it to say."""
    shipped = config_folder() / path  # os.path, since a name may be too long for a file
    return shipped if not os.path.exists(path) and os.path.isfile(shipped) else path


def protocols() -> dict[str, Path]:
    """Return every protocol of a comparison by name: the files of ``config/protocols``."""
    return {file.stem: file for file in sorted((config_folder() / "protocols").glob("*.yaml"))}


def find_protocol(name_or_path: str | Path) -> Path:
    """Return the file of a protocol, by its name or its path.

    Raises:
        ConfigError: there is none.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = protocols().get(str(name_or_path)) or _unknown("protocol", name_or_path, protocols())
    if not path.is_file():
        raise ConfigError(f"no protocol file {str(path)!r}")
    return path


def find_preset(name: str) -> Path:
    """Return the file of a preset, by its name or by the last part of it where only one preset has
    that.

    Raises:
        ConfigError: no such preset, or more than one.
    """
    paths = presets()
    if name in paths:
        return paths[name]
    matches = [preset for preset in paths if preset.rpartition("/")[2] == name]
    if len(matches) > 1:
        raise ConfigError(f"preset {name!r} may be any of {', '.join(matches)}: write one of these")
    if not matches and os.path.isdir(name):
        raise ConfigError(
            f"expected a preset or a YAML file, got the folder {name}: symbiont resume {name} goes "
            "on with a run"
        )
    return paths[matches[0]] if matches else _unknown("preset or file", name, paths)


def _unknown(kind: str, name: object, paths: Mapping[str, Path]) -> NoReturn:
    hint = did_you_mean(str(name), [*paths, *(known.rpartition("/")[2] for known in paths)])
    raise ConfigError(f"no {kind} {str(name)!r};{hint} known: {', '.join(paths) or 'none'}")
