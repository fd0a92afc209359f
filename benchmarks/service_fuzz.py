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
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from timing import report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from served import ServerProcess

MAX_SECONDS, MAX_MB = 5.0, 200
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "math.add: 1+1"}]},
    "/v1/feedback": {"id": "chatcmpl-none", "accepted": True},
}
PATHS = tuple(GOOD)
KEYS = ("n", "stop", "temperature", "user", "seed", "model", "metadata", "max_tokens", "id")
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 2**70, "", "\x00", "\x1d", "\ud800", "a" * 70_000, [], {}),
    *([[]], {"a": {}}, [None] * 1000, "𝔘", "\u202e", float("nan"), "../../etc/passwd"),
)


class Fuzzer:
    """Requests to a service, and a count of what became of them."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        self.statuses = Counter[int]()
        self.failures = list[str]()
        self.slowest = 0.0

    def get(self, path: str) -> Any:
        """Return what a path says."""
        return self._client.get(path).json()

    def send(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> None:
        """Send one request, and count the answer."""
        began = time.perf_counter()
        headers = {"Content-Type": "application/json"} | headers
        status = self._client.request(method, path, content=data, headers=headers).status_code
        seconds = time.perf_counter() - began
        self.statuses[status] += 1
        self.slowest = max(self.slowest, seconds)
        if status >= 500 or seconds > MAX_SECONDS:
            self.failures.append(f"{status} after {seconds:.1f} s: {method} {path} {data[:200]!r}")

    def described(self, cases: int) -> None:
        """Send requests that schemathesis makes of the description."""
        description = self.get("/openapi.json")
        for mode in ("positive", "negative"):
            schema = schemathesis.openapi.from_dict(description)
            schema.config.generation.update(modes=[schemathesis.GenerationMode(mode)])
            for path in PATHS:

                @settings(
                    max_examples=cases // 4,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=schema[path]["POST"].as_strategy())
                def ask(case: Any) -> None:
                    body = case.body
                    if not isinstance(body, bytes):
                        body = json.dumps(body, default=str).encode()
                    self.send("POST", case.formatted_path, body, {})

                ask()

    def hostile(self, cases: int) -> None:
        """Send bytes that no description would make."""
        draw = np.random.default_rng(0)
        for number, (path, data, headers) in zip(range(cases), bodies(draw), strict=False):
            method = "POST" if number % 20 else str(draw.choice(["GET", "PUT", "DELETE", "HEAD"]))
            self.send(method, path, data, headers)


def bodies(draw: np.random.Generator) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Yield, for ever, a path, a body and headers."""
    while True:
        path = str(draw.choice(PATHS))
        headers = dict[str, str]()
        body = dict(GOOD[path])
        kind = draw.integers(7)
        if kind <= 2:  # a field with a value that it should not have
            body[str(draw.choice([*KEYS, *body]))] = VALUES[draw.integers(len(VALUES))]
        data = json.dumps(body).encode("utf-8", "surrogatepass")
        if kind == 3:  # damaged bytes
            damaged = bytearray(data)
            for place in draw.integers(len(damaged), size=3):
                damaged[place] = int(draw.integers(256))
            data = bytes(damaged)
        elif kind == 4:
            depth = int(draw.integers(10, 20_000))
            data = b'{"messages":' + b"[" * depth + b"]" * depth + b"}"
        elif kind == 5:
            kinds = ["text/plain", "application/xml", "", "x" * 5000]
            headers["Content-Type"] = str(draw.choice(kinds))
            headers["Authorization"] = "Bearer " + "k" * int(draw.integers(0, 9000))
        elif kind == 6:
            data = draw.bytes(int(draw.integers(0, 4000)))
        if draw.random() < 0.05:
            path = "/" + "".join(map(chr, draw.integers(33, 127, size=20))).replace("#", "")
        yield path, data, headers


def memory_of(process: psutil.Process) -> float:
    """Return the megabytes of a process and its children."""
    return sum(one.memory_info().rss for one in (process, *process.children())) / 2**20


def main() -> None:
    """Send all requests; fail where one was not answered well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = ServerProcess(Path("habitats/town"), "--out", f"{place}/run")
        fuzzer = Fuzzer(server.port)
        process = psutil.Process(server.process.pid)
        try:
            fuzzer.described(options.cases // 10)
            before = memory_of(process)
            fuzzer.described(options.cases // 2 - fuzzer.statuses.total())
            fuzzer.hostile(options.cases - fuzzer.statuses.total())
            grown = memory_of(process) - before
            health = fuzzer.get("/healthz")["status"]
        finally:
            server.stop()
    figures = {
        "cases": fuzzer.statuses.total(),
        "statuses": {str(status): count for status, count in sorted(fuzzer.statuses.items())},
        "slowest_seconds": round(fuzzer.slowest, 2),
        "grown_mb": round(grown),
        "health": health,
        "failures": fuzzer.failures[:20],
    }
    report(figures, options.json)
    if fuzzer.failures or grown > MAX_MB or health != "ok":
        raise SystemExit(f"FAIL: {len(fuzzer.failures)} failures, {grown:.0f} MB grown")


if __name__ == "__main__":
    main()
