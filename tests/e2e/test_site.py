"""The site of README and docs: it is built without a warning, and a browser opens every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    sphinx(folder / "site", "-b", "html", "-d", folder / "read")
    return folder / "site"


def sphinx(to: Path, *words: object) -> None:
    """Runs Sphinx; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *map(str, words)]
    done = subprocess.run(
        [*command, "-c", "docs", ".", to], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_markdown_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert pages <= built


def test_examples_in_docstrings_run(site: Path) -> None:
    sphinx(site.parent / "doctest", "-b", "doctest", "-d", site.parent / "read")
    said = (site.parent / "doctest" / "output.txt").read_text()
    ran = re.search(r"^ *(\d+) tests?$", said, re.MULTILINE)
    assert ran, said
    assert int(ran[1]) >= 5
