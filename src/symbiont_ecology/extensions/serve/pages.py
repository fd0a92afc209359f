"""Metrics for Prometheus, and the pages for people: a chat box, and the living ecology."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from symbiont_ecology.extensions.evoscope.page import LiveRecord
from symbiont_ecology.extensions.serve.limits import AsgiApp, AsgiMessage, Receive, Scope, Send
from symbiont_ecology.extensions.serve.messages import ServiceStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

NO_GUESSING = (b"x-content-type-options", b"nosniff")
"""Browsers must not guess the type of an answer."""
LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class ServiceMetrics:
    """Counters of a service, and the duration of its requests."""

    def __init__(self) -> None:
        self._registry, self._tallies = CollectorRegistry(), _Tallies()
        self._registry.register(self._tallies)
        self._seconds = Histogram(
            "symbiont_request_seconds",
            "Time from a request to its last byte.",
            ("path", "status"),
            buckets=LATENCY_BUCKETS,
            registry=self._registry,
        )

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is over."""
        self._seconds.labels(path, str(status)).observe(seconds)

    def text(self, status: ServiceStatus) -> bytes:
        """Return all metrics in the format of Prometheus."""
        self._tallies.status = status
        return generate_latest(self._registry)


class TimedRequests:
    """ASGI middleware: times every request, to its last byte."""

    def __init__(self, app: AsgiApp, metrics: ServiceMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: AsgiMessage) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], NO_GUESSING]}
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.observe(path, status, time.perf_counter() - start)


class _Tallies(Collector):
    """The counters and gauges of a service."""

    status: ServiceStatus | None = None

    def collect(self) -> Iterator[Metric]:
        if (status := self.status) is None:
            return
        for name, value in status.counters.items():
            yield CounterMetricFamily(f"symbiont_{name}", name.replace("_", " "), value=value)
        for name, value in status.gauges.items():
            yield GaugeMetricFamily(f"symbiont_{name}", name.replace("_", " "), value=float(value))


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
