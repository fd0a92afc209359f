"""Metrics for Prometheus, and the pages for people: a chat box, and the living ecology."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from symbiont_ecology.extensions.evoscope.page import LiveRecord
from symbiont_ecology.extensions.serve.messages import ServiceStatus

CHAT_PAGE = Path(__file__).parent / "assets" / "chat.html"
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def metrics_text(status: ServiceStatus) -> str:
    """Return the counts of a service in the text format of Prometheus."""
    lines, totals = list[str](), {f"{name}_total": n for name, n in status.counters.items()}
    for kind, values in {"counter": totals, "gauge": status.gauges}.items():
        for name, value in values.items():
            lines.append(f"# TYPE symbiont_{name} {kind}")
            lines.append(f"symbiont_{name} {float(value)}")
    return "\n".join(lines) + "\n"


class ServicePages:
    """The pages of a run in service."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._chat = folder, CHAT_PAGE.read_bytes()

    @cached_property
    def _record(self) -> LiveRecord:
        """The record of the run."""
        return LiveRecord([self._folder])

    async def chat(self) -> Response:
        """Show the page on which people talk with the ecology, and judge its replies."""
        return _page(self._chat)

    async def ecology(self, request: Request) -> Response:
        """Show the living ecology."""
        return _page(await run_in_threadpool(self._record.page))

    async def record(self, request: Request) -> Response:
        """Return the record that evoscope asks for again and again."""
        tag, body = await run_in_threadpool(self._record.latest)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(body, media_type="application/json", headers={"ETag": tag})


def _page(body: bytes) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(body, media_type="text/html; charset=utf-8", headers=headers)
