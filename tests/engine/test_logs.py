"""Learning from a log: nobody is asked, who wants the same is found, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lines import jsonl
from logs import by_server, log_config, rows_of, town
from runs import resume, start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Event
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.run.build import check, mixture
from symbiont_ecology.tasks.logs import LoggedUsers
from toy import Crash, ToyHost

FAMILIES = ("math.add", "string.sort", "logic.bool")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("log") / "log.jsonl", rows_of(town()))


@pytest.fixture(scope="module")
def learned(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ToyHost]:
    folder, host = tmp_path_factory.mktemp("learned") / "run", ToyHost()
    start(log_config(log, families=FAMILIES), folder, host=host)
    return folder, host


def stream_of(path: Path) -> LoggedUsers:
    users = mixture(log_config(path, families=FAMILIES)).users
    assert isinstance(users, LoggedUsers)
    return users


def events_of(folder: Path) -> list[Event]:
    return list(read_events(folder / "events.jsonl"))


def test_kinds_are_found_and_learned_without_asking(learned: tuple[Path, ToyHost]) -> None:
    folder, host = learned
    state, world = checkpoint.load_state(folder), town()
    servers = {name: user.chosen for name, user in state.users.items()}
    assert sorted(map(tuple, by_server(servers, world))) == [(0,), (1,)]
    assert len(host.rolled) == 1, "the host was asked after the founding"
    drawn = world.drawn(8, seed=1, split="holdout")
    served = LoadedRun.of_run(folder).evaluate(drawn, ToyHost(), "user")
    assert served.accuracy().estimate > 0.85


def test_a_run_on_a_log_resumes_exactly(
    log: Path, learned: tuple[Path, ToyHost], tmp_path: Path
) -> None:
    plan = log_config(log, families=FAMILIES)
    with pytest.raises(Crash):
        start(plan, tmp_path / "run", host=ToyHost(crash_at=17))
    resume(tmp_path / "run", host=ToyHost())
    assert events_of(tmp_path / "run") == events_of(learned[0])
    assert checkpoint.load_state(tmp_path / "run") == checkpoint.load_state(learned[0])


def test_every_row_that_is_not_held_out_comes_once_in_a_pass(log: Path) -> None:
    stream, rows = stream_of(log), rows_of(town())
    generations = -(-len(stream.rows) // 6)
    seen = [item for generation in range(generations) for item in stream.questions(generation)]
    first = [(i.user, i.prompt, i.logged.text) for i in seen[: len(stream.rows)] if i.logged]
    kept = [(row["user"], row["prompt"], row["reply"]) for row in rows]
    assert 0.7 * len(rows) < len(stream.rows) < 0.9 * len(rows)
    assert len(first) == len(stream.rows)
    assert not set(first) - set(kept)
    assert (
        seen[len(stream.rows) :] == seen[: len(seen) - len(stream.rows)]
    )  # from the beginning again
    held_out = {item.prompt for item in stream.drawn(1000, seed=0, split="holdout")}
    assert held_out
    assert held_out.isdisjoint(item.prompt for item in seen)


@pytest.mark.parametrize("strategy", ["single", "per_user", "nearest"])
def test_controls_learn_from_logs_too(strategy: str, log: Path, tmp_path: Path) -> None:
    plan = log_config(log, "run.generations=6", strategy={"kind": strategy})
    state = start(plan, tmp_path / "run", host=ToyHost()).state
    assert state.generation == 6
    learned = LoadedRun.of_run(tmp_path / "run").pool.weights.values()
    assert any(np.any(weights.vector) for weights in learned)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("strategy=told", "is told kinds of users, which data do not say"),
        ("tasks.users=null", "says who asks, and the config has no users"),
        ("run.train_flops=1e9", "end a run by run.generations alone"),
        ("learning_rule=hebbian", "a logged question has one reply"),
        ("learning_rule=supervised", "learning_rule: expected reference answers"),
        ("strategy.samples=2", "a logged question has one reply"),
    ],
)
def test_what_does_not_fit_a_log_is_said_before_a_host_is_loaded(
    change: str, words: str, log: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        check(log_config(log, change, strategy={"kind": "single"}))
