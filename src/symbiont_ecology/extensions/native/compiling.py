"""Compiles ``cpu_kernels.c``. It needs the standard library alone, so a build can use it, too.

The library is called through ctypes: it knows nothing of Python, and serves every version of it. It
is not linked with OpenMP either. torch has loaded its own, and one set of threads serves both.
"""

from __future__ import annotations

import hashlib
import platform
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("cpu_kernels.c")
BUILT = Path(__file__).with_name("libcpu_kernels.so")
"""The library, as installing makes it."""
MAX_SECONDS = 300
"""Limit for a compiler."""


def digest(source: Path = SOURCE) -> str:
    """Return the version of the source. A library of another version is not used."""
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


def compile_library(
    target: Path, source: Path = SOURCE, compilers: Sequence[str] = ()
) -> str | None:
    """Write the library; return the obstacle, if there was one.

    Several processes may do so at once. Whoever reads ``target`` sees a whole library or none.

    Args:
        target: file of the library. Its folder is made.
        source: the C file.
        compilers: commands that are tried in turn; if empty, Python's own compiler and the usual
            names.
    """
    python_cc = (sysconfig.get_config_var("CC") or "").split()[:1]
    troubles: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as folder:
            unfinished = Path(folder, "unfinished.so")
            for compiler in compilers or dict.fromkeys([*python_cc, "cc", "gcc", "clang"]):
                # Some compilers come without OpenMP. Then one thread does it all.
                for extra in (["-fopenmp"], []):
                    trouble = _compile(shlex.split(compiler), extra, source, unfinished)
                    if trouble is None:
                        unfinished.replace(target)
                        return None
                    troubles.append(trouble)
    except OSError as error:
        return f"{target.parent} cannot be written ({error.strerror or error})"
    return troubles[0]


def _compile(compiler: list[str], extra: list[str], source: Path, unfinished: Path) -> str | None:
    """Compile and link in two steps, so that the second does not link OpenMP."""
    flags = ["-O3", "-fPIC", "-fno-math-errno", f'-DSOURCE="{digest(source)}"']
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-march=x86-64-v3")
    part = str(unfinished.with_suffix(".o"))
    steps = (
        [*compiler, *flags, *extra, "-c", "-o", part, str(source)],
        [*compiler, "-shared", "-o", str(unfinished), part, "-lm"],
    )
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=MAX_SECONDS)
    except subprocess.CalledProcessError as error:
        return str(error.stderr.strip())
    except FileNotFoundError:
        return f"no C compiler {compiler[0]!r}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    # torch brings GCC's OpenMP. Code of clang calls another one, which may not be there.
    return "another OpenMP than torch's" if b"__kmpc_" in unfinished.read_bytes() else None
