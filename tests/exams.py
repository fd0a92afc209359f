"""Small worlds of organelles that sit exams, for tests of strategies that select by them."""

from __future__ import annotations

from pathlib import Path

from runs import start
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.extensions.methods.exams import Score
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.config import Flip
from toy import ToyHost

FAMILIES = ("math.add", "string.sort")


def flipping(folder: Path, config: RunConfig) -> RunConfig:
    """The first family changes after half of the FLOPs of that run."""
    middle = start(config, folder / "calm", host=ToyHost()).state.spent.flops / 2
    flip = Flip(families=FAMILIES[:1], at_flops=middle)
    return config.model_copy(update={"tasks": config.tasks.model_copy(update={"flip": flip})})


def variants_in_exams(state: EcologyState) -> list[set[str]]:
    """The conventions of the first family in the exam that each of those with a score sat."""
    exams = [Score.of(one).marks for one in state.population.values() if one.score is not None]
    return [
        {item.split("/")[2] for item in marks if item.startswith(FAMILIES[0])} for marks in exams
    ]
