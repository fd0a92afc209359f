"""What a service shows people: a box to talk in, beside the living ecology."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from symbiont_ecology.extension import modules_of

CHAT_PAGE = Path(__file__).parent / "assets" / "chat.html"
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'"
)


class ServicePages:
    """The pages of a run in service."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._chat = folder, CHAT_PAGE.read_bytes()

    @cached_property
    def _record(self) -> Any:
        """The page of a run that has begun by now, as an extension makes it."""
        (module,) = modules_of("page of a live run")
        return import_module(module).LiveRecord([self._folder])

    async def chat(self) -> Response:
        """Where people talk with the ecology, and judge its replies."""
        return _page(self._chat)

    async def ecology(self, request: Request) -> Response:
        """Evoscope, which goes on as the run does."""
        return _page(await run_in_threadpool(self._record.page))

    async def record(self, request: Request) -> Response:
        """What the page of evoscope asks for again and again."""
        tag, body = await run_in_threadpool(self._record.latest)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(body, media_type="application/json", headers={"ETag": tag})


def _page(body: bytes) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(body, media_type="text/html; charset=utf-8", headers=headers)
