"""``serve`` and ``key``: a run answers people, and learns from what they accept."""

from __future__ import annotations

import json
import logging
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.console import typed
from symbiont_ecology.cli.options import Overrides, argument, option, resumable_folder
from symbiont_ecology.errors import ConfigError, MissingExtraError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from uvicorn import Server

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.service.keys import ApiKeys
    from symbiont_ecology.service.living import LivingService

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHORT_GRACE = 5
"""Seconds for connections that are still open when the last answer is given."""
RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def serve(
    run: Annotated[str, argument("Folder of a run, or a preset or YAML file to found one.")] = (
        "service"
    ),
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/service-<n>")] = None,
    address: Annotated[
        str, option("Where to listen; anything but this machine needs --keys.", "--address")
    ] = LOOPBACK[0],
    port: Annotated[int, option("Where to listen; 0 is a free one.", least=0)] = 8000,
    keys: Annotated[
        Path | None, option("File of API keys: symbiont key FILE makes one.", default="no keys")
    ] = None,
    learn_share: Annotated[
        float, option("Part of the time that learning may take while people wait; 0: never.")
    ] = 0.25,
    patience: Annotated[
        float, option("Seconds that a verdict waits to be learned with others.")
    ] = 5,
    most_tokens: Annotated[int, option("Longest answer, in tokens.", least=1)] = 256,
    most_waiting: Annotated[
        int, option("Requests that may wait; more are refused.", least=1)
    ] = 1024,
    per_minute: Annotated[float, option("Requests of one user in a minute.")] = 600,
    timeout: Annotated[float, option("Seconds that an answer may take.")] = 120,
    slots: Annotated[int, option("Adapters that answer at a time.", least=1)] = 64,
    log_texts: Annotated[
        bool, option("Write prompts and replies into the log on stderr.", "--log-texts")
    ] = False,
) -> None:
    """Serve a run by OpenAI's API, and learn from what users accept. Ctrl-C is safe.

    The user field of a request says who asks. POST /v1/feedback says yes or no to an answer. A page
    to talk with it is at /.
    """
    try:
        import fastapi
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("symbiont serve", error.name or "fastapi", "serve") from error
    _ = fastapi, prometheus_client
    from symbiont_ecology.service.app import HttpLimits, ServiceApp
    from symbiont_ecology.service.keys import ApiKeys
    from symbiont_ecology.service.living import ServiceLimits, serving

    known = None if keys is None else ApiKeys.read(keys)
    if known is None and address not in LOOPBACK:
        raise ConfigError(
            f"--address {address}: others can reach it, so expected --keys FILE; symbiont key FILE "
            "makes a key"
        )
    if not 0 <= learn_share <= 1:
        raise ConfigError(f"--learn-share: expected a number from 0 to 1, got {learn_share:g}")
    if per_minute <= 0 or timeout <= 0 or patience < 0:
        raise ConfigError("--per-minute, --timeout and --patience: expected numbers above 0")
    config, folder, is_new = _run(run, overrides or [], out)
    limits = ServiceLimits(learn_share, patience, slots, most_waiting)
    http = HttpLimits(per_minute, timeout, most_tokens, log_texts)
    _log_as_json()
    from symbiont_ecology.engine.build import build_host
    from symbiont_ecology.host.kernel import HostKernel

    print(f"loading {config.host.model} …", file=sys.stderr)
    kernel = build_host(config)
    assert isinstance(kernel, HostKernel)
    with serving(config, folder, kernel, limits, is_new=is_new) as service:
        text_of = kernel.tokenizer.decode
        app = ServiceApp(service, known, http, lambda token_id: str(text_of([token_id])))
        server = uvicorn.Server(
            uvicorn.Config(
                app.asgi,
                host=address,
                port=port,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SHORT_GRACE,
            )
        )
        _serve(server, service, folder, known)


def key_command(
    file: Annotated[Path, argument("The file of keys; made if it is not there.", "FILE")],
    user: Annotated[
        str | None, option("The user whose key it is.", default="an application, for all users")
    ] = None,
) -> None:
    """Make an API key: the key on stdout, its hash into the file."""
    from symbiont_ecology.service.keys import add_key

    print(add_key(file, user))
    whose = f"of {user}" if user else "of an application: it asks for any user"
    print(f"a key {whose}; it is nowhere else, and {file} has its hash", file=sys.stderr)


def _run(name: str, overrides: list[str], out: Path | None) -> tuple[RunConfig, Path, bool]:
    """The run that is served: one that is there, or one that is founded."""
    from symbiont_ecology.config import load_config
    from symbiont_ecology.ecology.state import STATE_FILE
    from symbiont_ecology.engine.build import check
    from symbiont_ecology.engine.living import CONFIG_FILE
    from symbiont_ecology.engine.provenance import check_data
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.files import free_folder

    there = Path(name) if (Path(name) / CONFIG_FILE).is_file() else out
    if there is not None and (there / CONFIG_FILE).is_file():
        if overrides:
            raise ConfigError(
                f"{there} is a run already, and its config is fixed: leave changes out"
            )
        config, folder = read_config(there), there
        check(config)
        check_data(config, folder)
    else:
        if Path(name).is_dir():
            raise RunError(f"no run in {name}: expected a {CONFIG_FILE} there")
        config, folder = load_config(name, overrides), out or free_folder("service")
        check(config)
    if not config.tasks.habitats:
        raise ConfigError(
            f"{name}: it has no habitats, and a service has users: choose the preset service, or "
            "set tasks.habitats"
        )
    return config, folder, not (folder / STATE_FILE).exists()


def _serve(server: Server, service: LivingService, folder: Path, keys: ApiKeys | None) -> None:
    """The engine in a thread of its own, HTTP in this one, until Ctrl-C or a signal."""
    engine = threading.Thread(target=service.live, name="engine", daemon=True)
    engine.start()
    with _told_address(server, folder, keys):
        server.run()
    print("finishing the answers in flight …", file=sys.stderr)
    service.stop()
    engine.join()
    print(
        f"{service.scheduler.tally.answers} answers, {service.journal.verdicts} verdicts, "
        f"{service.generation} generations in {folder}\n"
        f"next: {typed()} serve {folder}, or {typed()} evoscope {folder}",
        file=sys.stderr,
    )


@contextmanager
def _told_address(server: Server, folder: Path, keys: ApiKeys | None) -> Iterator[None]:
    """Says where the server listens, once it does."""
    startup = server.startup

    async def told(sockets: list[socket] | None = None) -> None:
        """Starts, and says where."""
        await startup(sockets)
        if not server.servers:
            return
        address, port = server.servers[0].sockets[0].getsockname()[:2]
        place = f"http://{address}:{port}"
        key = "" if keys is None else " -H 'Authorization: Bearer KEY'"
        body = '{"user":"ada","messages":[{"role":"user","content":"Hello"}]}'
        print(
            f"serving {folder} at {place}; Ctrl-C ends it\n"
            f"try: curl {place}/v1/chat/completions{key} -H 'Content-Type: application/json' "
            f"-d '{body}'",
            file=sys.stderr,
        )

    server.startup = told  # type: ignore[method-assign]
    yield


def _log_as_json() -> None:
    """Lines of JSON on stderr, for machines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    ours = logging.getLogger("symbiont_ecology")
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)


class _JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        facts = {name: value for name, value in vars(record).items() if name not in RECORD_FIELDS}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(told | facts, default=str)
