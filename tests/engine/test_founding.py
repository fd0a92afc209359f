"""Founding: what fails before the first checkpoint can be tried again, and budgets are checked
there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from resumed import trace
from runs import resume, start
from symbiont_ecology import Run
from symbiont_ecology.base.errors import HostError, RunError
from symbiont_ecology.base.types import Completions, Request
from symbiont_ecology.run.config import RunConfig
from toy import Crash, ToyHost, toy_config

SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}


@dataclass
class ShortHost(ToyHost):
    """A host that takes prompts of so many characters."""

    most: int = 18

    def rollout(self, rows: Sequence[Request], *how: Any) -> Completions:
        """As the toy, if the prompts are short enough."""
        longest = max(len(row.prompt) for row in rows)
        if longest > self.most:
            raise HostError(f"expected prompts of at most {self.most} tokens, got {longest}")
        return super().rollout(rows, *how)


def with_loop(config: RunConfig, **changes: Any) -> RunConfig:
    return config.model_copy(update={"run": config.run.model_copy(update=changes)})


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_start_that_failed_can_be_mended_in_the_same_folder(
    is_resumed: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    long = toy_config(generations=4, families=("math.add", "string.reverse"))
    mended = toy_config(generations=4, families=("math.add",))
    for _ in range(2):  # trying it again is no worse
        with pytest.raises(HostError, match="at most 18 tokens"):
            start(long, folder, host=ShortHost())
        assert not (folder / "state.json").exists()
    if is_resumed:  # before it was ever founded
        with pytest.raises(Crash):
            start(mended, folder, host=ToyHost(crash_at=0))
        Run.start(mended, folder=folder)
        with pytest.raises(HostError, match="at most 3 tokens"):
            resume(folder, host=ShortHost(most=3))
        assert (folder / "config.yaml").exists()
    Run.start(mended, folder=folder)
    assert start(mended, folder, host=ShortHost()).is_complete
    start(mended, tmp_path / "other", host=ShortHost())
    assert trace(folder) == trace(tmp_path / "other")
    with pytest.raises(RunError, match="holds a run already"):
        Run.start(mended, folder=folder)


def test_a_budget_that_founding_spends_can_be_mended(tmp_path: Path) -> None:
    folder, plan = tmp_path / "run", toy_config(generations=50, strategy=SINGLE)
    poor = with_loop(plan, train_flops=10.0)
    assert start(poor, folder, host=ToyHost()).state.generation == 0
    mended = ["run.train_flops=1e9"]
    finished = resume(folder, overrides=mended, host=ToyHost())
    assert finished.state.generation > 0
    start(with_loop(plan, train_flops=1e9), tmp_path / "other", host=ToyHost())
    assert trace(folder) == trace(tmp_path / "other")
