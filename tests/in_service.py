"""A service in this process, and a client of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from symbiont_ecology.service.living import LivingService

TOWN = ("run.generations=0", "tasks.habitats.questions=6", "run.checkpoint_every=2")
QUESTION = "math.add: 47+8"


@dataclass
class Served:
    """A service that lives in a thread of its own, and a client of it."""

    service: LivingService
    client: TestClient
    folder: Path
    thread: threading.Thread

    def ask(self, text: str = QUESTION, **more: Any) -> Any:
        """A chat completion; the response."""
        body = {"messages": [{"role": "user", "content": text}], **more}
        return self.client.post("/v1/chat/completions", json=body)

    def judge(self, name: str, **said: Any) -> Any:
        """Feedback; the response."""
        return self.client.post("/v1/feedback", json={"id": name, **said})

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.service.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


Serve = Callable[..., Served]


def wait_until(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Returns once it is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
