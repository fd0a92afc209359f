"""A town of users on the embedded host, served in this process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from in_service import EAGER, NEVER_LEARNS, TOWN, Serve, Served, client_of
from runs import start
from symbiont_ecology.extensions.serve.app import ServiceApp
from symbiont_ecology.extensions.serve.limits import ApiKeys, ServiceLimits
from symbiont_ecology.extensions.serve.service import opened_service
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.build import build_host
from symbiont_ecology.run.config import RunConfig, load_config


@pytest.fixture(scope="session")
def town() -> RunConfig:
    """Twenty-four users of four kinds; nobody has asked yet."""
    return load_config("habitats/town", TOWN)


@pytest.fixture(scope="session")
def kernel(town: RunConfig) -> HostKernel:
    """The embedded host."""
    host = build_host(town)
    assert isinstance(host, HostKernel)
    return host


@pytest.fixture(scope="session")
def founded(town: RunConfig, kernel: HostKernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was founded, and nothing else."""
    folder = tmp_path_factory.mktemp("founded") / "town"
    start(town, folder, host=kernel)
    return folder


@pytest.fixture
def folder(founded: Path, tmp_path: Path) -> Path:
    """A run of its own for a test."""
    return Path(shutil.copytree(founded, tmp_path / "town"))


@pytest.fixture
def serve(town: RunConfig, kernel: HostKernel, folder: Path) -> Iterator[Serve]:
    """Serves the test's run, or a new one of a ``config``."""
    with ExitStack() as open_things:

        def begin(
            *,
            limits: ServiceLimits | None = None,
            keys: ApiKeys | None = None,
            lives: bool = True,
            config: RunConfig | None = None,
        ) -> Served:
            limits = limits or EAGER
            where = folder.with_name("other") if config else folder
            opened = opened_service(config or town, where, kernel, limits, is_new=bool(config))
            service = open_things.enter_context(opened)
            engine = open_things.enter_context(client_of(service))
            app = ServiceApp(engine, keys, limits)
            thread = threading.Thread(target=service.live, daemon=True)
            if lives:
                thread.start()
            client = TestClient(app.asgi, base_url="http://localhost")
            open_things.callback(lambda: (service.stop(), thread.is_alive() and thread.join(60)))
            return Served(service, engine, client, where, thread)

        yield begin


@pytest.fixture
def served(serve: Serve) -> Served:
    """The test's run, which does not learn."""
    return serve(limits=NEVER_LEARNS)
