"""What ``make setup`` installs can be installed with the oldest Python that is allowed. Debian's
3.11.2 is such a one."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def test_every_constraint_allows_the_oldest_python() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    names = [line.partition("==")[0] for line in lines if "==" in line]
    allowed = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert allowed
    asked, wrong = 0, []
    for name in names:
        try:
            wanted = metadata(name).get("Requires-Python") or ""
        except PackageNotFoundError:  # it belongs to an extra
            continue
        asked += 1
        if not SpecifierSet(wanted).contains(f"{allowed[1]}.0"):
            wrong.append(f"{name} wants Python {wanted}")
    assert wrong == []
    assert asked > 100
