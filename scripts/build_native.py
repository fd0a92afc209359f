"""Compiles what the kernel does between its large products: ``host/backend/cpu_kernels.c``.

The library is written beside its source.

    python scripts/build_native.py

Installing does the same. Without a C compiler nothing is lost but speed: torch computes what it
would.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "src" / "symbiont_ecology" / "host" / "backend"
SOURCE, BUILT = FOLDER / "cpu_kernels.c", FOLDER / "libcpu_kernels.so"


def build() -> str | None:
    """Compiles; returns what stood in the way, if anything did."""
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]  # as ``passes.digest``
    flags = ["-O3", "-shared", "-fPIC", "-fno-math-errno", f'-DSOURCE="{version}"']
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-march=x86-64-v3")
    unfinished = BUILT.with_name(f"{BUILT.stem}.{os.getpid()}.so")
    troubles: list[str] = []
    try:
        for compiler in compilers():
            # Some compilers come without OpenMP. Then one thread does it all.
            for extra in (["-fopenmp"], []):
                command = [*compiler, *flags, *extra, "-o", str(unfinished), str(SOURCE), "-lm"]
                try:
                    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
                    unfinished.replace(BUILT)
                except subprocess.CalledProcessError as error:
                    troubles.append(error.stderr.strip())
                except (OSError, subprocess.TimeoutExpired) as error:
                    troubles.append(str(error))
                else:
                    return None
    finally:
        unfinished.unlink(missing_ok=True)
    return troubles[0]


def compilers() -> list[list[str]]:
    """``$CC`` if it is set; otherwise Python's own compiler and the usual names."""
    if os.environ.get("CC"):
        return [shlex.split(os.environ["CC"])]
    python = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
    return [[name] for name in dict.fromkeys([*python, "cc", "gcc", "clang"])]


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class NativeHook(BuildHookInterface):  # type: ignore[misc]
        """Compiles when the package is built or installed, an editable one included."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Puts what was built into the wheel, which is then one for this platform."""
            if self.target_name != "wheel":
                return
            trouble = build()
            if trouble:
                self.app.display_warning(
                    f"cpu_kernels.c was not compiled, torch will do its work: {trouble}"
                )
                return
            if version == "editable":  # it is read from the checkout
                return
            build_data["force_include"][str(BUILT)] = (
                "symbiont_ecology/host/backend/libcpu_kernels.so"
            )
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


if __name__ == "__main__":
    obstacle = build()
    if obstacle:
        sys.exit(f"error: {SOURCE.name} was not compiled: {obstacle}")
    print(
        f"{BUILT.relative_to(Path.cwd()) if BUILT.is_relative_to(Path.cwd()) else BUILT} is built"
    )
