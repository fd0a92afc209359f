"""Where a host is on this machine: shipped, from a package, a folder, a GGUF file, of the hub."""

from __future__ import annotations

import os
from pathlib import Path

from symbiont_ecology.errors import HostError, lines_of
from symbiont_ecology.host.fields import expect
from symbiont_ecology.host.packaged import FACTS_FILE, PACKAGED, Tell, packaged_folder

EMBEDDED = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "embedded" / "model"
GGUF_ENDING = ".gguf"
MODEL_CONFIG_FILE = "config.json"


def check_is_here(name_or_path: str | Path) -> None:
    """Looks whether a host can be found, without reading it and without the network; a name on the
    hub may be anywhere.

    Raises:
        HostError: it is not here.
    """
    name, path = str(name_or_path), _path_of(name_or_path)
    if name in PACKAGED:
        host = PACKAGED[name]
        expect(
            (packaged_folder(name) / FACTS_FILE).is_file(),
            f"the host {name} on this machine, found none: symbiont host get {name} "
            f"({host.megabytes} MB, {host.licence})",
        )
    elif name == EMBEDDED:
        expect(
            EMBEDDED_FOLDER.is_dir(),
            f"the embedded host in {EMBEDDED_FOLDER}, found no such folder: reinstall the package",
        )
    elif path.suffix == GGUF_ENDING:
        expect(os.path.isfile(path), f"a GGUF file, found none in {name!r:.300}: check the path")
    elif not os.path.isdir(path):
        expect(
            name.count("/") == 1 and not name.startswith((".", "/", "~")),
            f"a host model folder, found no folder {name!r:.300}: check the path, or choose one of "
            f"{EMBEDDED}, {', '.join(PACKAGED)}",
        )


def local_folder(name_or_path: str | Path) -> Path | None:
    """The folder of a host that is on this machine as a folder; None for all others, such as a name
    on the hub or a GGUF file."""
    name = str(name_or_path)
    if name == EMBEDDED:
        return EMBEDDED_FOLDER
    folder = packaged_folder(name) if name in PACKAGED else _path_of(name_or_path)
    return folder if os.path.isdir(folder) else None


def find_folder(name_or_path: str | Path, tell: Tell = lambda line: None) -> Path:
    """The local folder of a host. A GGUF file is converted once, a model of the hub is downloaded
    once; ``tell`` hears of the first.

    Raises:
        HostError: there is no such host (or the hub is out of reach).
    """
    check_is_here(name_or_path)
    if (folder := local_folder(name_or_path)) is not None:
        return folder
    path = _path_of(name_or_path)
    if path.suffix == GGUF_ENDING:
        from symbiont_ecology.host.gguf_files import converted

        return converted(path, tell)
    return _from_hub(str(name_or_path))


def weights_folder(name_or_path: str | Path) -> Path | None:
    """Return the folder of a host whose weights are on this machine, of the hub's cache too; None
    for all others."""
    folder, name = local_folder(name_or_path), str(name_or_path)
    try:
        if folder is None and _path_of(name).suffix != GGUF_ENDING:
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


def _path_of(name_or_path: str | Path) -> Path:
    """As a path, which may be no path at all: ``os.path`` finds nothing there, ``Path`` fails."""
    return Path(os.path.expanduser(name_or_path))
