"""The parts of a config that say what is asked: the task mix, hidden changes of it, and users."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from symbiont_ecology.base.registry import Many, Modest, Share, Spec

_Schema = ConfigDict(extra="forbid", frozen=True)


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        raise ValueError(f"expected one name or more, each of them once, got {list(names)}")
    return names


DistinctNames = Annotated[tuple[str, ...], AfterValidator(_each_once)]


def _rising(moments: tuple[float, ...]) -> tuple[float, ...]:
    if not all(before < after for before, after in pairwise((0.0, *moments))):  # NaN, too
        raise ValueError(f"expected numbers above 0 that rise, got {list(moments)}")
    return moments


RisingFlops = Annotated[tuple[float, ...], AfterValidator(_rising)]


class Flip(BaseModel):
    """A change of what counts as right: some families take another convention, or do for a while.

    The new convention is neither the target nor the one that the embedded host's habit prefers.
    Nobody in the world is told. The moments are useful training FLOPs, since generations differ in
    length between arms.
    """

    model_config = _Schema

    families: DistinctNames  # those that change
    at_flops: NonNegativeFloat  # training FLOPs at which they change
    back_flops: NonNegativeFloat | None = None  # training FLOPs at which they change back

    @model_validator(mode="after")
    def _rises(self) -> Flip:
        if self.back_flops is not None and self.back_flops <= self.at_flops:
            raise ValueError(f"expected back_flops above {self.at_flops}, got {self.back_flops}")
        return self

    def holds(self, flops: float) -> bool:
        """Return true if the changed convention is in force at that moment."""
        return self.at_flops <= flops and (self.back_flops is None or flops < self.back_flops)


class TasksConfig(BaseModel):
    """The task mix: every family at every depth is a cell.

    In a file, ``families`` may also hold mappings such as
    ``{kind: file, name: trivia, path: trivia.jsonl}``. Loading puts them under ``sources``, so that
    ``families`` are names everywhere.
    """

    model_config = _Schema

    families: DistinctNames  # names, or mappings of data
    depths: DistinctNames | None = None  # how hard questions are; None is each task's own
    style: Spec = "terse"  # how a prompt is worded
    flip: Flip | None = None  # a hidden change of what counts as right
    arrivals: RisingFlops = ()  # training FLOPs at which the next family takes the last one's place
    users: UsersConfig | None = None  # many places that ask, with hidden kinds
    sources: tuple[dict[str, object], ...] = ()  # where loading puts mappings among the families


class UsersConfig(BaseModel):
    """Many users of one model who want different things: a source of questions with hidden kinds.

    A user's kind says which convention is right there, and nobody is told: it shows in verdicts
    alone. Who asks what and when is a function of the run's seed, the same for every strategy.
    """

    model_config = _Schema

    count: Many = 24  # users
    kinds: Many = 4  # what may count as right; no strategy but the control ``told`` knows
    questions: Many = 24  # per generation, from all users together
    activity: Modest = 0.0  # Zipf exponent of how much they ask; 0: all alike
    arrivals: NonNegativeInt = 0  # generation until which they arrive; 0: all are there at once
    apart: bool = False  # whether every user asks about one family alone
    shown: bool = False  # whether every prompt begins with the id of its user
    drift_at: NonNegativeInt | None = None  # generation in which a quarter of them changes kind
    regimes: tuple[int, ...] = ()  # kinds that all of them go through, at their own times
    regime: PositiveInt = 60  # generations that a regime lasts, on average
    noise: Share = 0.0  # part of the verdicts that is wrong
    fickle: NonNegativeInt = 0  # users whose verdicts are drawn at random
