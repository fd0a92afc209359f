"""A service in this process, and a client of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.extensions.serve.client import EngineClient
from symbiont_ecology.extensions.serve.endpoint import EngineEndpoint
from symbiont_ecology.extensions.serve.journal import GivenAnswer, GivenVerdict, Journal
from symbiont_ecology.extensions.serve.limits import ServiceLimits
from symbiont_ecology.extensions.serve.messages import Channel
from symbiont_ecology.extensions.serve.service import Service

TOWN = ("run.generations=0", "tasks.users.questions=6", "run.checkpoint_every=2")
QUESTION = "math.add: 47+8"
NEVER_LEARNS = ServiceLimits(learn_share=0)
EAGER = ServiceLimits(learn_share=1.0, patience=0.0)


@dataclass
class Served:
    """A service that lives in a thread of its own, and a client of it."""

    service: Service
    engine: EngineClient
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

    def live_as(self, **weights: AdapterWeights) -> None:
        """From now on these organelles live."""
        self.service.snapshot = replace(self.service.snapshot, weights=weights)
        self.service.changed()
        wait_until(lambda: list(self.engine.state.names) == sorted(weights))

    def accept(self, **asked: Any) -> str:
        """An answer is accepted; who gave it."""
        answer = self.ask(**asked).json()
        assert self.judge(answer["id"], accepted=True).status_code == 200
        return str(answer["organelle"])

    def learn_all(self) -> None:
        """Returns once all verdicts are learned."""
        journal = self.service.journal
        wait_until(lambda: journal.learned == journal.verdicts)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.service.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


Serve = Callable[..., Served]


@contextmanager
def client_of(service: Service) -> Iterator[EngineClient]:
    """A client with its channel to the service, as if this were another process."""
    ours, theirs = socket.socketpair()
    plug, can_begin = ours.dup(), threading.Event()
    channel = Channel(Connection(theirs.detach()))
    engine = EngineClient(channel, service.run.folder, service.run.runtime.tasks)
    listener = threading.Thread(target=engine.listen, args=(can_begin.set, list), daemon=True)
    listener.start()
    EngineEndpoint(service, Channel(Connection(ours.detach()))).listen()
    assert can_begin.wait(60)
    yield engine
    plug.shutdown(socket.SHUT_RDWR)
    listener.join(60)


def wait_until(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Returns once it is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def accept(journal: Journal, *users: str, prompt: str = "math.add: 1+1\n") -> None:
    """These users accept an answer each."""
    for user in users:
        given = GivenAnswer(user, user, "math.add", prompt, ("2",), "host")
        journal.write(given, GivenVerdict(user, True))
