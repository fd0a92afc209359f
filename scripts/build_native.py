"""Compiles what the kernel does between its large products: ``extensions/native/cpu_kernels.c``.

The library is written beside its source.

    python scripts/build_native.py

Installing does the same. ``$CC`` names another compiler. Where this fails nothing is lost but
speed: torch does the work.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from symbiont_ecology.extensions.native.compiling import BUILT, SOURCE, compile_library

OLDEST_GLIBC = (2, 17)
"""What a wheel asks for at least. The package index knows no older one by this kind of tag."""


def build() -> str | None:
    """Compiles; returns what stood in the way, if anything did."""
    compiler = os.environ.get("CC")
    return compile_library(BUILT, compilers=[compiler] if compiler else [])


def wheel_tag(library: bytes, machine: str) -> str | None:
    """The tag of a wheel for any Python on Linux that has this library; None if it is not for
    glibc.

    Symbols of glibc have the version that brought them (PEP 600).
    """
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)
    if not versions:
        return None
    major, minor = max(OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in versions))
    return f"py3-none-manylinux_{major}_{minor}_{machine}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class NativeHook(BuildHookInterface):  # type: ignore[misc]
        """Compiles when the package is built or installed, an editable one included."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Puts the library into a wheel for Linux. Without it a wheel is for any machine."""
            if self.target_name != "wheel":
                return
            is_editable = version == "editable"  # it is read from the checkout
            if not is_editable and sys.platform != "linux":
                return
            trouble = build()
            if trouble:
                self.app.display_warning(f"{SOURCE.name} was not compiled: {trouble}")
                return
            tag = wheel_tag(BUILT.read_bytes(), platform.machine())
            if is_editable or tag is None:
                return
            place = f"symbiont_ecology/extensions/native/{BUILT.name}"
            build_data["force_include"][str(BUILT)] = place
            build_data["pure_python"] = False
            build_data["tag"] = tag


if __name__ == "__main__":
    obstacle = build()
    if obstacle:
        sys.exit(f"error: {SOURCE.name} was not compiled: {obstacle}")
    print(
        f"{BUILT.relative_to(Path.cwd()) if BUILT.is_relative_to(Path.cwd()) else BUILT} is built"
    )
