"""Questions that nobody trained on, files of questions, and who of a run answers them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symbiont_ecology.config import Flip
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError, DataError, HostError, RunError
from symbiont_ecology.evaluation.answers import Answer, Examiner
from symbiont_ecology.evaluation.biography import biography
from symbiont_ecology.evaluation.book import AnswerBook
from symbiont_ecology.evaluation.exam import Asked, again
from symbiont_ecology.evaluation.measure import ANSWERS_FILE, Candidates, Evaluation, difference, note
from symbiont_ecology.evaluation.portfolio import Portfolio, elite_id
from symbiont_ecology.evaluation.questions import (
    DEFAULT_REPLY_LIMIT,
    Question,
    draw_questions,
    families_of,
    read_questions,
    write_questions,
)
from symbiont_ecology.evaluation.robustness import robustness
from symbiont_ecology.evaluation.routings import ROUTINGS, find_routing, mapped
from symbiont_ecology.evaluation.shifts import PERTURBATIONS, SHIFTS, draw_shifts
from symbiont_ecology.evaluation.transfer import transfer
from symbiont_ecology.events import Acted, Born, Retired, Settled, read_events
from symbiont_ecology.tasks import prompt_styles, task_families
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import split_of
from toy import ToyHost, toy_config, toy_ecology

FAMILIES = ("math.add", "string.sort", "logic.bool", "countdown")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy ecology that has learned."""
    folder = tmp_path_factory.mktemp("evaluation") / "run"
    strategy = toy_ecology(founders=4, capacity=6, learning_rate=0.15, probes=3)
    router = {"kind": "lexical", "features": 256}
    start(
        toy_config(generations=40, families=FAMILIES, strategy=strategy, router=router),
        folder,
        host=ToyHost(),
    )
    return folder


@pytest.fixture(scope="module")
def candidates(run: Path) -> Candidates:
    return Candidates.of_run(run)


@pytest.fixture(scope="module")
def questions(candidates: Candidates) -> list[Question]:
    return candidates.questions(60)


def tasks_of(*names: str, style: str = "terse") -> TaskMixture:
    return TaskMixture(names, ("short", "long"), prompt_styles.build(style))


def foreign(number: int = 0, **changes: str) -> Question:
    fields = {"prompt": f"capital of {number}?", "target": "Paris", "family": "geo.capitals", "depth": "easy"}
    return Question(f"g{number}", reply_limit=DEFAULT_REPLY_LIMIT, **(fields | changes))


# Drawing.


def test_questions_are_drawn_by_seed_and_differ_within_a_cell() -> None:
    tasks = tasks_of("math.add", "countdown")
    drawn = draw_questions(tasks, 30, seed=1)
    assert drawn == draw_questions(tasks, 30, seed=1)
    assert drawn != draw_questions(tasks, 30, seed=2)
    assert len({question.id for question in drawn}) == len(drawn) == 120
    assert Counter((question.family, question.depth) for question in drawn) == dict.fromkeys(tasks.cells, 30)
    assert families_of(drawn) == ["math.add", "countdown"]
    for question in drawn:
        assert question.item is not None
        assert (
            split_of(question.family, task_families.build(question.family).split_key(question.item.payload))
            == "holdout"
        )
        assert question.verdict(question.target) == 1.0
        assert question.verdict("") == 0.0


def test_a_cell_with_fewer_payloads_gives_all_that_it_has() -> None:
    tasks = TaskMixture(("math.sequence",), ("short",), prompt_styles.build("terse"))
    drawn = draw_questions(tasks, 2000)
    assert 200 <= len(drawn) < 2000
    assert len({question.prompt for question in drawn}) == len(drawn)


# Files.


@pytest.mark.parametrize("style", prompt_styles.names())
def test_drawn_questions_survive_a_round_trip_through_a_file(style: str, tmp_path: Path) -> None:
    drawn = draw_questions(tasks_of(*task_families.names()), 3)
    if style != "terse":
        tasks = tasks_of(*task_families.names(), style=style)
        drawn = [replace(question, prompt=tasks.prompt(question.item)) for question in drawn if question.item]
    write_questions(drawn, tmp_path / "deep/holdout.jsonl")
    assert read_questions(tmp_path / "deep/holdout.jsonl") == drawn


