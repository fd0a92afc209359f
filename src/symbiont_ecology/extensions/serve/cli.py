"""``serve`` and ``key``: a run answers people, and learns from what they accept."""

from __future__ import annotations

import gc
import signal
import socket
import sys
from contextlib import closing
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.base.errors import ConfigError, DataError, MissingExtraError, RunError
from symbiont_ecology.cli.console import command_line
from symbiont_ecology.cli.options import Overrides, argument, option, resumable_folder

if TYPE_CHECKING:
    from symbiont_ecology.extensions.serve.http_process import HttpProcess, HttpSettings
    from symbiont_ecology.extensions.serve.limits import ApiKeys
    from symbiont_ecology.extensions.serve.service import Service
    from symbiont_ecology.run.config import RunConfig

LOOPBACK_ADDRESSES = ("127.0.0.1", "localhost", "::1")


def serve(
    run: Annotated[str, argument("Folder of a run, or a preset or YAML file to found one.")] = (
        "service"
    ),
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/service-<n>")] = None,
    address: Annotated[
        str, option("Where to listen; anything but this machine needs --keys.", "--address")
    ] = LOOPBACK_ADDRESSES[0],
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
    max_tokens: Annotated[
        int, option("Longest answer, in tokens.", "--max-tokens", "--most-tokens", least=1)
    ] = 256,
    timeout: Annotated[float, option("Seconds that an answer may take.")] = 120,
) -> None:
    """Serve a run by OpenAI's API, and learn from what users accept. Ctrl-C is safe.

    The user field of a request says who asks. POST /v1/feedback says yes or no to an answer. A page
    to talk with it is at /.
    """
    _check_extra()
    from symbiont_ecology.extensions.serve.http_process import HttpSettings, log_to_stderr
    from symbiont_ecology.extensions.serve.limits import ServiceLimits

    api_keys = _keys(keys, address)
    if not 0 <= learn_share <= 1:
        raise ConfigError(f"--learn-share: expected a number from 0 to 1, got {learn_share:g}")
    if not (0 < timeout < inf and 0 <= patience < inf):
        raise ConfigError(
            "--timeout and --patience: expected finite numbers above 0 (--patience may be 0), got "
            f"{timeout:g} and {patience:g}"
        )
    config, folder, is_new = _run(run, overrides or [], out)
    limits = ServiceLimits(learn_share, patience, timeout, max_tokens)
    settings = HttpSettings(config, folder, api_keys, limits)
    listener = _listener(address, port)
    log_to_stderr()
    _load_and_serve(settings, listener, is_new=is_new)


def key_command(
    file: Annotated[Path, argument("The file of keys; made if it is not there.", "FILE")],
    user: Annotated[
        str | None, option("The user whose key it is.", default="an application, for all users")
    ] = None,
) -> None:
    """Make an API key: the key on stdout, its hash into the file."""
    from symbiont_ecology.extensions.serve.limits import add_key

    print(add_key(file, user))
    whose = f"of {user}" if user else "of an application: it asks for any user"
    print(f"a key {whose}; it is nowhere else, and {file} has its hash", file=sys.stderr)


def _check_extra() -> None:
    """Refuse if a package of the server is not installed."""
    try:
        import fastapi
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("symbiont serve", error.name or "fastapi", "serve") from error
    _ = fastapi, uvicorn


def _keys(path: Path | None, address: str) -> ApiKeys | None:
    """Return the keys of a file; an address that others can reach needs some."""
    from symbiont_ecology.extensions.serve.limits import ApiKeys

    if path is not None and not path.is_file():
        raise DataError(f"no file of keys {path}: {command_line('key', path)} makes one")
    if path is None and address not in LOOPBACK_ADDRESSES:
        raise ConfigError(
            f"--address {address}: others can reach it, so expected --keys FILE; symbiont key FILE "
            "makes a key"
        )
    return None if path is None else ApiKeys.read(path)


