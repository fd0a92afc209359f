"""What a run is found to be: nothing leaks, nothing changes, and it can be found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked import accuracy, answer, foreign, graded
from symbiont_ecology.base.errors import HostError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Settled
from symbiont_ecology.base.statistics import mcnemar, sign_flip
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.evaluation_log import (
    EVALUATIONS_FILE,
    EvaluationSpec,
    log_evaluation,
    logged,
)
from symbiont_ecology.evaluate.first_look import StyleLook
from symbiont_ecology.evaluate.measure import ANSWERS_FILE, Evaluation, LoadedRun, difference
from symbiont_ecology.extensions.study.outcomes import run_summary
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.start import resume, start
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
    assert evaluation.by_family() == {"geo.capitals": interval}
    assert evaluation.flops == 10 * len(verdicts)
    assert json.loads(json.dumps(evaluation.record()))["questions"] == len(verdicts)


def test_a_difference_needs_the_same_questions() -> None:
    assert difference(graded([1.0] * 40), graded([0.0] * 40)).low > 0.8
    same = difference(graded([1.0, 0.0] * 20), graded([1.0, 0.0] * 20))
    assert (same.estimate, same.p, same.test) == (0, 1, "McNemar")
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


def test_a_look_counts_as_right_what_has_half_of_the_marks() -> None:
    def look(mark: float) -> StyleLook:
        replies = [answer(foreign(number), verdict=mark) for number in range(4)]
        return StyleLook(prompt_styles.build("terse"), {"a/b": [replies[:2], replies[2:]]})

    few, half = look(0.1), look(0.5)
    assert set(few.shares().values()) == {0.0}
    assert set(half.shares("a/b").values()) == {1.0}
    assert (few.silent, half.silent) == (["a/b"], [])


def test_one_partial_verdict_less_is_another_evaluation() -> None:
    whole = hashlib.blake2b(bytes([1, 0, 1]), digest_size=8).hexdigest()
    assert graded([1.0, 0.0, 1.0]).verdicts_digest == whole
    partial = [graded([1.0, 0.0, one]).verdicts_digest for one in (0.8, 0.3, 1.0, 0.0)]
    assert len(set(partial)) == 4


def test_a_reply_is_right_if_it_has_half_of_the_marks() -> None:
    rows = graded([0.1, 0.5, 1.0]).record()["items"]
    assert isinstance(rows, list)
    assert [(row["verdict"], row["right"]) for row in rows] == [
        (0.1, False),
        (0.5, True),
        (1.0, True),
    ]


def test_a_run_whose_world_changed_for_good_is_judged_by_what_holds_there(tmp_path: Path) -> None:
    plan = toy_config(0, 6)
    flip = Flip(families=plan.tasks.families[:1], at_flops=1.0)
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})
    start(plan, tmp_path / "run", host=ToyHost())
    family = tasks.build(flip.families[0])
    asked = LoadedRun.of_run(tmp_path / "run").items(3)
    assert {one.variant for one in asked if one.family == family.name} == {family.rarest}


def test_a_biography_adds_up(run: Path) -> None:
    events, state = list(read_events(run / "events.jsonl")), checkpoint.load_state(run)
    life = run_summary(events)
    founders = sum(isinstance(event, Born) and not event.parents for event in events)
    assert len(state.population) == founders + life.births - life.deaths
    assert life.earned == sum(event.revenue for event in events if isinstance(event, Settled))


def test_an_evaluation_can_be_made_again_after_the_run_went_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(toy_config(generations=4), folder, host=ToyHost())
    then = LoadedRun.of_run(folder)
    asked = EvaluationSpec(per_cell=9, routing="single")
    log_evaluation(asked.evaluate(then, ToyHost()), then, asked)
    resume(folder, overrides=["run.generations=12"], host=ToyHost())
    now = LoadedRun.of_run(folder)
    log_evaluation(asked.evaluate(now, ToyHost()), now, asked)
    found = list(repeat_evaluations(folder, ToyHost()))
    assert [(one.generation, one.is_same) for one in found] == [(4, True), (12, True)]
    log = folder / "evaluations.jsonl"
    log.write_text(log.read_text().replace('"verdicts_digest": "', '"verdicts_digest": "0'))
    assert [one.is_same for one in repeat_evaluations(folder, ToyHost())] == [False, False]
    with pytest.raises(RunError, match="7 was not kept"):
        LoadedRun.of_run(folder, 7)


def test_an_evaluation_goes_with_its_run_files_and_all(tmp_path: Path) -> None:
    start(toy_config(generations=4), tmp_path / "run", host=ToyHost())
    candidates = LoadedRun.of_run(tmp_path / "run")
    path = tmp_path / "holdout.jsonl"
    write_items(candidates.items(2), path)
    asked = EvaluationSpec(holdout=str(path), most_asked=3)
    with (tmp_path / "run/evaluations.jsonl").open("w") as file:
        file.write('{"torn')
    log_evaluation(asked.evaluate(candidates, ToyHost()), candidates, asked)
    path.unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    (found,) = repeat_evaluations(tmp_path / "moved", ToyHost())
    assert found.is_same, found
    assert found.line == 2


def test_an_evaluation_of_a_file_that_changed_is_not_made_again(tmp_path: Path) -> None:
    start(toy_config(generations=4), tmp_path / "run", host=ToyHost())
    candidates, path = LoadedRun.of_run(tmp_path / "run"), tmp_path / "holdout.jsonl"
    write_items(candidates.items(2), path)
    asked = EvaluationSpec(holdout=str(path))
    log_evaluation(asked.evaluate(candidates, ToyHost()), candidates, asked)
    ((_, line),) = logged(tmp_path / "run")
    assert line.spec(tmp_path / "nothing") == asked
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DataError, match="is not the file that was asked"):
        line.spec(tmp_path / "nothing")


def test_lines_of_earlier_versions_and_of_extensions_are_read(tmp_path: Path) -> None:
    start(toy_config(generations=4), tmp_path / "run", host=ToyHost())
    run, asked = LoadedRun.of_run(tmp_path / "run"), EvaluationSpec(per_cell=2)
    log_evaluation(asked.evaluate(run, ToyHost()), run, asked)
    log = tmp_path / "run/evaluations.jsonl"
    line = json.loads(log.read_text())
    gone = {"seed": 0, "selection": None, "most": None, "routing_map": None, "adapter": None}
    old = {**line, "asked": {**line["asked"], **gone}}
    by_selection = {**line, "asked": {**line["asked"], "selection": "x.jsonl"}}
    log.write_text("\n".join(map(json.dumps, (old, by_selection))))
    assert [(one.line, one.is_same) for one in repeat_evaluations(log.parent, ToyHost())] == [
        (1, True)
    ]