@example(prompt="a\u2028b\x85c\x0bd", target="x")
@given(prompt=st.text(min_size=1), target=st.text().filter(str.strip))
def test_any_text_survives_a_round_trip_through_a_file(
    tmp_path_factory: pytest.TempPathFactory, prompt: str, target: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    asked = [foreign(prompt=prompt, target=target), foreign(1)]
    write_questions(asked, path)
    assert read_questions(path) == asked


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt":"p","family":"f","depth":"d"}', "target"),
        ('{"prompt":"p","target":"","family":"f","depth":"d"}', "target"),
        ('{"prompt":"p","target":"  ","family":"f","depth":"d"}', "target"),
        ('{"prompt":"p","target":null,"family":"f","depth":"d"}', "target"),
        ('{"prompt":"p","target":7,"family":"f","depth":"d"}', "target"),
        ('{"target":"t","family":"f","depth":"d"}', "prompt"),
        ('{"prompt":"","target":"t","family":"f","depth":"d"}', "prompt"),
        ('{"prompt":"p","target":"t","depth":"d"}', "family"),
        ('{"prompt":"p","target":"t","family":"f"}', "depth"),
        ('{"prompt":"p"', "not JSON"),
        ("[1, 2]", "object"),
        ('"text"', "object"),
        (
            '{"prompt":"p","target":"=9","family":"math.add","depth":"short","payload":"4+4","convention":1}',
            "'=8'",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"short","payload":"4-4","convention":1}',
            "payload",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"deep","payload":"4+4","convention":1}',
            "depth",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"short","payload":"4+4","convention":3}',
            "convention",
        ),
        (
            '{"prompt":"p","target":"=8","family":"math.add","depth":"short","payload":"4+4","convention":[]}',
            "convention",
        ),
        (
            '{"prompt":"p","target":"8","family":"countdown","depth":"long","payload":"1 2","convention":0}',
            "payload",
        ),
        (
            '{"prompt":"p","target":"x","family":"text.concise","depth":"short","payload":"","convention":0}',
            "payload",
        ),
    ],
)
def test_a_line_that_breaks_the_schema_is_refused_with_its_number(
    line: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "holdout.jsonl"
    write_questions([foreign()], path)
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(DataError, match="line 3") as refused:
        read_questions(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("empty.jsonl", "binary.jsonl", "missing.jsonl"):
        with pytest.raises(DataError, match=name):
            read_questions(tmp_path / name)


@given(identity=st.integers() | st.booleans() | st.text(min_size=1))
def test_a_line_names_itself_or_is_named_by_its_place(
    tmp_path_factory: pytest.TempPathFactory, identity: int | str
) -> None:
    path = tmp_path_factory.mktemp("ids") / "ids.jsonl"
    row = {"prompt": "p", "target": "t", "family": "f", "depth": "d"}
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "task_id": identity}) + "\n")
    first, second = read_questions(path)
    assert first.id == f"{path} line 1"
    assert second.id == str(identity)


def test_a_line_of_a_known_family_without_payload_has_its_reply_limit_and_exact_grading(
    tmp_path: Path,
) -> None:
    path = tmp_path / "known.jsonl"
    path.write_text('{"prompt":"countdown: 3 8 = 11","target":"8+3","family":"countdown","depth":"short"}\n')
    (question,) = read_questions(path)
    assert question.reply_limit == task_families.build("countdown").reply_limit("short")
    assert [question.verdict(reply) for reply in ("8+3", "3+8")] == [1.0, 0.0]


def test_a_family_from_elsewhere_is_graded_by_its_exact_final_answer() -> None:
    question = foreign()
    for reply in ("Paris", " Paris \n", "The answer is Paris.", "`Paris`", "```\nParis\n```", "Hm.\nParis"):
        assert question.verdict(reply) == 1.0, reply
    for reply in ("", "paris", "Paris, France", "London", "Paris\nLondon", "Paris London"):
        assert question.verdict(reply) == 0.0, reply
    assert foreign(target="Paris\n").verdict("Paris") == 1.0


