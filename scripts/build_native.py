"""Compiles the kernel's thin products, ``host/thin.c``, beside their source.

    python scripts/build_native.py

Installing does the same. Without a C compiler nothing is lost but speed: torch computes what they would.
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

FOLDER = Path(__file__).parents[1] / "src" / "symbiont_ecology" / "host"
SOURCE, BUILT = FOLDER / "thin.c", FOLDER / "libthin.so"


def build() -> str | None:
    """Compiles; returns what stood in the way, if anything did."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    flags = ["-O3", "-shared", "-fPIC", "-fno-math-errno", f'-DSOURCE="{version}"']
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-march=x86-64-v3")
    unfinished = BUILT.with_suffix(f".{os.getpid()}")
    trouble = "no compiler"
    for extra in (["-fopenmp"], []):
        command = [*compiler, *flags, *extra, "-o", str(unfinished), str(SOURCE), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        except subprocess.CalledProcessError as error:
            trouble = error.stderr.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            trouble = str(error)
        else:
            unfinished.replace(BUILT)
            return None
    return trouble


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class NativeHook(BuildHookInterface):  # type: ignore[type-arg, misc]
        """Compiles when the package is built or installed, an editable one included."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Puts what was built into the wheel, which is then one for this platform."""
            if self.target_name != "wheel":
                return
            trouble = build()
            if trouble:
                self.app.display_warning(f"thin.c was not compiled, torch will do its work: {trouble}")
                return
            build_data["force_include"][str(BUILT)] = "symbiont_ecology/host/libthin.so"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


if __name__ == "__main__":
    found = build()
    if found:
        sys.exit(f"error: {SOURCE.name} was not compiled: {found}")
    print(f"{BUILT.relative_to(Path.cwd()) if BUILT.is_relative_to(Path.cwd()) else BUILT} is built")
