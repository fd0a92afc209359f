"""A service that learns: from verdicts alone, exactly, and without losing anything."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from in_service import EAGER, Serve, Served, accept, wait_until
from runs import resume
from symbiont_ecology.base.errors import ConfigError, HostError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Retired
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.serve.journal import GenerationBegun, Journal
from symbiont_ecology.extensions.serve.limits import ServiceLimits
from symbiont_ecology.extensions.serve.service import check_served, opened_service
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, load_config
from symbiont_ecology.run.open_run import JOURNAL_FILE


def questions(town: RunConfig, generations: int) -> list[Item]:
    world = mixture(town).users
    assert world is not None
    return [item for generation in range(generations) for item in world.questions(generation)]


def live_through(served: Served, items: list[Item], seed: int = 0) -> list[bool]:
    """All users ask and judge, one after another."""
    verdicts = []
    for number, item in enumerate(items):
        answer = served.ask(
            item.prompt.strip(),
            user=item.user,
            metadata={"family": item.family},
            seed=seed + number,
            max_tokens=item.reply_limit,
        ).json()
        is_right = bool(item.verifier(answer["choices"][0]["message"]["content"]))
        verdicts.append(is_right)
        assert served.judge(answer["id"], accepted=is_right).status_code == 200
    return verdicts


def test_a_run_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigError, match="steady: it has no users"):
        check_served(load_config("steady"), "steady")


def test_verdicts_are_learned_from_and_who_answered_is_who_learns(
    serve: Serve, town: RunConfig
) -> None:
    served = serve(limits=EAGER)
    before = dict(served.service.snapshot.weights)
    live_through(served, questions(town, 4))
    served.learn_all()
    served.stop()
    state = load_state(served.folder)
    assert state.generation >= 1
    assert sum(user.asked for user in state.users.values()) == 24
    assert served.service.snapshot.weights != before
    log = list(read_events(served.folder / "events.jsonl"))
    practised = [one for one in log if isinstance(one, Acted) and one.purpose == "practice"]
    assert sum(len(one.verdicts) for one in practised) == 24
    journal = Journal(served.folder)
    authors: dict[str, set[str]] = {}
    for generation in journal.generations:
        for one in journal.judged_in(generation):
            authors.setdefault(one.answer.user, set()).add(one.answer.organelle)
    journal.close()
    dead = {event.id for event in log if isinstance(event, Retired)}
    for event in practised:  # what the dead answered teaches who serves the user
        assert event.id in authors[event.user] or authors[event.user] & dead


def test_a_killed_service_comes_to_the_same_state(
    serve: Serve, town: RunConfig, kernel: HostKernel, tmp_path: Path
) -> None:
    served = serve(limits=EAGER)
    live_through(served, questions(town, 5))
    served.learn_all()
    killed = Path(shutil.copytree(served.folder, tmp_path / "killed"))  # as SIGKILL leaves it
    assert load_state(killed).generation < served.service.generation or (
        served.service.generation % town.run.checkpoint_every == 0
    )
    served.stop()
    with opened_service(town, killed, kernel, EAGER, is_new=False) as again:
        assert again.generation == served.service.generation
        again.run.save()
    for name in ("state.json", "events.jsonl"):
        assert (killed / name).read_bytes() == (served.folder / name).read_bytes()


def test_the_folder_of_a_service_is_for_its_own_checkpoint_and_no_simulation(
    serve: Serve, town: RunConfig, kernel: HostKernel, founded: Path, tmp_path: Path
) -> None:
    served = serve(limits=EAGER)
    for user in ("ada", "bob"):
        served.accept(user=user)
        served.learn_all()
    served.stop()
    with pytest.raises(RunError, match="symbiont serve"):
        resume(Path(shutil.copytree(served.folder, tmp_path / "copy")))
    mixed = Path(shutil.copytree(founded, tmp_path / "mixed"))
    lines = (served.folder / JOURNAL_FILE).read_text().splitlines(keepends=True)
    kept = [line for line in lines if '{"generation":{"number":0,' not in line]
    (mixed / JOURNAL_FILE).write_text("".join(kept))
    with (
        pytest.raises(RunError, match="bring back the checkpoint"),
        opened_service(town, mixed, kernel, EAGER, is_new=False),
    ):
        pass


def test_a_full_disk_ends_learning_and_not_the_service_and_the_log_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve()
    name = served.ask(user="ada").json()["id"]
    sync, written = os.fsync, [0]

    def once(descriptor: int) -> None:
        """The verdict has room, and the generation that learns from it has none."""
        written[0] += 1
        if written[0] > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", once)
        served.judge(name, accepted=True)
        wait_until(lambda: served.service.learning_error)
    assert "No space left" in caplog.records[-1].getMessage()
    assert served.ask().status_code == 200
    health = served.client.get("/healthz").json()
    assert (health["learning"], "No space" in health["reason"]) == ("stopped", True)


def test_what_takes_more_memory_than_learning_has_is_left_out(
    town: RunConfig, folder: Path
) -> None:
    small = HostKernel.from_pretrained("embedded", memory_mb=10)
    assert small.longest_lesson < small.shape.max_positions
    journal = Journal(folder)
    accept(journal, "a")
    accept(journal, "b", prompt="1" * small.longest_lesson)
    journal.write(GenerationBegun(0, 2))
    journal.close()
    with opened_service(town, folder, small, EAGER, is_new=False) as service:
        assert (service.generation, service.left_out) == (1, 1)
        assert list(service.run.state.users) == ["a"]


def test_a_service_starts_although_a_generation_that_began_fails(
    serve: Serve,
    kernel: HostKernel,
    town: RunConfig,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = Journal(folder)
    accept(journal, "ada")
    journal.write(GenerationBegun(0, 1))
    journal.close()

    def fail(*arguments: object, **options: object) -> None:
        raise HostError("expected memory for a batch of one row, got none")

    with monkeypatch.context() as patched:
        patched.setattr(kernel, "learn", fail)
        served = serve(limits=EAGER)
        assert "expected memory" in served.client.get("/healthz").json()["reason"]
        assert served.ask().status_code == 200
        served.stop()
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    with opened_service(town, copy, kernel, EAGER, is_new=False) as again:
        assert again.learning_error == ""
        assert again.generation == 1


def test_acceptance_rises(serve: Serve, town: RunConfig) -> None:
    served = serve(limits=ServiceLimits(learn_share=1.0, patience=60.0))
    verdicts, items = list[bool](), questions(town, 50)
    for begin in range(0, len(items), 6):
        verdicts += live_through(served, items[begin : begin + 6], 10 * begin)
        served.learn_all()
    first, last = verdicts[:90], verdicts[-90:]
    assert sum(last) > 1.2 * sum(first)