# Nothing leaks.


def test_no_holdout_question_was_ever_met_in_a_run(run: Path, candidates: Candidates) -> None:
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
        key = task_families.build(name).split_key(payload)
        keys.add((name, key))
        assert split_of(name, key) == "train"
    prompts = {mixture(candidates.config).prompt(task_families.build(name).item(payload, "short"))
               for name, _, _, payload in (identity.split("/", 3) for identity in met)}  # fmt: skip
    for question in candidates.questions(150):
        assert question.item is not None
        assert question.prompt not in prompts
        assert (
            question.family,
            task_families.build(question.family).split_key(question.item.payload),
        ) not in keys


def test_what_the_router_learns_from_holds_no_holdout_prompt(
    candidates: Candidates, questions: list[Question]
) -> None:
    seen = {observation.prompt for observation in candidates.portfolio.observations}
    assert seen
    assert not seen & {question.prompt for question in questions}


# Routing.


def accuracy(candidates: Candidates, questions: list[Question], routing: str) -> Evaluation:
    return candidates.evaluate(questions, ToyHost(), routing)


def chosen(candidates: Candidates, questions: list[Question], routing: str) -> list[str]:
    return [one.who for one in accuracy(candidates, questions, routing).answers]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_routing_answers_in_order_by_somebody_who_can_be_asked(
    routing: str, candidates: Candidates, questions: list[Question]
) -> None:
    answers = accuracy(candidates, questions, routing).answers
    assert [one.question for one in answers] == questions
    assert {one.who for one in answers} <= {HOST, *candidates.portfolio.weights}


def test_a_routing_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"expected one of host, .* got 'learnd'.*'learned'"):
        find_routing("learnd")


def test_host_and_single_send_everything_to_one(candidates: Candidates, questions: list[Question]) -> None:
    assert set(chosen(candidates, questions, "host")) == {HOST}
    assert set(chosen(candidates, questions, "single")) == {candidates.portfolio.best()}
    assert candidates.portfolio.best() in candidates.portfolio.state.population


def test_cell_routing_asks_the_elite_of_the_true_cell(
    candidates: Candidates, questions: list[Question]
) -> None:
    elites = candidates.portfolio.state.archive.elites
    for question, who in zip(questions, chosen(candidates, questions, "cell"), strict=True):
        assert who == (elite_id(elites[question.cell]) if question.cell in elites else HOST)
    assert chosen(candidates, [foreign()], "cell") == [HOST]


def test_family_routing_asks_an_elite_of_the_true_family(
    candidates: Candidates, questions: list[Question]
) -> None:
    elites = candidates.portfolio.state.archive.elites
    for question, who in zip(questions, chosen(candidates, questions, "family"), strict=True):
        assert who in {
            elite_id(one) for cell, one in elites.items() if cell.startswith(f"{question.family}/")
        }


def test_learned_routing_reads_the_prompt_alone(candidates: Candidates, questions: list[Question]) -> None:
    disguised = [replace(q, family="unknown", depth="none", target="?", id="x", item=None) for q in questions]
    assert chosen(candidates, disguised, "learned") == chosen(candidates, questions, "learned")


def test_committed_routing_differs_only_where_the_router_abstains(
    candidates: Candidates, questions: list[Question]
) -> None:
    pairs = zip(
        chosen(candidates, questions, "learned"), chosen(candidates, questions, "committed"), strict=True
    )
    assert all(left in (HOST, right) and right != HOST for left, right in pairs)


def test_a_vote_and_a_cascade_pay_for_everyone_they_ask(
    candidates: Candidates, questions: list[Question]
) -> None:
    alone = accuracy(candidates, questions, "learned")
    assert accuracy(candidates, questions, "vote").flops > alone.flops
    lone = replace(candidates, portfolio=replace(candidates.portfolio, elites=()))
    assert chosen(lone, questions, "vote") == chosen(lone, questions, "cascade") == [HOST] * len(questions)


