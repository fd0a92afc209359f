"""A run beside baselines: candidates chosen anew, tables of who answers, and questions that are
asked in several ways."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from asked import answer, chosen, foreign, graded, write_items
from said import Symbiont
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.extensions.study.baselines import reselected, robustness
from symbiont_ecology.extensions.study.shifts import PERTURBATIONS
from toy import ToyHost


def test_committed_routing_differs_only_where_the_router_abstains(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    pairs = zip(
        chosen(candidates, questions, "learned"),
        chosen(candidates, questions, "committed"),
        strict=True,
    )
    assert all(left in (HOST, right) and right != HOST for left, right in pairs)


def test_a_routing_map_names_who_answers_and_is_checked(
    candidates: LoadedRun, questions: list[Item], tmp_path: Path
) -> None:
    path, known = tmp_path / "map.json", list(candidates.pool.weights)
    routing = {"kind": "map", "path": str(path)}
    path.write_text(json.dumps({"math.add": known[0], "string.sort/short": known[1]}))
    answers = candidates.evaluate(questions, ToyHost(), routing).rollouts
    for one in answers:
        wanted = {"math.add": known[0], "string.sort": known[1]}.get(one.item.family, HOST)
        assert one.organelle_id == wanted
    for text, message in (
        ("{", "cannot read"),
        ("[1]", "expected"),
        ('{"math.add": "o99"}', "is given to 'o99'"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            candidates.evaluate(questions[:1], ToyHost(), routing)


def test_reselection_judges_every_elite_on_the_same_questions_and_counts_them(
    candidates: LoadedRun,
) -> None:
    selection = candidates.items(5)
    again, cost = reselected(candidates, selection, ToyHost())
    portfolio = again.pool
    assert portfolio.source == "selection"
    assert cost.flops > cost.tokens > cost.rows > 0
    for scores in portfolio.scores.values():
        assert set(scores) == {HOST, *portfolio.elites}
    assert len(portfolio.observations) - len(candidates.pool.observations) == len(selection) * (
        1 + len(portfolio.elites)
    )
    assert portfolio.best() in portfolio.elites or portfolio.best() in portfolio.state.population


def test_brittle_is_what_is_right_as_it_stands_and_wrong_in_another_way() -> None:
    def one(name: str, way: str, verdict: float) -> Rollout:
        asked = replace(foreign(), id=f"{name} as {way}", shift="perturbed")
        return answer(asked, verdict=verdict)

    ways = list(PERTURBATIONS)
    robust = [one("a", way, 1.0) for way in ways]
    brittle = [one("b", way, float(way != ways[-1])) for way in ways]
    never = [one("c", way, 0.0) for way in ways]
    found = robustness([*robust, *brittle, *never])
    assert found["brittle"].estimate == 1 / 2
    assert found["plain"].estimate == pytest.approx(2 / 3)
    assert found[ways[-1]].estimate == pytest.approx(1 / 3)
    assert robustness(graded([1.0, 0.0]).rollouts) == {}


def test_a_perturbed_reply_counts_by_its_marks() -> None:
    ways = list(PERTURBATIONS)
    marks = {way: 0.6 if way != ways[-1] else 0.2 for way in ways}
    found = robustness(
        [
            answer(replace(foreign(), id=f"{name} as {way}", shift="perturbed"), verdict=verdict)
            for name in ("a", "b", "c")
            for way, verdict in marks.items()
        ]
    )
    assert found["brittle"].estimate == 1
    assert found["plain"].estimate == pytest.approx(0.6)


def test_baselines_ask_sft_and_candidates_that_were_chosen_anew(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(lived, tmp_path / "run"))  # its log gets new lines
    selection, sft = tmp_path / "selection.jsonl", tmp_path / "out"
    write_items(LoadedRun.of_run(run).items(3, seed=5), selection)
    index = tmp_path / "out/index.json"
    assert symbiont("export", run, "--to", sft).code == 0
    adapter = sft / json.loads(index.read_text())["best"]
    words = ["baselines", run, "--per-cell", 2, "--selection", selection, "--sft", adapter]
    said = symbiont(*words, "--selection-max-samples", 3, "--json", tmp_path / "b.json")
    assert said.code == 0, said.err
    record = json.loads((tmp_path / "b.json").read_text())
    assert set(record["systems"]) == {"host", "single", "learned", "sft", "single*", "learned*"}
    assert record["selection_flops"] > 0
    asked = symbiont("baselines", run, "--holdout", selection, "--selection", selection)
    assert asked.code == 2
    assert "expected other questions than those that are asked" in asked.error
