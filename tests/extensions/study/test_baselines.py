"""A run beside SFT, the oracle that reads families, and the best of each family on all families."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from asked import FAMILIES, chosen
from runs import start
from said import Symbiont
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.base.types import Item, cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.pool import elite_id
from symbiont_ecology.extensions.study.baselines import transfer_matrix
from toy import ToyHost, toy_config


def test_family_routing_asks_an_elite_of_the_true_family(
    candidates: LoadedRun, questions: list[Item]
) -> None:
    elites = candidates.pool.state.archive.elites
    for question, organelle_id in zip(
        questions, chosen(candidates, questions, "family"), strict=True
    ):
        assert organelle_id in {
            elite_id(one) for cell, one in elites.items() if cell.startswith(f"{question.family}/")
        }


def test_who_only_read_reference_answers_is_asked_about_what_it_read(tmp_path: Path) -> None:
    strategy = {"kind": "independent", "questions": 3, "samples": 0, "learning_rate": 0.1}
    config = toy_config(generations=6, strategy=strategy, learning_rule="supervised")
    start(config, tmp_path, host=ToyHost())
    run = LoadedRun.of_run(tmp_path)
    acted = [one for one in read_events(tmp_path / "events.jsonl") if isinstance(one, Acted)]
    readers = {cell_family(one.cell): one.id for one in acted if one.id != HOST}
    questions = run.items(12)
    asked = chosen(run, questions, "family")
    assert asked == [readers[question.family] for question in questions]
    assert len(set(asked)) == len(config.tasks.families)


def test_transfer_tells_the_own_family_from_the_others(candidates: LoadedRun) -> None:
    found = transfer_matrix(candidates, candidates.items(25), ToyHost())
    assert set(found["accuracy"]) == set(found["host"]) == set(FAMILIES)
    assert set(found["organelles"].values()) <= {HOST, *candidates.pool.elites}
    assert found["gain"]["own"] > max(found["gain"]["others"], 0.2)


def test_baselines_ask_sft_beside_the_run_and_keep_all_of_it(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    run, out = Path(shutil.copytree(lived, tmp_path / "run")), tmp_path / "out"
    assert symbiont("export", run, "--to", out).code == 0
    adapter = out / json.loads((out / "index.json").read_text())["best"]
    words = ("baselines", run, "--per-cell", 2, "--sft", adapter, "--json", tmp_path / "b.json")
    said = symbiont(*words)
    assert said.code == 0, said.err
    record = json.loads((tmp_path / "b.json").read_text())
    assert set(record["systems"]) == {"host", "single", "learned", "sft"}
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["routing"] for line in lines] == ["host", "single", "learned", "sft"]
