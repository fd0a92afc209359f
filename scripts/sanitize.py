"""The compiled passes under AddressSanitizer and UndefinedBehaviorSanitizer.

    python scripts/sanitize.py
    python scripts/sanitize.py tests/fuzz --cases 2000

A copy of the package gets a library that is built with both. Tests run on that copy: those of the
compiled passes and of the kernel, and hosts that somebody damaged. Whatever a sanitizer finds ends
its process, so a test fails. This needs gcc with its libasan.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
TESTS = (
    "tests/extensions/native/test_native.py",
    "tests/extensions/native/test_native_gradients.py",
    "tests/contracts/test_kernel.py",
    "tests/contracts/test_kernel_hosts.py",
    "tests/contracts/test_branching.py",
    "tests/contracts/test_bad_hosts.py",
    "tests/extensions/native/test_int8.py",
    "tests/fuzz/test_fuzz_hosts.py",
)
# Python frees little at its end, and maps more than a sanitizer likes.
OPTIONS = "detect_leaks=0:abort_on_error=1:detect_odr_violation=0:allocator_may_return_null=1"


def main(words: list[str]) -> int:
    """Builds, then runs pytest with these words, or on the usual tests; its exit code."""
    compiler = os.environ.get("CC") or "gcc"
    with tempfile.TemporaryDirectory(prefix="sanitize-") as place:
        copy = Path(place)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so"))
        for name in ("config", "pyproject.toml"):  # what a checkout is known by
            (copy / name).symlink_to(ROOT / name)
        (copy / "scripts").mkdir()
        build = shutil.copy(ROOT / "scripts" / "build_native.py", copy / "scripts")
        built_with = {**os.environ, "CC": f"{compiler} {FLAGS}"}
        subprocess.run([sys.executable, build], check=True, env=built_with)
        # The sanitizer has to come first, and knows C++ by what is loaded beside it.
        first = [_library(compiler, name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
        environment = os.environ | {
            "LD_PRELOAD": " ".join(first),
            "ASAN_OPTIONS": OPTIONS,
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONPATH": os.pathsep.join(
                [str(copy / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(words or TESTS)]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _library(compiler: str, name: str) -> str:
    """Where the compiler has one of its libraries."""
    words = [*shlex.split(compiler), f"-print-file-name={name}"]
    path = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"error: expected {name} beside {compiler}, found none: install gcc's sanitizers")
    return str(Path(path).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