def _load_and_serve(settings: HttpSettings, listener: socket.socket, *, is_new: bool) -> None:
    """Load the host, open the run, and serve it until a signal comes."""
    from symbiont_ecology.extensions.serve.endpoint import EngineEndpoint
    from symbiont_ecology.extensions.serve.http_process import HttpProcess
    from symbiont_ecology.extensions.serve.service import opened_service
    from symbiont_ecology.model.engines import engines
    from symbiont_ecology.run.build import host_source

    config, folder = settings.config, settings.folder
    engines.build(config.host.engine).reach()
    where = _told_address(listener, folder, settings.keys is not None)
    with closing(HttpProcess(listener, settings)) as process:
        print(f"loading {config.host.model} …", file=sys.stderr)
        kernel = host_source(config).load()
        with opened_service(config, folder, kernel, settings.limits, is_new=is_new) as service:
            if not process.is_alive:
                raise RunError("the process of HTTP could not begin: what it said is above")
            EngineEndpoint(service, process.channel).listen()
            gc.collect()
            gc.freeze()  # a search through all that is loaded would stop the service each time
            _serve(service, process, where, folder)


def _run(name: str, overrides: list[str], out: Path | None) -> tuple[RunConfig, Path, bool]:
    """Return the run that is served: one that is there, or one that is founded."""
    from symbiont_ecology.base.files import free_folder
    from symbiont_ecology.cli.run import is_free_for, tell_assumed
    from symbiont_ecology.ecology.state import STATE_FILE
    from symbiont_ecology.extensions.serve.service import check_served
    from symbiont_ecology.run.build import check
    from symbiont_ecology.run.config import load_config
    from symbiont_ecology.run.open_run import CONFIG_FILE, no_run, read_config
    from symbiont_ecology.run.provenance import check_data

    folder = Path(name)
    if (folder / CONFIG_FILE).is_file():
        if overrides:
            raise ConfigError(
                f"{folder} is a run already, and its config is fixed: leave changes out"
            )
        if out is not None and out.resolve() != folder.resolve():
            raise ConfigError(f"{folder} is a run already, and stays there: leave --out out")
    elif folder.is_dir():
        raise no_run(folder)
    else:
        config, folder = load_config(name, overrides), out or free_folder("service")
        tell_assumed(config, [name, *overrides])
        if not is_free_for(folder, config, "generations"):  # a service has no last one
            raise ConfigError(
                f"{folder} holds a run with another config: choose another --out, or serve it with "
                f"{command_line('serve', folder)}"
            )
    if (folder / CONFIG_FILE).is_file():
        config = read_config(folder)
        check_data(config, folder)
    check(config)
    check_served(config, name)
    return config, folder, not (folder / STATE_FILE).exists()


def _serve(service: Service, process: HttpProcess, where: str, folder: Path) -> None:
    """Run the engine in this thread, until a signal. Then answers in flight are finished while HTTP
    still says that nobody new is let in, HTTP ends, and a checkpoint is made."""
    is_told = False

    def stop(*signal_and_frame: object) -> None:
        nonlocal is_told
        if is_told:
            process.kill()
        else:
            print("finishing the answers in flight …", file=sys.stderr)
        is_told = True
        service.drain()

    handlers = {name: signal.signal(name, stop) for name in (signal.SIGINT, signal.SIGTERM)}
    print(where, file=sys.stderr)
    try:
        service.live()
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
    if not is_told:
        raise RunError("the process of HTTP ended: start the service again")
    if service.learning_error:
        print("warning: learning stopped, and the log says why", file=sys.stderr)
    print(
        f"{service.scheduler.tally['answers']} answers, {service.journal.verdicts} verdicts, "
        f"{service.generation} generations in {folder}\n"
        f"next: {command_line('serve', folder)}, or {command_line('evoscope', folder)}",
        file=sys.stderr,
    )


def _listener(address: str, port: int) -> socket.socket:
    """Return a socket that listens, made before anything is loaded.

    Raises:
        ConfigError: the place is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # or asyncio waits
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or "expected a port from 0 to 65535"
        raise ConfigError(f"--address {address} --port {port}: {why}; take another one") from error
    return listener


def _told_address(listener: socket.socket, folder: Path, has_keys: bool) -> str:
    """Return where it is served, and how to ask."""
    address, port = listener.getsockname()[:2]
    place = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    body = '{"user":"ada","messages":[{"role":"user","content":"Hello"}]}'
    return (
        f"serving {folder} at {place}; Ctrl-C ends it\n"
        f"try: curl {place}/v1/chat/completions{key} -H 'Content-Type: application/json' "
        f"-d '{body}'"
    )
