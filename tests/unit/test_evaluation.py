"""What a run is found to be: nothing leaks, nothing changes, and it can be found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked import accuracy, answer, foreign, graded
from runs import resume, start
from symbiont_ecology.base.errors import HostError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.statistics import mcnemar, sign_flip
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.evaluation_log import (
    EVALUATIONS_FILE,
    EvaluationSpec,
    log_evaluation,
    logged,
)
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun, difference
from symbiont_ecology.run.build import mixture
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.config import Flip
from symbiont_ecology.tasks.splits import split_of
from toy import ToyHost, toy_config

# Nothing leaks.


def test_no_holdout_question_was_ever_met_in_a_run(run: Path, candidates: LoadedRun) -> None:
    met = {
        identity
        for event in read_events(run / "events.jsonl")
        if isinstance(event, Acted)
        for identity in event.items
    }
    assert len(met) > 300
    keys = set()
    for identity in met:
        name, _, _, payload = identity.split("/", 3)
        key = tasks.build(name).split_key(payload)
        keys.add((name, key))
        assert split_of(name, key) == "train"
    prompts = {mixture(candidates.config).prompt(identity) for identity in met}
    for question in candidates.items(150):
        assert question.question
        assert question.prompt not in prompts
        assert (
            question.family,
            tasks.build(question.family).split_key(question.question),
        ) not in keys


def test_what_the_router_learns_from_holds_no_holdout_prompt(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    seen = {observation.prompt for observation in candidates.pool.observations}
    assert seen
    assert not seen & {question.prompt for question in questions}


# A run and its evaluations.


def test_evaluating_adds_a_line_to_a_log_and_changes_nothing_else(
    run: Path, questions: list[Item]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    candidates, log = LoadedRun.of_run(run), run / EVALUATIONS_FILE
    log.write_text('{"torn')
    for routing in ("learned", "host", "learned"):  # typed again, it is the same evaluation
        asked = EvaluationSpec(per_cell=60, routing=routing)
        log_evaluation(accuracy(candidates, questions, routing), candidates, asked)
    assert [line.asked["routing"] for line in logged(run)] == ["learned", "host"]
    line = json.loads(log.read_text().splitlines()[-1])
    gone = {"sha256": {}, "selection": None, "adapter": None}
    log.write_text(json.dumps(line | {"asked": line["asked"] | gone, "more": 1}))
    assert [one.routing for one in logged(run)] == ["host"], "lines of other versions are read"
    log.write_text('{"generation": "many"}')
    with pytest.raises(RunError, match=r"line 1: .*remove the line"):
        list(logged(run))
    log.unlink()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert resume(run, host=ToyHost()).is_complete


def test_another_host_cannot_answer_for_a_run(candidates: LoadedRun, questions: list[Item]) -> None:
    with pytest.raises(HostError, match=r"toy-0.*toy-9"):
        candidates.evaluate(questions, ToyHost(seed=9), "host")
    with pytest.raises(RunError):
        LoadedRun.of_run(Path("/nowhere"))


# Numbers.


@given(st.lists(st.sampled_from((0.0, 1.0)), min_size=1, max_size=60))
def test_an_accuracy_lies_within_its_interval(verdicts: list[float]) -> None:
    evaluation = graded(verdicts)
    interval = evaluation.accuracy()
    assert interval.estimate == pytest.approx(sum(verdicts) / len(verdicts))
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    assert evaluation.families["geo.capitals"].accuracy() == interval
    assert evaluation.flops == 10 * len(verdicts)
    assert json.loads(json.dumps(evaluation.record()))["questions"] == len(verdicts)


def test_a_difference_needs_the_same_questions() -> None:
    assert difference(graded([1.0] * 40), graded([0.0] * 40)).low > 0.8
    same = difference(graded([1.0, 0.0] * 20), graded([1.0, 0.0] * 20))
    assert (same.estimate, same.p, same.test) == (0, 1, "McNemar")
    changed = difference(graded([1.0] * 5 + [0.0] * 15), graded([0.0] * 5 + [1.0] * 2 + [0.0] * 13))
    assert (changed.won, changed.lost) == (5, 2)
    assert same.low == -same.high
    with pytest.raises(ValueError, match="same questions"):
        difference(graded([1.0, 0.0]), graded([1.0]))


def test_partial_verdicts_count_by_what_they_are() -> None:
    host, adapter = graded([0.4] * 40), graded([0.8] * 40)
    apart = difference(adapter, host)
    assert apart.estimate == pytest.approx(adapter.accuracy().estimate - host.accuracy().estimate)
    assert 0.3 < apart.low < apart.high < 0.5
    assert (apart.test, apart.p < 1e-4) == ("sign flip", True)
    # Many small losses and a few large gains: the test says of the mean what the interval says.
    mixed = difference(graded([0.9] * 8 + [0.5] * 12), graded([0.0] * 8 + [0.6] * 12))
    assert mixed.low > 0
    assert mixed.p < 0.05


def test_a_question_that_is_asked_in_several_ways_is_tested_by_its_mean() -> None:
    ways = [replace(foreign(number), id=f"g{number}{way}") for number in range(8) for way in "abc"]

    def answers(*verdicts: float) -> Evaluation:
        """A verdict for each way of asking."""
        rollouts = [answer(one, verdict=mark) for one, mark in zip(ways, verdicts, strict=True)]
        return Evaluation("run", "host", "toy", tuple(rollouts))

    # Six questions are won in two of three ways, two are lost in all three ways.
    apart = difference(answers(*[1, 1, 0] * 6, *[0] * 6), answers(*[0] * 18, *[1] * 6))
    assert apart.test == "sign flip"
    assert apart.estimate == pytest.approx((6 * 2 - 2 * 3) / 24)
    assert apart.p == sign_flip([2 / 3] * 6 + [-1.0] * 2)
    once = difference(graded([1.0] * 6 + [0.0] * 2), graded([0.0] * 6 + [1.0] * 2))
    assert (once.test, once.p) == ("McNemar", mcnemar(6, 2))


def test_a_run_whose_world_changed_for_good_is_judged_by_what_holds_there(tmp_path: Path) -> None:
    plan = toy_config(0, 6)
    flip = Flip(families=plan.tasks.families[:1], at_flops=1.0)
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})
    start(plan, tmp_path / "run", host=ToyHost())
    family = tasks.build(flip.families[0])
    asked = LoadedRun.of_run(tmp_path / "run").items(3)
    variants = {one.variant for one in asked if one.family == family.name}
    assert variants == {family.flipped().convention}
