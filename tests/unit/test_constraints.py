"""What ``make setup`` installs can be installed with the oldest Python that is allowed. Debian's
3.11.2 is such a one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def test_every_constraint_allows_the_oldest_python() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    chosen = dict(line.split("==") for line in lines if "==" in line)
    allowed = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert allowed
    wrong = []
    for name, wanted in installed(chosen):
        if not SpecifierSet(wanted).contains(f"{allowed[1]}.0"):
            wrong.append(f"{name} wants Python {wanted}")
    assert wrong == []


def installed(chosen: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What is installed in the version that was chosen, and the Python that it wants."""
    for name, version in chosen.items():
        with suppress(PackageNotFoundError):  # it belongs to an extra
            found = metadata(name)
            if found["Version"] == version:
                yield name, found.get("Requires-Python") or ""
