"""Where a host is on this machine: shipped, a folder, of the hub, or of a source that an extension
registers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from symbiont_ecology.base.errors import HostError, lines_of
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.model.fields import expect

EMBEDDED = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "embedded" / "model"
MODEL_CONFIG_FILE = "config.json"
Tell = Callable[[str], None]
"""Takes one line on what happens now."""


class HostSource(Protocol):
    """Hosts that are no folders, such as GGUF files."""

    names: tuple[str, ...]
    """Names of hosts, for messages."""

    def knows(self, name: str) -> bool:
        """Return whether a name is of this source."""

    def missing(self, name: str) -> str:
        """Return what was expected, what was found and what to do, if the host is not on this
        machine."""

    def folder(self, name: str) -> Path | None:
        """Return the folder of a host that is on this machine as a folder."""

    def bring(self, name: str, tell: Tell) -> Path:
        """Return the folder of a host, made or downloaded if need be.

        Raises:
            HostError: it cannot be made.
        """


host_sources: Registry[HostSource] = Registry("host source", __name__)


def check_is_here(name_or_path: str | Path) -> None:
    """Looks whether a host can be found, without reading it and without the network; a name on the
    hub may be anywhere.

    Raises:
        HostError: it is not here.
    """
    name, source = str(name_or_path), _source_of(name_or_path)
    if name == EMBEDDED:
        expect(
            EMBEDDED_FOLDER.is_dir(),
            f"the embedded host in {EMBEDDED_FOLDER}, found no such folder: reinstall the package",
        )
    elif source is not None:
        missing = source.missing(name)
        expect(not missing, missing)
    elif not os.path.isdir(_path_of(name_or_path)):
        sources = [host_sources.build(kind) for kind in host_sources.names()]
        names = [EMBEDDED, *(name for source in sources for name in source.names)]
        other = "" if sources else "; models of packages and GGUF files need the extension hosts"
        expect(
            name.count("/") == 1 and not name.startswith((".", "/", "~")),
            f"a host model folder, found no folder {name!r:.300}: check the path, or choose one of "
            f"{', '.join(names)}{other}",
        )


def local_folder(name_or_path: str | Path) -> Path | None:
    """The folder of a host that is on this machine as a folder; None for all others, such as a name
    on the hub or a GGUF file."""
    name, source = str(name_or_path), _source_of(name_or_path)
    if name == EMBEDDED:
        return EMBEDDED_FOLDER
    folder = _path_of(name_or_path) if source is None else source.folder(name)
    return folder if folder is not None and os.path.isdir(folder) else None


def find_folder(name_or_path: str | Path, tell: Tell = lambda line: None) -> Path:
    """The local folder of a host. A GGUF file is converted once, a model of the hub is downloaded
    once; ``tell`` hears of the first.

    Raises:
        HostError: there is no such host (or the hub is out of reach).
    """
    check_is_here(name_or_path)
    if (folder := local_folder(name_or_path)) is not None:
        return folder
    source = _source_of(name_or_path)
    return bring(name_or_path, tell) if source else _from_hub(str(name_or_path))


def bring(name_or_path: str | Path, tell: Tell) -> Path:
    """Return the folder of a host, made or downloaded first if an extension knows how.

    Raises:
        HostError: it cannot be made, or there is no such host.
    """
    source = _source_of(name_or_path)
    return source.bring(str(name_or_path), tell) if source else find_folder(name_or_path)


def weights_folder(name_or_path: str | Path) -> Path | None:
    """Return the folder of a host whose weights are on this machine, of the hub's cache too; None
    for all others."""
    folder, name = local_folder(name_or_path), str(name_or_path)
    try:
        if folder is None and _source_of(name) is None:
            folder = _from_hub(name, may_fetch=False)
    except HostError:
        return None
    return folder if folder and any(folder.glob("*.safetensors")) else None


def _from_hub(name: str, *, may_fetch: bool = True) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        files = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
        return Path(snapshot_download(name, allow_patterns=files, local_files_only=not may_fetch))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError) as error:
        raise HostError(
            f"expected a folder or a model of the Hugging Face hub, got {name!r:.300}: check the "
            f"name, or download it first and give its folder ({lines_of(error)[0]:.300})"
        ) from error


def _source_of(name_or_path: str | Path) -> HostSource | None:
    sources = (host_sources.build(kind) for kind in host_sources.names())
    return next((source for source in sources if source.knows(str(name_or_path))), None)


def _path_of(name_or_path: str | Path) -> Path:
    """As a path, which may be no path at all: ``os.path`` finds nothing there, ``Path`` fails."""
    return Path(os.path.expanduser(name_or_path))
