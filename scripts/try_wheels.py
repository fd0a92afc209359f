"""Installs each wheel of a folder into a new environment and tries the command line there.

    python scripts/try_wheels.py dist

The environments borrow the packages of this one, so nothing is downloaded. They lie outside the
checkout, and so do the runs. Each wheel is tried without a compiler, with one, and with
a cache folder that cannot be written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

COMMANDS = (
    ("--version",),
    ("list",),
    ("doctor",),
    ("demo", "run.generations=2", "--out", "demo", "--quiet"),
    ("infer", "demo/ecology", "math.add: 47+8"),
)


def main() -> None:
    """Tries all wheels; ends at the first command that fails."""
    wheels = sorted(Path(sys.argv[1]).resolve().glob("*.whl"))
    if not wheels:
        sys.exit(f"error: expected wheels in {sys.argv[1]}, found none: make wheels")
    for wheel in wheels:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            command = installed(wheel, place)
            (place / "file").touch()
            cache = {"XDG_CACHE_HOME": str(place / "cache")}
            for case, changes in (
                ("without a compiler", {**cache, "PATH": str(place / "empty")}),
                ("with a cache that cannot be written", {"XDG_CACHE_HOME": str(place / "file")}),
                ("with a compiler", cache),
            ):
                print(f"{wheel.name}, {case}")
                attempt(command, place, changes)


def installed(wheel: Path, place: Path) -> Path:
    """The command of a new environment that has this wheel."""
    environment = place / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", code], text=True).strip())
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    subprocess.run([python, *words], check=True)
    return environment / "bin" / "symbiont"


def attempt(command: Path, place: Path, changes: dict[str, str]) -> None:
    """Types all commands in a new folder and prints how long each took."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for words in COMMANDS:
            began = time.monotonic()
            process = subprocess.run(
                [command, *words],
                cwd=folder,
                env={**environment, **changes},
                capture_output=True,
                text=True,
                check=False,
            )
            if process.returncode:
                sys.exit(f"error: symbiont {' '.join(words)}: {process.stderr}")
            print(f"  {time.monotonic() - began:6.1f} s  symbiont {' '.join(words)}")
            for line in process.stdout.splitlines() if words == ("doctor",) else ():
                if "compiled passes" in line:
                    print(f"            {line}")


if __name__ == "__main__":
    main()