def test_a_cascade_asks_on_while_nobody_is_sure_and_keeps_the_surest(
    candidates: Candidates, questions: list[Question]
) -> None:
    first, second, third = -0.2, -0.1, -0.3
    asked: list[int] = []

    def ask(some: Sequence[Question], whom: Sequence[str]) -> list[Answer]:
        asked.append(len(some))
        level = (first, second, third)[len(asked) - 1]
        # Every other question is answered with certainty, at the first attempt.
        return [
            Answer(one, who, "", 1.0, Cost(flops=7), 0.0 if len(asked) == 1 and index % 2 else level)
            for index, (one, who) in enumerate(zip(some, whom, strict=True))
        ]

    answers = find_routing("cascade")(candidates.portfolio, questions[:10], ask)
    assert asked == [10, 5, 5]
    assert [one.flops for one in answers] == [21, 7] * 5
    assert [one.confidence for one in answers] == [second, 0.0] * 5


def test_a_routing_map_names_who_answers_and_is_checked(
    candidates: Candidates, questions: list[Question], tmp_path: Path
) -> None:
    path, known = tmp_path / "map.json", list(candidates.portfolio.weights)
    path.write_text(json.dumps({"math.add": known[0], "string.sort/short": known[1]}))
    answers = candidates.evaluate(questions, ToyHost(), "map", way=mapped(path, known)).answers
    for one in answers:
        wanted = {"math.add": known[0], "string.sort": known[1]}.get(one.question.family, HOST)
        assert one.who == wanted
    for text, message in (
        ("{", "cannot read"),
        ("[1]", "expected"),
        ('{"math.add": "o99"}', "is given to 'o99'"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            mapped(path, known)


# Selection and the book of answers.


def test_reselection_judges_every_elite_on_the_same_questions_and_counts_them(
    candidates: Candidates, questions: list[Question]
) -> None:
    selection = candidates.questions(5)
    again = candidates.reselected(selection, ToyHost())
    portfolio = again.portfolio
    assert portfolio.source == "selection"
    assert again.selection.flops > again.selection.tokens > again.selection.rows > 0
    for scores in portfolio.scores.values():
        assert set(scores) == {HOST, *portfolio.elites}
    assert len(portfolio.observations) - len(candidates.portfolio.observations) == len(selection) * (
        1 + len(portfolio.elites)
    )
    assert accuracy(again, questions, "single").judged_by == "selection"
    assert portfolio.best() in portfolio.elites or portfolio.best() in portfolio.state.population


def test_what_was_answered_once_is_not_asked_again(
    candidates: Candidates, questions: list[Question], tmp_path: Path
) -> None:
    book, host = AnswerBook(tmp_path / "answers.sqlite"), ToyHost()
    examiner = Examiner(host, candidates.portfolio.weights, book)
    who = [candidates.portfolio.best()] * len(questions)
    first = examiner.ask(questions, who)
    asked = sum(host.rolled)
    assert examiner.ask(questions[::-1], who) == first[::-1]
    assert sum(host.rolled) == asked
    other = replace(questions[0], prompt=questions[1].prompt + " ")
    examiner.ask([other], who[:1])
    assert sum(host.rolled) == asked + 1
    (tmp_path / "no.sqlite").write_text("this is no book of answers, though it is long enough to be one")
    with pytest.raises(RunError, match="cannot keep answers"):
        AnswerBook(tmp_path / "no.sqlite")


@pytest.mark.parametrize("shift", SHIFTS)
def test_every_shift_draws_holdout_questions_that_gold_answers(shift: str, candidates: Candidates) -> None:
    tasks = mixture(candidates.config)
    drawn = draw_shifts(tasks, [shift], 4)
    assert drawn == draw_shifts(tasks, [shift], 4)
    assert {one.shift for one in drawn} == {shift}
    assert len({one.id for one in drawn}) == len(drawn)
    for one in drawn:
        assert one.item is not None
        assert one.verdict(one.target) == 1
        key = task_families.build(one.family).split_key(one.item.payload)
        assert split_of(one.family, key) == "holdout"
    is_other = shift.endswith("families") or shift == "composition"
    assert bool({one.family for one in drawn} & set(FAMILIES)) is not is_other


def test_retention_asks_for_both_conventions_that_are_not_the_target(candidates: Candidates) -> None:
    drawn = draw_shifts(mixture(candidates.config), ["retention"], 4)
    for name in FAMILIES:
        asked = {one.item.convention for one in drawn if one.family == name and one.item is not None}
        assert asked == {0, 1, 2} - {task_families[name].target}


def test_routed_portfolios_beat_the_bare_host(candidates: Candidates, questions: list[Question]) -> None:
    bare = accuracy(candidates, questions, "host")
    for routing in ("single", "cell", "learned"):
        gain = difference(accuracy(candidates, questions, routing), bare)
        assert gain.low > 0.1, (routing, gain)
    assert 0.1 < bare.accuracy().estimate < 0.6


def test_evaluating_changes_nothing_of_the_run(run: Path, questions: list[Question]) -> None:
    before = {
        path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "answers" not in path.name
    }
    candidates = Candidates.of_run(run)
    evaluation = accuracy(candidates, questions, "learned")
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in run.rglob("*") if path.is_file()} - {p.name for p in before} == {
        ANSWERS_FILE
    }
    note(evaluation, candidates, Asked(per_cell=60).record())
    assert (
        json.loads((run / "evaluations.jsonl").read_text())["accuracy"]["estimate"]
        == evaluation.accuracy().estimate
    )
    assert [one.is_same for one in again(run, ToyHost())] == [True]
    (run / "evaluations.jsonl").unlink()
    assert resume(run, host=ToyHost()).is_complete


def test_another_host_cannot_answer_for_a_run(candidates: Candidates, questions: list[Question]) -> None:
    with pytest.raises(HostError, match=r"toy-0.*toy-9"):
        candidates.evaluate(questions, ToyHost(seed=9), "host")
    with pytest.raises(RunError):
        Candidates.of_run(Path("/nowhere"))


@pytest.mark.parametrize("slots", [1, 2, 32])
def test_answers_come_in_the_order_of_the_questions_whatever_the_slots(
    slots: int, candidates: Candidates, questions: list[Question]
) -> None:
    weights = candidates.portfolio.weights
    whom = chosen(candidates, questions, "cell")
    found = Examiner(ToyHost(slots=slots), weights).ask(questions, whom)
    assert [one.question for one in found] == questions
    assert [one.who for one in found] == whom
    assert found == Examiner(ToyHost(), weights).ask(questions, whom)
    assert Examiner(ToyHost(), weights).ask([], []) == []


def test_a_portfolio_of_a_run_that_goes_on_stops_at_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(toy_config(generations=5), folder, host=ToyHost())
    state, config = checkpoint.load(folder), toy_config(generations=5)
    before = Portfolio.of_run(folder, state, config).observations
    last = (folder / "events.jsonl").read_text().splitlines()[-1]
    acted = next(e for e in read_events(folder / "events.jsonl") if isinstance(e, Acted) and e.id == HOST)
    assert json.loads(last)["seq"] == state.next_seq - 1
    row = {"seq": state.next_seq, "kind": "Acted", **vars(acted)}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert Portfolio.of_run(folder, state, config).observations == before


def test_questions_are_judged_in_the_conventions_that_are_in_force() -> None:
    flip = Flip(families=("math.add",), at_flops=10.0, back_flops=20.0)
    tasks = replace(tasks_of("math.add", "string.sort"), flip=flip)
    for flops, is_flipped in ((0, False), (10, True), (19, True), (20, False)):
        for one in draw_questions(tasks.at(flops), 3):
            family = task_families.build(one.family)
            wanted = family.rarest if is_flipped and one.family == "math.add" else family.target
            assert one.item is not None
            assert one.item.convention == wanted
            assert one.target == family.answers(one.item.payload)[wanted]


# Numbers.


def graded(verdicts: list[float], routing: str = "host") -> Evaluation:
    answers = [
        Answer(foreign(number), HOST, "", verdict, Cost(flops=10)) for number, verdict in enumerate(verdicts)
    ]
    return Evaluation("run", routing, "toy", tuple(answers))


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
    assert difference(graded([1.0] * 40), graded([0.0] * 40)).low > 0.9
    same = difference(graded([1.0, 0.0] * 20), graded([1.0, 0.0] * 20))
    assert (same.low, same.estimate, same.high) == (0, 0, 0)
    with pytest.raises(ValueError, match="same questions"):
        difference(graded([1.0, 0.0]), graded([1.0]))


def test_a_biography_adds_up(run: Path) -> None:
    events, state = list(read_events(run / "events.jsonl")), checkpoint.load(run)
    life = biography(events)
    assert life.generations == state.generation == 40
    assert life.alive == life.founders + life.births - life.deaths == len(state.population)
    assert life.founders + life.births == sum(isinstance(event, Born) for event in events)
    assert life.deaths == sum(isinstance(event, Retired) for event in events)
    assert life.held == sum(state.ledger.balances.values())
    assert life.train_flops == state.budget.train.flops
    assert life.earned == sum(event.revenue for event in events if isinstance(event, Settled))


# Robustness and transfer.


def test_brittle_is_what_is_right_as_it_stands_and_wrong_in_another_way() -> None:
    def one(name: str, way: str, verdict: float) -> Answer:
        asked = replace(foreign(), id=f"{name} as {way}", shift="perturbed")
        return Answer(asked, HOST, "", verdict, Cost())

    ways = list(PERTURBATIONS)
    robust = [one("a", way, 1.0) for way in ways]
    brittle = [one("b", way, float(way != ways[-1])) for way in ways]
    never = [one("c", way, 0.0) for way in ways]
    found = robustness([*robust, *brittle, *never])
    assert found["brittle"]["estimate"] == 1 / 2
    assert found["accuracy"]["plain"]["estimate"] == pytest.approx(2 / 3)
    assert found["accuracy"][ways[-1]]["estimate"] == pytest.approx(1 / 3)
    assert robustness(graded([1.0, 0.0]).answers) == {}


def test_transfer_tells_the_own_family_from_the_others(candidates: Candidates) -> None:
    found = transfer(candidates, candidates.questions(25), ToyHost())
    assert set(found["accuracy"]) == set(found["host"]) == set(FAMILIES)
    assert set(found["organelles"].values()) <= {HOST, *candidates.portfolio.elites}
    assert found["gain"]["own"] > 0.2
    assert found["gain"]["own"] > found["gain"]["others"]


def test_an_evaluation_can_be_made_again_after_the_run_went_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(toy_config(generations=4), folder, host=ToyHost())
    then = Candidates.of_run(folder)
    asked = Asked(per_cell=9, routing="single")
    note(then.evaluate(asked.questions(then), ToyHost(), "single"), then, asked.record())
    resume(folder, overrides=["run.generations=12"], host=ToyHost())
    now = Candidates.of_run(folder)
    note(now.evaluate(asked.questions(now), ToyHost(), "single"), now, asked.record())
    found = list(again(folder, ToyHost()))
    assert [(one.generation, one.is_same) for one in found] == [(4, True), (12, True)]
    log = folder / "evaluations.jsonl"
    log.write_text(log.read_text().replace('"verdicts_digest": "', '"verdicts_digest": "0'))
    assert [one.is_same for one in again(folder, ToyHost())] == [False, False]
    with pytest.raises(RunError, match="7 was not kept"):
        Candidates.of_run(folder, 7)


def test_an_evaluation_of_a_file_that_changed_is_not_made_again(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "holdout.jsonl"
    write_questions(Candidates.of_run(run).questions(2), path)
    record = Asked(holdout=str(path)).record()
    assert Asked.of_record(record) == Asked(holdout=str(path))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DataError, match="is not the file that was asked"):
        Asked.of_record(record)
