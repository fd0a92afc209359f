"""Files that come with the package: presets, protocols and data."""

from __future__ import annotations

import os
from pathlib import Path

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
        paths = protocols()
        if str(name_or_path) not in paths:
            hint = did_you_mean(str(name_or_path), paths)
            raise ConfigError(
                f"no protocol {str(name_or_path)!r};{hint} known: {', '.join(paths) or 'none'}"
            )
        path = paths[str(name_or_path)]
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
        is_run = os.path.isfile(os.path.join(name, "config.yaml"))
        todo = f"; symbiont resume {name} goes on with the run in it" if is_run else ""
        raise ConfigError(f"expected a preset or a YAML file, got the folder {name}{todo}")
    if not matches:
        hint = did_you_mean(name, [*paths, *(preset.rpartition("/")[2] for preset in paths)])
        raise ConfigError(
            f"no preset or file {name!r};{hint} known presets: {', '.join(paths) or 'none'}"
        )
    return paths[matches[0]]
