"""Families come one after another, and nobody says when."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Learned
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run import act
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.remember import MAX_OF_CELL
from symbiont_ecology.tasks import Judgement
from toy import Crash, ToyHost, toy_config, toy_ecology, toy_prices

FAMILIES = ("math.add", "string.sort", "logic.bool")
STAGE = 4e6
SPECIATION = {"breeding": False, "upheaval": False, "speciation": {"least": 2}}


def arriving(stage: float = STAGE, **components: Any) -> RunConfig:
    usual = {"strategy": {"kind": "single", "questions": 6, "samples": 2, "learning_rate": 0.1}}
    config = toy_config(3, 10_000, FAMILIES, train_flops=3 * stage, **(usual | components))
    moments = (stage, 2 * stage)
    late = config.tasks.model_copy(update={"arrivals": moments})
    return config.model_copy(update={"tasks": late})


def speciating(**components: Any) -> RunConfig:
    strategy = toy_ecology(founders=1, questions=6, samples=2, mechanisms=SPECIATION)
    return arriving(strategy=strategy, economy=toy_prices(rent=0, ticket=0), **components)


def practice(folder: Path) -> list[Acted]:
    events = read_events(folder / "events.jsonl")
    return [one for one in events if isinstance(one, Acted) and one.purpose == "practice"]


def test_families_come_one_after_another_at_their_moments(tmp_path: Path) -> None:
    start(arriving(), tmp_path, host=ToyHost())
    names = [event.cell.partition("/")[0] for event in practice(tmp_path)]
    assert names == sorted(names, key=FAMILIES.index)
    assert set(names) == set(FAMILIES)
    spent: dict[str, float] = defaultdict(float)
    for event in read_events(tmp_path / "events.jsonl"):
        if isinstance(event, Acted | Learned):
            name = FAMILIES[min(int(sum(spent.values()) / STAGE + 0.02), 2)]
            spent[name] += event.flops
    assert all(cost == pytest.approx(STAGE, rel=0.1) for cost in spent.values())


def test_one_adapter_with_replay_learns_old_answers_again(tmp_path: Path) -> None:
    rule = {"kind": "expert_iteration", "skip": 0.0, "replay": 1.0}
    start(arriving(stage=2e7, learning_rule=rule), tmp_path, host=ToyHost())
    memory = load_state(tmp_path).memory
    assert set(memory) == {f"{name}/short" for name in FAMILIES}
    assert all(0 < len(answers) <= MAX_OF_CELL for answers in memory.values())
    for answers in memory.values():
        assert all(answer.is_accepted for answer in answers)
        assert len({answer.prompt for answer in answers}) == len(answers)


@pytest.mark.parametrize(("marks", "families"), [(0.5, FAMILIES), (0.4, ())])
def test_an_answer_with_half_of_the_marks_is_remembered_as_right(
    marks: float, families: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "judge", lambda answers: [Judgement(marks) for _ in answers])
    rule = {"kind": "expert_iteration", "skip": 0.0, "replay": 1.0}
    start(arriving(learning_rule=rule), tmp_path, host=ToyHost())
    memory = load_state(tmp_path).memory
    cells = {cell for cell, answers in memory.items() if answers}
    assert cells == {f"{name}/short" for name in families}


def test_strange_questions_bring_a_newcomer_and_the_old_keep_to_their_own(tmp_path: Path) -> None:
    start(speciating(), tmp_path, host=ToyHost())
    events = list(read_events(tmp_path / "events.jsonl"))
    born = [event for event in events if isinstance(event, Born) and event.operator == "newcomer"]
    assert len(born) == 2, "one for each family that came"
    families: dict[str, set[str]] = defaultdict(set)
    for acted in practice(tmp_path):
        families[acted.id].add(acted.cell)
    assert all(len(cells) == 1 for cells in families.values())
    assert len(families) == 3
    left = [event for event in events if isinstance(event, Acted) and event.id == HOST]
    assert {event.purpose for event in left} == {"probe"}


def test_nobody_comes_where_everything_is_asked_at_once(tmp_path: Path) -> None:
    config = speciating()
    together = config.model_copy(update={"tasks": config.tasks.model_copy(update={"arrivals": ()})})
    start(together, tmp_path, host=ToyHost())
    events = read_events(tmp_path / "events.jsonl")
    assert not [one for one in events if isinstance(one, Born) and one.operator == "newcomer"]


def test_resume_equals_uninterrupted_with_arrivals_ranges_and_replay(tmp_path: Path) -> None:
    rule = {"kind": "expert_iteration", "skip": 0.0, "replay": 1.0}
    config = speciating(learning_rule=rule)
    start(config, tmp_path / "whole", host=ToyHost())
    with pytest.raises(Crash):
        start(config, tmp_path / "torn", host=ToyHost(crash_at=12))
    resume(tmp_path / "torn", host=ToyHost())
    for name in ("state.json", "events.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "torn" / name).read_bytes()


def test_moments_that_do_not_fit_are_refused() -> None:
    config = arriving()
    early = config.tasks.model_copy(update={"arrivals": (1e6,)})
    with pytest.raises(ConfigError, match="expected 2 moments, one for each family"):
        check(config.model_copy(update={"tasks": early}))
