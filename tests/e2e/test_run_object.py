"""A run as an object, on the embedded host: lived, left, opened again, asked, kept."""

from __future__ import annotations

from operator import is_
from pathlib import Path

import pytest

from symbiont_ecology import Run
from symbiont_ecology.base.errors import ConfigError, DataError, RunError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of six generations that was left after three of them, and finished."""
    folder = tmp_path_factory.mktemp("run") / "mine"
    mine = Run.start("base", "seed=3", "run.generations=6", folder=folder)
    assert repr(mine) == f"<Run {folder}: not started>"
    for generation in mine:
        if generation.summary.generation == 2:
            break
    opened = Run.open(folder, host=mine.host)
    assert opened.state.generation == 3
    assert not opened.is_complete
    return opened.finish()


def test_a_run_that_was_left_equals_one_that_was_not(run: Run, tmp_path: Path) -> None:
    whole = Run.start(run.config, folder=tmp_path / "whole", host=run.host).finish()
    for name in ("state.json", "events.jsonl"):
        assert (whole.folder / name).read_bytes() == (run.folder / name).read_bytes()


def test_its_folder_is_read_again_only_after_a_change(run: Run, tmp_path: Path) -> None:
    changes = "seed=3", "run.generations=3", "run.checkpoint_every=1"
    lived = Run.start("base", *changes, folder=tmp_path / "lived", host=run.host)
    for generation in lived:
        read = lived.state, lived.loaded, lived.events
        assert all(map(is_, read, (lived.state, lived.loaded, lived.events)))
        assert lived.state.generation == generation.summary.generation + 1
        assert lived.loaded.pool.state.generation == lived.state.generation
        assert len(lived.events.GenerationEnded) == lived.state.generation


def test_events_are_a_frame_per_kind(run: Run) -> None:
    assert list(run.events.Born.operator) == ["founder"]
    assert len(run.events.GenerationEnded) == 6
    assert run.events.Retired.empty
    with pytest.raises(AttributeError, match="known: "):
        _ = run.events.Unheard


def test_it_answers_and_its_best_goes_elsewhere(run: Run, tmp_path: Path) -> None:
    from peft import PeftConfig

    assert run.ask("math.add: 47+8").text
    best = run.best
    assert best.id in run.population
    assert best.age == 6
    adapter = best.save_peft(tmp_path / "adapter")
    assert PeftConfig.from_pretrained(adapter).r == best.organelle.genome.rank
    assert 0 <= run.evaluate(per_cell=2).accuracy().estimate <= 1


def test_a_prompt_that_cannot_be_written_down_is_refused(run: Run) -> None:
    with pytest.raises(DataError, match="expected a prompt in UTF-8"):
        run.ask("a\udcffb")


def test_mistakes_are_named_before_anything_is_loaded(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds a run already: Run\.open\(") as caught:
        Run.start("base", folder=run.folder)
    assert "--" not in str(caught.value)
    with pytest.raises(RunError, match=f"itself: name one within it, such as {run.folder}$"):
        Run.open(run.folder.parent)
    with pytest.raises(RunError, match="knows no user 'nobody'"):
        run.ask("math.add: 47+8", user="nobody")
    with pytest.raises(ConfigError, match="did you mean"):
        Run.start("base", "strategy.foundrs=2", folder=tmp_path / "typo")
    with pytest.raises(RunError, match="no run in"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="can only change"):
        Run.open(run.folder, "seed=4")
