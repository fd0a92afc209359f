"""The process of HTTP. The engine computes in many short steps; in one process with HTTP each of
them took 1.6 times as long, since Python runs one thread at a time (docs/history).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn

from symbiont_ecology.base.registry import load_plugin
from symbiont_ecology.extensions.serve.app import ServiceApp
from symbiont_ecology.extensions.serve.client import EngineClient
from symbiont_ecology.extensions.serve.limits import ApiKeys, ServiceLimits
from symbiont_ecology.extensions.serve.messages import Channel, Message
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig

MAX_CONNECTIONS = 4096
"""Connections at a time; more get 503."""
SHUTDOWN_SECONDS = 5
"""Seconds for clients to read the last answers when the service is stopped."""


@dataclass(frozen=True)
class HttpSettings:
    """Settings of the process of HTTP. ``folder`` is that of the run."""

    config: RunConfig
    folder: Path
    keys: ApiKeys | None
    limits: ServiceLimits


class HttpProcess:
    """Starts the process, which lives until ``close``. ``channel`` is the engine's end."""

    def __init__(self, listener: socket.socket, settings: HttpSettings) -> None:
        ours, theirs = multiprocessing.Pipe()
        self.channel = Channel(ours)
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
        """End the process, and the channel with it."""
        self.kill()
        self._process.join()

    @property
    def is_alive(self) -> bool:
        """True until the process has ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process at once, whoever it is answering."""
        self._process.kill()


def log_to_stderr() -> None:
    """Write the log of this package to stderr from now on."""
    logger, handler = logging.getLogger("symbiont_ecology"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)


def _serve_http(
    listener: socket.socket, end: Connection[Message, Message], settings: HttpSettings
) -> None:
    """Serve until the channel ends or the parent says so: the work of the process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who sends it to all means the parent
    log_to_stderr()
    for plugin in settings.config.plugins:
        load_plugin(Path(plugin))
    engine = EngineClient(Channel(end), settings.folder, mixture(settings.config))
    web = uvicorn.Config(
        ServiceApp(engine, settings.keys, settings.limits).asgi,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )
    server = uvicorn.Server(web)

    def serve() -> None:
        # In a thread, uvicorn leaves signals alone.
        try:
            server.run(sockets=[listener])
        finally:
            os._exit(0)  # nobody waits for anything any more

    def end_http() -> None:
        server.should_exit = True

    engine.listen(threading.Thread(target=serve, daemon=True).start, end_http)
    os._exit(1)  # without its parent the process has nothing to do
