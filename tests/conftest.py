"""Ground of all tests: this folder is importable (``toy``, ``hosts``), and so are benchmarks and
scripts (``life``, ``door``); properties repeat their examples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.ecology.learning import learning_rules, reward_rules
from symbiont_ecology.ecology.routing.allocators import allocators
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.trackers import trackers
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

pytest_plugins = ("command_fixtures",)
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options: how often runs are killed and faults happen, and where hosts are loaded."""
    parser.addoption("--kills", type=int, default=5, help="SIGKILLs in e2e/test_resume_kill.py")
    parser.addoption("--faults", type=int, default=2, help="times each in test_engine_faults.py")
    parser.addoption("--device", default="cpu", help="where hosts are loaded: cuda")


def pytest_configure(config: pytest.Config) -> None:
    """The kernel's own default says where hosts are loaded."""
    HostKernel.from_pretrained.__kwdefaults__["device"] = config.getoption("--device")


def pytest_xdist_auto_num_workers() -> int:
    """With ``-n auto``: two workers more than cores, at most six. Many tests wait for processes
    that they began."""
    return min(6, 2 + (os.cpu_count() or 1))


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Files of this process outlive a kill, but no power cut: who waits for the disk waits for a
    third of the time. Commands in processes of their own do wait."""

    def sync(descriptor: int) -> None:
        """A file that is not open is an error, as it should be."""
        os.fstat(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        yield


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> int:
    """How often everything goes wrong."""
    return int(request.config.getoption("--faults"))


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How often to kill."""
    return int(request.config.getoption("--kills"))


@pytest.fixture
def own_parts() -> Iterator[None]:
    """Tasks, operators, rules and other parts that a test registers are gone after it."""
    registries: tuple[Registry[Any], ...] = (
        *(tasks, operators, learning_rules, reward_rules),
        *(allocators, mechanisms, prompt_styles, strategies, trackers),
    )
    before = [set(registry.names()) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry.names()) - names:
            del registry._entries[name]
