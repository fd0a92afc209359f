"""What Prometheus reads of a service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from symbiont_ecology.service.limits import AsgiApp, AsgiMessage, Receive, Scope, Send
from symbiont_ecology.service.living import LivingService

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

NO_GUESSING = (b"x-content-type-options", b"nosniff")
"""A browser takes an answer for what it says that it is."""
LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class ServiceMetrics:
    """Counters of a service, and how long requests took."""

    def __init__(self, service: LivingService) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Tallies(service))
        self._seconds = Histogram(
            "symbiont_request_seconds",
            "Time from a request to its last byte.",
            ("path", "status"),
            buckets=LATENCY_BUCKETS,
            registry=self._registry,
        )

    def observe(self, path: str, status: int, seconds: float) -> None:
        """A request is over."""
        self._seconds.labels(path, str(status)).observe(seconds)

    def text(self) -> bytes:
        """All of it in the format of Prometheus."""
        return generate_latest(self._registry)


class TimedRequests:
    """ASGI middleware: times every request, to its last byte."""

    def __init__(self, app: AsgiApp, metrics: ServiceMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: AsgiMessage) -> None:
            """Keeps the status."""
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
    """Reads the service when Prometheus does."""

    def __init__(self, service: LivingService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Counters and gauges."""
        service, tally = self._service, self._service.scheduler.tally
        state, journal = service.snapshot.turn.state, service.journal
        counters = {
            "answers": ("Answers given.", tally.answers),
            "refused": ("Requests refused since too many waited.", tally.refused),
            "late": ("Answers that took too long.", tally.late),
            "prompt_tokens": ("Tokens of prompts.", tally.prompt_tokens),
            "new_tokens": ("Tokens written.", tally.new_tokens),
            "verdicts": ("Verdicts of users.", journal.verdicts),
            "verdicts_left_out": ("Verdicts on texts too long to learn from.", service.left_out),
            "learning_seconds": ("Time that generations took.", service.seconds_learning),
        }
        for name, (description, value) in counters.items():
            yield CounterMetricFamily(f"symbiont_{name}", description, value=value)
        gauges = {
            "open_requests": (
                "Requests that wait or are being answered.",
                service.scheduler.open_jobs,
            ),
            "rows": ("Rows that are being written.", service.scheduler.rows),
            "organelles": ("Organelles alive.", len(state.population)),
            "users": ("Users that judged something.", len(state.habitats)),
            "generation": ("Generations lived.", state.generation),
            "waiting_verdicts": (
                "Verdicts to be learned from.",
                journal.verdicts - journal.learned,
            ),
            "is_learning": ("1, or 0 once learning has stopped.", not service.learning_error),
        }
        for name, (description, value) in gauges.items():
            yield GaugeMetricFamily(f"symbiont_{name}", description, value=float(value))
