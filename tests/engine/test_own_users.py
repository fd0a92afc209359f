"""Users that a data file names: the same prompt may have other answers for everyone."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from lines import Row, jsonl, quiz
from logs import ECOLOGY
from runs import start
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.run.build import check, mixture
from symbiont_ecology.run.config import RunConfig, compose
from toy import ToyHost

USERS = ("ann", "bob", "cid", "dee")


def lines() -> list[Row]:
    """Two users want the first of the toy's replies, two the second."""
    pairs = itertools.product(range(80), zip(USERS, "abab", strict=True))
    return [
        {"user": user, "prompt": f"quiz: no {number}", "target": target}
        for number, (user, target) in pairs
    ]


def config(path: Path, more: Path | None = None) -> RunConfig:
    paths = {"quiz": path, **({"more": more} if more else {})}
    sources = [quiz(place, name) | {"user": "user"} for name, place in paths.items()]
    words = (
        f"tasks.families={json.dumps(sources)}",
        "tasks.users.questions=8",
        f"strategy={json.dumps(ECOLOGY)}",
        "learning_rule={kind: expert_iteration, skip: 0.0, replay: 1.0}",
        "economy={ticket: 0, rent: 60000, lowest: 6000, base: 6000, highest: 6000}",
        "run.generations=30",
    )
    return compose((), words, "test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "quiz.jsonl", lines())


def test_users_of_a_file_find_their_kind(file: Path, tmp_path: Path) -> None:
    start(config(file), tmp_path / "run", host=ToyHost())
    users = checkpoint.load_state(tmp_path / "run").users
    servers = [users[user].chosen for user in USERS]
    assert servers[0] == servers[2] != servers[1] == servers[3]
    run = LoadedRun.of_run(tmp_path / "run")
    items = draw_shifts(run.tasks, ["users"], 10)
    assert run.evaluate(items, ToyHost(), "user").accuracy().estimate > 0.9
    acted = [e for e in read_events(tmp_path / "run" / "events.jsonl") if isinstance(e, Acted)]
    assert {event.user for event in acted if event.purpose == "practice"} == set(USERS)


def test_the_same_prompt_has_other_answers_for_everyone(file: Path) -> None:
    mix = mixture(config(file))
    drawn = draw_shifts(mix, ["users"], 5)
    assert Counter(item.user for item in drawn) == dict.fromkeys(USERS, 5)
    for item in drawn:
        assert "\t" not in item.prompt
        assert item.answer == "ab"[USERS.index(item.user) % 2]
        assert item.verifier(item.answer)
        assert mix.prompt(item.id) == item.prompt
    assert mix.questions(3) == mix.questions(3)
    assert {item.prompt for item in drawn}.isdisjoint(
        item.prompt for generation in range(50) for item in mix.questions(generation)
    )


def test_two_files_of_the_same_users_share_no_prompt(file: Path, tmp_path: Path) -> None:
    others = [{**line, "prompt": f"other {line['prompt']}"} for line in lines()]
    mix = mixture(config(file, jsonl(tmp_path / "more.jsonl", others)))
    assert mix.users is not None
    assert mix.users.names == USERS
    with pytest.raises(DataError, match=r"have the prompt 'quiz: no 0' in common"):
        check(config(file, jsonl(tmp_path / "same.jsonl", lines())))


def test_one_user_cannot_want_two_things(tmp_path: Path) -> None:
    rows = [*lines(), {"user": "ann", "prompt": "quiz: no 3", "target": "c"}]
    with pytest.raises(DataError, match="with another target"):
        check(config(jsonl(tmp_path / "quiz.jsonl", rows)))
