"""What a run shows while it lives: a line for each generation, and the time to go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from runs import start
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.cli.console import RunProgress
from symbiont_ecology.ecology import EcologyState
from toy import ToyHost, toy_config

SUMMARY = GenerationEnded(3, 5, 1, 2, 0.25, 7, 1000, 0, 1, 1)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def state_at(generation: int, **spent: int) -> EcologyState:
    state = EcologyState(0)
    state.generation, state.spent, state.mean_rollout_flops = generation, Cost(**spent), 10
    return state


def test_every_generation_has_a_line_with_what_happened_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(generations=12)
    for quiet in (False, True):
        progress = RunProgress(config, quiet=quiet)
        progress.tell("loading the host …")
        start(config, tmp_path / str(quiet), host=ToyHost(), watch=progress)
        said = capsys.readouterr()
        lines = said.out.splitlines()
        if quiet:
            assert (said.out, said.err) == ("", "")
            continue
        assert said.err == "loading the host …\n"
        assert [line.split()[1] for line in lines] == [str(number) for number in range(12)]
        assert "100%  left 0:00:00  right" in lines[-1]
        assert sum(int(line.split(" +")[1].split()[0]) for line in lines) > 0


def test_the_time_to_go_follows_the_pace_of_this_sitting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = RunProgress(toy_config(generations=1000), clock=clock)
    for generation in range(501, 601):  # a run that goes on
        clock.now += 2.0
        progress(state_at(generation), SUMMARY, 2.0)
    lines = capsys.readouterr().out.splitlines()
    assert "left ?" in lines[0]
    assert " 60%  left 0:13:20" in lines[-1]
