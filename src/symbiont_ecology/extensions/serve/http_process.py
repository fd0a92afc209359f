"""The process of HTTP, as its parent sees it, and what it does.

An engine computes in many short steps. In one process, each of them waits for whatever HTTP just
does in Python: on two cores, steps took 1.6 times as long (docs/log.md).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.extensions.serve.app import ServiceApp
from symbiont_ecology.extensions.serve.desk import Desk
from symbiont_ecology.extensions.serve.keys import ApiKeys
from symbiont_ecology.extensions.serve.limits import HttpLimits
from symbiont_ecology.extensions.serve.line import Line
from symbiont_ecology.extensions.serve.log_lines import flush_log, log_as_json
from symbiont_ecology.registry import load_plugin

MOST_CONNECTIONS = 4096
"""Connections at a time; more get 503."""
LAST_BYTES = 5
"""Seconds for clients to read the last answers when the service is stopped."""


@dataclass(frozen=True)
class HttpSettings:
    """What the process of HTTP has to know. ``folder`` is the run's."""

    config: RunConfig
    folder: Path
    keys: ApiKeys | None
    limits: HttpLimits


class HttpProcess:
    """Begins with the process, which lives until ``close``. ``line`` is the engine's end of the
    line."""

    def __init__(self, listener: socket.socket, settings: HttpSettings) -> None:
        ours, theirs = socket.socketpair()
        self.line = Line(ours)
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
        arguments = listener, theirs, settings
        self._process = context.Process(target=_serve_http, args=arguments, name="http")
        # Ctrl-C reaches both processes: this one hears it, and tells the other.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._process.start()
        signal.signal(signal.SIGINT, handler)
        for end in (listener, theirs):  # they are the process's own
            end.close()

    def close(self) -> None:
        """Ends the line, and the process with it."""
        self.line.close()
        self.kill()
        self._process.join()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Ends it at once, whoever it is answering."""
        self._process.kill()


def _serve_http(listener: socket.socket, end: socket.socket, settings: HttpSettings) -> None:
    """The work of the process, until the line ends or its parent says so."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who sends it to all means the parent
    log_as_json()
    for plugin in settings.config.plugins:
        load_plugin(Path(plugin))
    limits, tasks = settings.limits, mixture(settings.config)
    desk = Desk(Line(end), settings.folder, tasks, limits.most_waiting)
    web = uvicorn.Config(
        ServiceApp(desk, settings.keys, limits).asgi,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_BYTES,
        limit_concurrency=MOST_CONNECTIONS,
    )
    server = uvicorn.Server(web)

    def serve() -> None:
        """A thread, in which uvicorn leaves signals alone."""
        try:
            server.run(sockets=[listener])
        finally:
            flush_log()
            os._exit(0)  # nobody waits for anything any more

    def end_http() -> None:
        """Nobody waits for an answer any more."""
        server.should_exit = True

    desk.listen(threading.Thread(target=serve, daemon=True).start, end_http)
    flush_log()
    os._exit(1)  # without its parent the process has nothing to do
