"""Pages that are open in a real browser with no network, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")
HAS_INK = """canvas => {
  const pen = canvas.getContext("2d");
  return pen.getImageData(0, 0, canvas.width, canvas.height).data.some(byte => byte)
}"""
"""Whether anything is painted on a canvas."""


@dataclass
class Visit:
    """A page that is open, and what it said and asked for."""

    page: sync_api.Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """What can be read there."""
        return str(self.page.inner_text(selector))


@contextmanager
def chromium() -> Iterator[sync_api.Browser]:
    """A browser."""
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def has_ink(card: sync_api.ElementHandle) -> bool:
    """Whether anything is painted on a visible canvas of a card."""
    canvases = [one for one in card.query_selector_all("canvas") if one.is_visible()]
    return any(one.evaluate(HAS_INK) for one in canvases)


@contextmanager
def opened(
    browser: sync_api.Browser,
    url: str,
    width: int = 1280,
    *,
    offline: bool = True,
    ready: str = "#biography-view h3",
) -> Iterator[Visit]:
    """A page in a fresh context; it must say nothing and ask for nothing but itself."""
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, offline=offline)
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.said.append(message.text))
    visit.page.on("pageerror", lambda error: visit.said.append(str(error)))
    visit.page.on("request", lambda request: visit.asked.append(request.url))
    visit.page.goto(url)
    visit.page.wait_for_selector(ready)
    yield visit
    context.close()
