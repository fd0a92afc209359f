"""The site of README and docs: it is built without a warning, and a browser opens every page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from visits import chromium, in_a_browser, opened, sync_api

pytest.importorskip("sphinx")
ROOT = Path(__file__).parents[2]
MADE_BY_SPHINX = {"genindex.html", "py-modindex.html", "search.html", "index.html"}


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


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with chromium() as found:
        yield found


class Links(HTMLParser):
    """Where a page leads, what it shows, and the places in it that can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes one tag."""
        for name, value in attrs:
            if value and name == "id":
                self.places.add(value)
            elif value and name in ("href", "src"):
                self.targets.append(value)


def test_every_markdown_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert pages <= built


def test_no_link_of_the_site_is_broken(site: Path) -> None:
    pages: dict[Path, Links] = {}
    for path in site.rglob("*.html"):
        pages[path.resolve()] = links = Links()
        links.feed(path.read_text(encoding="utf-8"))
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            places = pages[found].places if found in pages else {parts.fragment}
            if not found.is_file() or unquote(parts.fragment) not in places:
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    assert broken == []
    assert len(pages) > 40


def test_examples_in_docstrings_run(site: Path) -> None:
    sphinx(site.parent / "doctest", "-b", "doctest", "-d", site.parent / "read")
    said = (site.parent / "doctest" / "output.txt").read_text()
    ran = re.search(r"^ *(\d+) tests?$", said, re.MULTILINE)
    assert ran, said
    assert int(ran[1]) >= 5


@in_a_browser
def test_every_page_opens_without_an_error_and_fits_a_phone(
    site: Path, browser: sync_api.Browser
) -> None:
    pages = [
        path
        for path in sorted(site.rglob("*.html"))
        if path.name not in MADE_BY_SPHINX or path.parent.name == "docs"
    ]
    wrong = []
    with opened(browser, pages[0].as_uri(), 390, ready="article") as visit:
        for path in pages:
            visit.page.goto(path.as_uri())
            visit.page.wait_for_selector("article")
            wider = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            name = path.relative_to(site)
            wrong += [f"{name} is {wider} pixels wider than a phone"] if wider > 0 else []
            wrong += [f"{name}: {line}" for line in visit.said]
            wrong += [f"{name} asks for {url}" for url in visit.asked if url[:7] != "file://"]
            visit.said.clear()
            visit.asked.clear()
    assert wrong == []
