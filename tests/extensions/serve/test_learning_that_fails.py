"""Learning that fails: answering goes on, and what a part of others said is for those who may read
it."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from in_service import EAGER, TOWN, Serve, Served, wait_until
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.ecology import Decision
from symbiont_ecology.ecology.strategies import StrategyContext, strategies
from symbiont_ecology.ecology.strategies.controls import Single
from symbiont_ecology.extensions.serve.limits import ApiKeys, add_key
from symbiont_ecology.extensions.serve.service import opened_service
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.llama import LlamaSession
from symbiont_ecology.run.config import RunConfig, load_config

SECRET = "what ada wrote"


@pytest.fixture
def grudging(own_parts: None) -> RunConfig:
    """A town with a strategy of somebody else that fails when it is told the outcomes."""

    @strategies.register("grudging")
    @dataclass(frozen=True)
    class Grudging(Single):
        """One adapter, which hears nothing."""

        def tell(self, context: StrategyContext) -> list[Decision]:
            """Nothing follows."""
            raise ValueError(SECRET)

    return load_config("habitats/town", [*TOWN, "strategy=grudging"])


def accept(served: Served) -> None:
    """An answer is accepted, from which learning fails."""
    served.accept(user="ada")
    wait_until(lambda: served.service.learning_error)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of failures."""
    return [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]


def test_a_strategy_that_fails_ends_learning_and_not_the_service(
    serve: Serve, grudging: RunConfig, kernel: HostKernel, tmp_path: Path
) -> None:
    served = serve(config=grudging)
    accept(served)
    assert served.service.learning_error.startswith(f"a plug-in raised ValueError: {SECRET}")
    assert served.ask().status_code == 200
    served.stop()
    assert served.service.generation == 0
    copy = Path(shutil.copytree(served.folder, tmp_path / "copy"))
    with opened_service(grudging, copy, kernel, EAGER, is_new=False) as again:
        assert "a plug-in raised" in again.learning_error


@pytest.mark.parametrize("error", [RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), MemoryError()])
def test_an_error_of_torch_ends_learning_and_not_the_service(
    serve: Serve, kernel: HostKernel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    served = serve()
    monkeypatch.setattr(kernel, "learn", Mock(side_effect=error))  # as where a driver gives up
    accept(served)
    assert served.service.learning_error.startswith("generation 0 failed: raised ")
    assert served.ask().status_code == 200
    served.stop()


@pytest.mark.parametrize("error", [ValueError, OSError, HostError])
def test_the_log_never_says_what_a_part_of_others_said(
    serve: Serve,
    grudging: RunConfig,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    def fail(*arguments: object) -> None:
        raise error(SECRET)

    served = serve(config=grudging)
    with monkeypatch.context() as patched:
        patched.setattr(strategies["grudging"], "ask", fail)
        assert served.ask(user="bob").status_code == 503
    monkeypatch.setattr(strategies["grudging"], "tell", fail)
    accept(served)
    served.stop()  # its thread has written the log
    choosing, learning = told(caplog)
    assert "strategy 'grudging'" in choosing
    assert f"raised {error.__name__}" in choosing
    assert error.__name__ in learning
    assert SECRET not in caplog.text


def test_why_learning_stopped_is_for_keys_of_applications(
    serve: Serve, grudging: RunConfig, tmp_path: Path
) -> None:
    path = tmp_path / "keys.jsonl"
    user, application = add_key(path, "ada"), add_key(path, None)
    served = serve(config=grudging, keys=ApiKeys.read(path))
    served.client.headers = {"Authorization": f"Bearer {user}"}
    accept(served)
    for key in (user, "symbiont-wrong", "", application):
        served.client.headers = {"Authorization": f"Bearer {key}"} if key else {}
        health = served.client.get("/healthz")
        assert (health.status_code, health.json()["learning"]) == (200, "stopped")
        assert (SECRET in health.text) == (key == application)


def test_memory_that_runs_out_for_answers_costs_learning_nothing(
    serve: Serve,
    kernel: HostKernel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    served, answers, learn = serve(limits=EAGER), list[Any](), kernel.learn
    memory, step = kernel.memory_mb, LlamaSession.step

    def scarce(*arguments: Any) -> Any:
        """Memory for all but those who wait for an answer while others learn."""
        if served.service.scheduler.open_jobs and not answers:
            raise torch.OutOfMemoryError("out of memory")
        return step(*arguments)

    def beside(*arguments: Any, **options: Any) -> Any:
        """A learning step while somebody waits."""
        asking = threading.Thread(target=lambda: answers.append(served.ask(user="eve")))
        with monkeypatch.context() as patched:
            patched.setattr(LlamaSession, "step", scarce)
            asking.start()
            wait_until(lambda: served.service.scheduler.open_jobs)
            while asking.is_alive():
                kernel.score(["math.add: 1+1\n="], ["2"], [HOST_SLOT])
        asking.join()
        return learn(*arguments, **options)

    name = served.ask(user="ada").json()["id"]
    monkeypatch.setattr(kernel, "learn", beside)
    served.judge(name, accepted=True)
    wait_until(lambda: served.service.generation)
    assert answers[0].status_code == 503
    (reason,) = told(caplog)
    assert "expected memory" in reason
    assert (served.service.learning_error, kernel.memory_mb) == ("", memory)
    assert served.ask().status_code == 200
