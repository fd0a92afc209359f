"""Whether an adapter belongs to a host, by the names and sizes in their files: no weight of the
host is read."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from symbiont_ecology.adapters.peft_files import adapter_modules, check_module_size
from symbiont_ecology.base.errors import AdapterError
from symbiont_ecology.model.locating import check_is_here, local_folder


def check_adapter_fits(adapter: Path, host: str) -> None:
    """Reads the adapter as far as that goes without a host, and compares it with the host's files.

    What cannot be found out there, as of a host on the hub, is left to the loading of the host.

    Raises:
        AdapterError: the adapter is damaged, or was made for another host.
        HostError: there is no such host.
    """
    modules = adapter_modules(adapter)
    check_is_here(host)
    folder = local_folder(host)
    shapes = {} if folder is None else _shapes(folder)
    host_shapes = {module: _find(module, shapes) for module in modules}
    if not any(host_shapes.values()):
        return
    for module, (d_in, d_out) in modules.items():
        shape = host_shapes[module]
        if shape is None:
            raise AdapterError(
                f"expected modules of the host {host}, got {module!r} in {adapter}: name the host "
                "that it was made for with --host"
            )
        # Some hosts store their weights as (d_in, d_out): both orders are right.
        if sorted(shape) != sorted((d_in, d_out)):
            check_module_size(module, (d_in, d_out), (shape[1], shape[0]), adapter)


def _shapes(folder: Path) -> dict[str, tuple[int, int]]:
    """Shapes of all matrices in the host's files, by module; nothing of a damaged file."""
    shapes: dict[str, tuple[int, int]] = {}
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                for key in file.keys():  # noqa: SIM118 (it is no mapping)
                    shape = file.get_slice(key).get_shape()
                    if len(shape) == 2:
                        shapes[key.removesuffix(".weight")] = (shape[0], shape[1])
        except (SafetensorError, OSError):
            return {}  # loading says what is wrong
    return shapes


def _find(module: str, shapes: dict[str, tuple[int, int]]) -> tuple[int, int] | None:
    """The shape of a module, which the files may know without the first words of its name."""
    while module not in shapes:
        _, dot, module = module.partition(".")
        if not dot:
            return None
    return shapes[module]
