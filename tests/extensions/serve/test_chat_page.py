"""The page on which people talk with a service, in a real browser; the service is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.extensions.serve.pages import CHAT_PAGE
from visits import chromium, in_a_browser, sync_api

URL = "http://service.test/"
CHUNKS: list[dict[str, Any]] = [
    {"id": "r1", "organelle": "o6", "choices": [{"delta": {"content": word}}]}
    for word in ("=", "55")
]
ANSWERS: dict[str, dict[str, Any]] = {
    "": {"body": Path(CHAT_PAGE).read_text("utf-8"), "content_type": "text/html"},
    "healthz": {
        "json": {"status": "ok", "generation": 3, "verdicts": 1, "learning": "ok", "reason": ""}
    },
    "ecology": {"body": "<p>alive</p>", "content_type": "text/html"},
    "v1/feedback": {"json": {}},
    "v1/feedback?user=me": {"json": {"user": "me", "verdicts": []}},
    "v1/chat/completions": {
        "body": "".join(f"data: {json.dumps(one)}\n\n" for one in CHUNKS) + "data: [DONE]\n\n",
        "content_type": "text/event-stream",
    },
}


@pytest.fixture
def page() -> Iterator[sync_api.Page]:
    with chromium() as browser:
        page = browser.new_page()
        page.route("**/*", lambda route: route.fulfill(**ANSWERS[route.request.url[len(URL) :]]))
        page.goto(URL)
        yield page


@in_a_browser
def test_an_answer_is_awaited_read_and_judged(page: sync_api.Page) -> None:
    waiting: list[sync_api.Route] = []
    page.route("**/v1/chat/completions", lambda route: waiting.append(route))
    page.fill("#text", "math.add: 47+8")
    with page.expect_request("**/v1/chat/completions"):
        page.keyboard.press("Enter")
    reply = page.locator("#said li").last
    sync_api.expect(reply).to_have_text("…")
    sync_api.expect(reply).to_have_attribute("aria-busy", "true")
    waiting[0].fulfill(**ANSWERS["v1/chat/completions"])
    sync_api.expect(reply.locator("p")).to_have_text("=55")
    assert reply.get_attribute("aria-busy") is None
    assert "answered by o6" in reply.inner_text()
    good = page.get_by_role("button", name="this answer is good")
    good.click()
    sync_api.expect(good).to_have_attribute("aria-pressed", "true")
    assert good.evaluate("button => getComputedStyle(button).opacity") == "1"
    assert "you found it good" in reply.inner_text()
    assert page.get_by_role("button", name="this answer is bad").is_disabled()


def thumbs(page: sync_api.Page, said: str) -> sync_api.Locator:
    """The line about what the user accepted (+) and refused (-)."""
    verdicts = [{"accepted": mark == "+", "organelle": "o3"} for mark in said]
    body = {"user": "me", "verdicts": verdicts}
    page.route("**/v1/feedback?user=me", lambda route: route.fulfill(json=body))
    return page.locator("#thumbs")


@in_a_browser
def test_what_became_of_the_thumbs_is_told(page: sync_api.Page) -> None:
    sync_api.expect(page.locator("#thumbs")).to_be_hidden()
    line = thumbs(page, "-" * 18)
    sync_api.expect(line).to_contain_text("me has accepted 0 of 18: trying other ways")
    line = thumbs(page, "-" * 7 + "+--+-" + "+" * 7)
    sync_api.expect(line).to_contain_text("me has accepted 8 of 10 lately, before 1 of 9")
    assert line.locator("b").count() == 9
    assert line.locator("b").first.get_attribute("title") == "good, answered by o3"
