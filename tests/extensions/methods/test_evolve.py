"""``symbiont evolve``: trainings that evolve, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Scored
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.evoscope.history import History
from symbiont_ecology.extensions.evoscope.methods import lives_of


@pytest.fixture
def quick(host: Path) -> list[str]:
    """Two lives of four variants on a host that answers rubbish."""
    return [
        "evolve",
        f"host.model={host}",
        "tasks.families=[math.add,word.count]",
        "host.rank=2",
        "strategy.ranks=[1,2]",
        "--quick-test",
    ]


def test_every_life_has_a_ranked_table_and_the_end_a_tree(
    symbiont: Symbiont, quick: list[str], tmp_path: Path
) -> None:
    said = symbiont(*quick, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "life 1" in said.out
    assert "life 2" in said.out
    assert said.out.count("survived") == 4
    assert said.out.count("eliminated") == 4
    assert "variants\n├── " in said.out
    assert f"run in {tmp_path / 'run'}" in said.out.replace("\n", " ")
    assert "evolve --resume" in said.out
    lives = lives_of(History.of_run(tmp_path / "run"))
    assert [life.number for life in lives] == [1, 2]
    for life in lives:
        fitness = [one.fitness for one in life.ranking]
        assert fitness == sorted(fitness, reverse=True)
        assert life.survivors == {one.id for one in life.ranking[:2]}


def test_a_resume_goes_on_and_examines_nobody_again(
    symbiont: Symbiont, quick: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert symbiont(*quick, "--out", run).code == 0
    said = symbiont("evolve", "--resume", run, "--generations", "3")
    assert said.code == 0, said.err
    assert "life 3" in said.out
    scored = [e for e in read_events(run / "events.jsonl") if isinstance(e, Scored)]
    assert len({event.id for event in scored}) == len(scored)


def test_a_plan_of_a_resume_lives_nothing(
    symbiont: Symbiont, quick: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert symbiont(*quick, "--generations", "1", "--out", run).code == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    said = symbiont("evolve", "--resume", run, "--generations", "3", "--dry-run")
    assert said.code == 0, said.err
    lives = 3 * load_state(run).generation
    assert f"{lives} generations" in said.out
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["steady"], "evolve varies trainings, so expected hyper, got 'ecology'"),
        (["loralab", "ga-gpt2"], "expected one config, got loralab ga-gpt2"),
        (["--population", "2"], "strategy.elite: expected less than strategy.population (2)"),
        (["--resume", "nowhere"], "no run in nowhere"),
        (["--resume", "--out", "other"], "leave --out and --quick-test out"),
        (["--resume"], "expected the folder of a run, got none"),
        (["lorelab"], "did you mean 'loralab'?"),
    ],
)
def test_a_mistake_is_one_line(symbiont: Symbiont, words: list[str], message: str) -> None:
    assert message in symbiont("evolve", *words).error
