"""A service that ends: who is in is answered, nobody new is let in, and a generation that is not
done in time is lived by the next start."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from in_service import EAGER, Serve, Served, accept, wait_until
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.serve.journal import GenerationBegun, Journal
from symbiont_ecology.extensions.serve.service import opened_service
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.config import RunConfig

LONGEST = 20.0
"""Seconds until a test that hangs goes on."""
OUTCOME = ("state.json", "events.jsonl")


USERS = ("ada", "bob", "eve")


@pytest.fixture
def learns_until(kernel: HostKernel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Learning takes, piece after piece, until something is so."""
    learn = kernel.learn

    def slow(is_so: Callable[[], object]) -> None:
        """From here on."""

        def long(*arguments: Any, **options: Any) -> Any:
            """A learning step behind many pieces."""
            end = time.monotonic() + LONGEST
            while not is_so() and time.monotonic() < end:
                kernel.score(["math.add: 1+1\n="], ["2"], [HOST_SLOT])
            return learn(*arguments, **options)

        monkeypatch.setattr(kernel, "learn", long)

    return slow


def test_a_service_that_is_drained_finishes_who_is_in_and_begins_no_generation(
    serve: Serve,
) -> None:
    served, answers, heard = serve(limits=EAGER, lives=False), list[Any](), threading.Event()
    service = served.service
    accept(service.journal, "ada")
    asking = threading.Thread(target=lambda: answers.append(served.ask()))
    asking.start()
    wait_until(lambda: service.scheduler.open_jobs)
    service.drain()
    health = served.client.get("/healthz")
    assert (health.status_code, health.json()["status"]) == (503, "draining")
    assert served.ask().status_code == 503
    assert not answers
    service.drained = heard.set
    living = threading.Thread(target=service.live)
    living.start()
    asking.join(60)
    assert answers[0].status_code == 200
    assert heard.wait(60)
    assert living.is_alive()
    service.stop()
    living.join(60)
    assert not living.is_alive()
    assert service.generation == 0


def test_who_is_in_has_a_grace_when_a_service_is_drained(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symbiont_ecology.extensions.serve.service.GRACE", 0.0)
    served, heard = serve(limits=EAGER, lives=False), list[int]()
    asking = threading.Thread(target=served.ask)
    asking.start()
    wait_until(lambda: served.service.scheduler.open_jobs)
    served.service.drain()

    def hear() -> None:
        """Notes how many were in."""
        heard.append(served.service.scheduler.open_jobs)
        served.service.stop()

    served.service.drained = hear
    served.service.live()
    asking.join(60)
    assert heard[0] == 1


def test_a_service_that_learns_all_the_time_still_answers(
    serve: Serve, learns_until: Callable[..., None]
) -> None:
    served, answers = serve(limits=EAGER), list[int]()
    learns_until(lambda: answers)
    accept(served.service.journal, *USERS)
    wait_until(lambda: served.service.journal.learned)
    began = time.monotonic()
    status = served.ask().status_code
    assert time.monotonic() - began < LONGEST / 2
    assert (status, served.service.generation) == (200, 0)
    answers.append(status)


def test_a_generation_that_is_not_done_in_time_is_lived_by_the_next_start(
    serve: Serve,
    town: RunConfig,
    kernel: HostKernel,
    tmp_path: Path,
    learns_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: Served = serve(limits=EAGER, lives=False)
    service = served.service
    accept(service.journal, *USERS)
    undisturbed = Path(shutil.copytree(served.folder, tmp_path / "undisturbed"))
    before = (served.folder / "state.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("symbiont_ecology.extensions.serve.service.GRACE", 0.0)
        learns_until(service.stop)  # it is to end as soon as it learns
        service.live()
    monkeypatch.undo()
    kernel.yield_between_pieces(lambda: None)  # as a process that ends
    assert "the next start lives it" in service.learning_error
    assert (served.folder / "state.json").read_bytes() == before
    stopped = Path(shutil.copytree(served.folder, tmp_path / "stopped"))
    journal = Journal(undisturbed)
    journal.write(GenerationBegun(0, 3))
    journal.close()
    for folder in (stopped, undisturbed):
        with opened_service(town, folder, kernel, EAGER, is_new=False) as again:
            assert (again.generation, again.learning_error) == (1, "")
            again.run.save()
    for name in OUTCOME:
        assert (stopped / name).read_bytes() == (undisturbed / name).read_bytes()
