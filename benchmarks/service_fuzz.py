"""Hostile requests against a service: each must get an answer, and none may be a crash.

    python benchmarks/service_fuzz.py [--cases 5000] [--json docs/results/service_fuzz.json]

Half of the cases come from schemathesis, which reads the service's OpenAPI description: requests
that fit it and requests that break it. The others are bytes: damaged JSON, deep nesting, control
characters, wrong headers, wrong paths. Counted are the statuses. Anything from 500 on, an answer
that takes longer than five seconds, and memory that grows by more than 200 MB are failures.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings

from timing import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from in_service import desk_of
from symbiont_ecology.config import load_config
from symbiont_ecology.engine.build import host_source
from symbiont_ecology.engine.run import start
from symbiont_ecology.service.app import ServiceApp
from symbiont_ecology.service.limits import HttpLimits
from symbiont_ecology.service.living import ServiceLimits, opened_service

SLOWEST, MOST_MB = 5.0, 200
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/feedback")
GOOD = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "math.add: 1+1"}]},
    "/v1/completions": {"prompt": "math.add: 1+1", "max_tokens": 4},
    "/v1/feedback": {"id": "chatcmpl-none", "accepted": True},
}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 2**70, "", "\x00", "\x1d", "\ud800", "a" * 70_000, [], {}),
    *([[]], {"a": {}}, [None] * 1000, "𝔘", "\u202e", float("nan"), "../../etc/passwd"),
)


class Tally:
    """Statuses of answers, and what went wrong."""

    def __init__(self) -> None:
        self.statuses, self.failures, self.slowest = Counter[int](), list[str](), 0.0

    def add(self, what: str, status: int, seconds: float) -> None:
        """An answer."""
        self.statuses[status] += 1
        self.slowest = max(self.slowest, seconds)
        if status >= 500 or seconds > SLOWEST:
            self.failures.append(f"{status} after {seconds:.1f} s: {what[:300]}")

    @property
    def cases(self) -> int:
        """How many there were."""
        return self.statuses.total()


def described(client: TestClient, cases: int, tally: Tally) -> None:
    """Requests that schemathesis makes of the description."""
    description = client.get("/openapi.json").json()
    for modes in (["positive"], ["negative"]):
        config = schemathesis.GenerationMode
        generation_modes = [config(mode) for mode in modes]
        schema = schemathesis.openapi.from_dict(description)
        schema.config.generation.update(modes=generation_modes)
        for path in PATHS:
            operation = schema[path]["POST"]

            @settings(
                max_examples=cases // 6,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def ask(case: Any) -> None:
                """One request."""
                body = case.body
                data = body if isinstance(body, bytes) else json.dumps(body, default=str).encode()
                send(client, "POST", case.formatted_path, data, {}, tally)

            ask()


def hostile(client: TestClient, cases: int, tally: Tally) -> None:
    """Bytes that no description would make."""
    generator = np.random.default_rng(0)
    for number, (path, data, headers) in zip(range(cases), bodies(generator), strict=False):
        method = "POST" if number % 20 else str(generator.choice(["GET", "PUT", "DELETE", "HEAD"]))
        send(client, method, path, data, headers, tally)


def bodies(generator: np.random.Generator) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """For ever: a path, a body and headers."""
    while True:
        path = str(generator.choice(PATHS))
        body: Any = json.loads(json.dumps(GOOD[path]))
        kind, headers = generator.integers(7), dict[str, str]()
        keys = ("n", "stop", "temperature", "user", "seed", "model", "metadata", "max_tokens", "id")
        if kind <= 2:  # a field with a value that it should not have
            key = str(generator.choice([*keys, *body]))
            body[key] = VALUES[generator.integers(len(VALUES))]
            data = json.dumps(body).encode("utf-8", "surrogatepass")
        elif kind == 3:  # damaged bytes
            damaged = bytearray(json.dumps(body).encode())
            for place in generator.integers(len(damaged), size=3):
                damaged[place] = int(generator.integers(256))
            data = bytes(damaged)
        elif kind == 4:  # deep
            depth = int(generator.integers(10, 20_000))
            data = b'{"messages":' + b"[" * depth + b"]" * depth + b"}"
        elif kind == 5:  # headers
            data = json.dumps(body).encode()
            headers = {
                "Content-Type": str(
                    generator.choice(["text/plain", "application/xml", "", "x" * 5000])
                ),
                "Authorization": "Bearer " + "k" * int(generator.integers(0, 9000)),
            }
        else:
            data = generator.bytes(int(generator.integers(0, 4000)))
        if generator.random() < 0.05:
            path = "/" + "".join(map(chr, generator.integers(33, 127, size=20))).replace("#", "")
        yield path, data, headers


def send(
    client: TestClient, method: str, path: str, data: bytes, headers: dict[str, str], tally: Tally
) -> None:
    """One request, counted."""
    began = time.perf_counter()
    defaults = {"Content-Type": "application/json"}
    answer = client.request(method, path, content=data, headers=defaults | headers)
    tally.add(f"{method} {path} {data[:200]!r}", answer.status_code, time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place, config = Path(tempfile.mkdtemp()), load_config("habitats/town", ["run.generations=0"])
    kernel, tally = host_source(config).load(), Tally()
    start(config, place / "run", host=kernel, may_learn_nothing=True)
    limits = ServiceLimits(learn_share=0.25, patience=0.5)
    opened = opened_service(config, place / "run", kernel, limits, is_new=False)
    with opened as service, ExitStack() as lines:
        http = HttpLimits(per_minute=1e9, most_tokens=32)
        desk = lines.enter_context(desk_of(service, kernel, http))
        app = ServiceApp(desk, None, http)
        client = TestClient(app.asgi, base_url="http://localhost", raise_server_exceptions=False)
        thread = threading.Thread(target=service.live, daemon=True)
        thread.start()
        send(client, "POST", PATHS[0], json.dumps(GOOD[PATHS[0]]).encode(), {}, tally)
        described(client, options.cases // 10, tally)  # schemathesis itself takes memory
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        described(client, options.cases // 2 - tally.cases, tally)
        hostile(client, options.cases - tally.cases, tally)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
        alive = client.get("/healthz").json()
        service.stop()
        thread.join(60)
    shutil.rmtree(place)
    figures = {
        "machine": machine(),
        "cases": tally.cases,
        "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
        "slowest_seconds": round(tally.slowest, 2),
        "grown_mb": round(grown),
        "health": alive["status"],
        "failures": tally.failures[:20],
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if tally.failures or grown > MOST_MB or alive["status"] != "ok":
        raise SystemExit(f"FAIL: {len(tally.failures)} failures, {grown:.0f} MB grown")


if __name__ == "__main__":
    main()
