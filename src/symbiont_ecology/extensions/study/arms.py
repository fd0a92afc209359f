"""Arms of comparisons: populations that share everything with an ecology but its way of deciding.

Specialists hold a niche each, and share nothing: a family of tasks, a user, or a kind of users.
In worlds with users others have a server for every user, which likeness or chance chooses.
Nobody breeds or goes bankrupt in any of them. One more shows the host what users accepted, instead
of learning it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.base.registry import PositiveShare
from symbiont_ecology.base.types import BlobRef, Item, OrganelleId, in_turns, last_turn, turns
from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Found, Retire, Serve, User
from symbiont_ecology.ecology.clusters import prior_in, stats_of
from symbiont_ecology.ecology.strategies import (
    LearningStrategy,
    StrategyContext,
    Want,
    World,
    assignments,
    strategies,
)
from symbiont_ecology.ecology.strategies.controls import Single
from symbiont_ecology.tasks.users import SyntheticUsers, Users

INITIAL_STEPS = 4
"""Learning steps of a new adapter on what its users accepted, before it answers anything."""
Neighbour = tuple[OrganelleId | None, float]
"""Adapter of another user, and how much more likely than not both want the same, in nats."""
NICHE = "niche"
"""The trait that says which share of the families a learner has."""
LEADS_OVER = ("\n", " ")
"""How a prompt ends behind which the answer stands as text. In a chat the template leads over."""


# Specialists: a niche each.


def _holders(state: EcologyState) -> dict[int, OrganelleId]:
    """Return the holder of each niche."""
    return {int(o.genome.traits[NICHE]): o.id for o in state.population.values()}


@dataclass(frozen=True)
class Specialists(LearningStrategy):
    """Learners that hold a niche each, and start as the host itself (B = 0), or warm."""

    def _found(self, niches: Iterable[int], context: StrategyContext) -> list[Decision]:
        return [Found({**self.traits, NICHE: float(niche)}, context.rank) for niche in niches]


@strategies.register("independent")
@dataclass(frozen=True)
class Independent(Specialists):
    """Every family has a learner of its own, which takes all its questions.

    What an ecology adds to this is what its economy and its evolution add. ``samples: 0`` with
    supervised learning_rule makes SFT specialists.
    """

    def found(self, context: StrategyContext) -> list[Decision]:
        holders = _holders(context.state)
        niches = range(len(context.tasks.names))
        return self._found((niche for niche in niches if niche not in holders), context)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        holders, tasks = _holders(context.state), context.tasks
        niches = {name: niche for niche, name in enumerate(tasks.names)}
        return [
            Assignment(
                holders[niche], tasks.draw(cell, count, context.draw("items", *cell)), self.samples
            )
            for cell, count in Counter(self.demand(context)).items()
            if (niche := niches[cell[0]]) in holders
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless someone is gone (a NaN, a catastrophe)."""
        return self.found(context)


@dataclass(frozen=True)
class Residents(Specialists):
    """Every question goes to the organelle of its niche, which is founded when it is first asked.

    A subclass says what a niche is.
    """

    worlds: ClassVar[frozenset[World]] = frozenset({"users"})
    service_fault: ClassVar[str] = "it founds adapters for who asks next, which nobody knows"

    @abstractmethod
    def niches(self, items: Sequence[Item], world: Users, generation: int) -> list[int]:
        """Return the number of the niche that each item belongs to."""

    def found(self, context: StrategyContext) -> list[Decision]:
        return self._missing(context, context.state.generation)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        holders = _holders(context.state)
        items, niches = self._asked(context, context.state.generation)
        asked = zip(niches, items, strict=True)
        takers = [(holders[niche], item) for niche, item in asked if niche in holders]
        return assignments(takers, self.samples)

    def tell(self, context: StrategyContext) -> list[Decision]:
        return self._missing(context, context.state.generation + 1)

    def _missing(self, context: StrategyContext, generation: int) -> list[Decision]:
        """A holder for every niche that asks in a generation and has none."""
        holders, niches = _holders(context.state), self._asked(context, generation)[1]
        missing = (niche for niche in dict.fromkeys(niches) if niche not in holders)
        return self._found(missing, context)

    def _asked(self, context: StrategyContext, generation: int) -> tuple[Sequence[Item], list[int]]:
        world = context.tasks.users
        assert world is not None  # run.build has checked it
        items = world.questions(generation)
        return items, self.niches(items, world, generation)


@strategies.register("per_user", "per_habitat")
@dataclass(frozen=True)
class PerUser(Residents):
    """One adapter per user: nothing is shared, and a newcomer starts from the host.

    With ``learning_rule.replay`` it is the strong control.
    """

    def niches(self, items: Sequence[Item], world: Users, generation: int) -> list[int]:
        return [world.names.index(item.user) for item in items]


@strategies.register("told")
@dataclass(frozen=True)
class Told(Residents):
    """One adapter per kind. It is told the kind of every user at any time: the ceiling."""

    wants: ClassVar[frozenset[Want]] = frozenset({"kinds"})

    def niches(self, items: Sequence[Item], world: Users, generation: int) -> list[int]:
        assert isinstance(world, SyntheticUsers)  # run.build has checked it
        kinds = world.kinds(generation)
        return [int(kinds[world.names.index(item.user)]) for item in items]


# Servers: every user has one, and another rule chooses it.


@dataclass(frozen=True)
class Serving(LearningStrategy):
    """Every question goes to the server of its user.

    It begins with one organelle. A user without a server asks anybody, by draw. A subclass says
    who serves whom.
    """

    worlds: ClassVar[frozenset[World]] = frozenset({"users"})

    def found(self, context: StrategyContext) -> list[Decision]:
        return [] if context.state.population else [Found(self.traits, context.rank)]

    def newcomer(
        self, users: Sequence[str], context: StrategyContext, weights: BlobRef | None = None
    ) -> Found:
        """Return the founding of an adapter for users, with weights from the store or new."""
        founding = Found(self.traits, context.rank, weights, operator="coloniser")
        return replace(founding, users=tuple(users), initial_steps=INITIAL_STEPS)

    def neighbours(self, names: Sequence[str], context: StrategyContext) -> dict[str, Neighbour]:
        """Return who else may serve users without a server of their own; here it is nobody."""
        return dict.fromkeys(names, (None, 0.0))

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        items, generator = context.tasks.questions(context.state.generation), context.draw("serve")
        if not context.state.population:
            return []
        near = self.neighbours([item.user for item in items], context)
        servers = [
            _chosen(item.user, context.state)
            or near[item.user][0]
            or _by_draw(context.state, generator)
            for item in items
        ]
        return assignments(zip(servers, items, strict=True), self.samples)


def _by_draw(state: EcologyState, generator: np.random.Generator) -> OrganelleId:
    living = list(state.population)
    return living[int(generator.integers(len(living)))]


def _chosen(name: str, state: EcologyState) -> OrganelleId | None:
    """The server that was chosen for a user, if it is alive."""
    user = state.users.get(name)
    return user.chosen if user and user.chosen in state.population else None


def _asked(context: StrategyContext) -> list[str]:
    """The users that asked in this generation, in the order of asking."""
    practice = (outcome for outcome in context.outcomes if outcome.assignment.is_practice)
    return list(dict.fromkeys(outcome.assignment.items[0].user for outcome in practice))


@strategies.register("nearest")
@dataclass(frozen=True)
class Nearest(Serving):
    """One adapter per user, and newcomers learn from neighbours (after Per-Pcs, 2406.10471).

    A newcomer asks the adapter of the user that is most like it, by sketches of what both
    accepted. After some accepted answers it has an adapter of its own: a copy of that one, or a
    fresh one if nobody is like it.
    """

    accepted: PositiveInt = 2  # answers that a user accepts before it has its own adapter
    wants: ClassVar[frozenset[Want]] = frozenset({"sketches"})

    def neighbours(self, names: Sequence[str], context: StrategyContext) -> dict[str, Neighbour]:
        """Return the adapter of the user that is most like each."""
        state, families = context.state, context.tasks.names
        clusters = {
            server: stats
            for name, user in state.users.items()
            if (server := _chosen(name, state))
            and not (stats := stats_of(user.answers, families)).is_empty
        }
        prior, nearest = prior_in(state), dict[str, Neighbour]()
        for name in dict.fromkeys(names):
            answers = state.users.get(name, User()).answers
            own = stats_of(answers, families, refusal_weight=prior.refusal_weight)
            if _chosen(name, state) or own.is_empty or not clusters:
                nearest[name] = None, 0.0
                continue
            agreements = prior.all_log_odds(list(clusters.values()), own)
            best = int(agreements.argmax())
            nearest[name] = list(clusters)[best], float(agreements[best])
        return nearest

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, decisions = context.state, list[Decision]()
        ready = [
            name
            for name in _asked(context)
            if not _chosen(name, state) and len(state.users[name].accepted) >= self.accepted
        ]
        for name, (neighbour, likeness) in self.neighbours(ready, context).items():
            weights = state.genome(neighbour).weights if neighbour and likeness > 0 else None
            decisions.append(self.newcomer((name,), context, weights))
        return [*decisions, *self.found(context)]


@strategies.register("neutral")
@dataclass(frozen=True)
class Neutral(Serving):
    """Births and deaths happen by draw, at given rates: selection is off.

    A newborn gets drawn users, and who dies is drawn. A user stays with its server while that
    lives. What an ecology does better than this at the same rates is what its births and deaths
    find out (neutral theory, Hubbell 2001).
    """

    births: PositiveShare = 0.05  # chance of a birth in each generation
    deaths: PositiveShare = 0.025  # chance of a death in each generation with two or more
    size: PositiveInt = 2  # users of a newborn

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, generator = context.state, context.draw("neutral")
        servers = {
            name: user.answers[-1].organelle_id
            for name, user in state.users.items()
            if not _chosen(name, state) and user.answers[-1].organelle_id in state.population
        }
        names, decisions = list(state.users), list[Decision]()
        if servers:
            decisions.append(Serve(servers))
        if names and generator.random() < self.births:
            drawn = generator.permutation(len(names))[: self.size]
            decisions.append(self.newcomer([names[place] for place in drawn], context))
        if len(state.population) > 1 and generator.random() < self.deaths:
            decisions.append(Retire(_by_draw(state, generator), "drawn"))
        return [*decisions, *self.found(context)]


# In context: shown instead of learned.


@strategies.register("in_context")
@dataclass(frozen=True)
class InContext(Single):
    """One organelle is asked, behind the last answers that the user accepted: turns of a chat, or
    lines of text (in-context learning, Brown et al. 2020, arXiv:2005.14165).

    Nothing has to be kept for a user but a few answers, and every question costs the tokens of its
    examples again. With ``learning_rule: none`` that is all. With another rule it also learns to go
    by what it is shown.
    """

    examples: PositiveInt = 3  # most accepted answers in front of a question
    worlds: ClassVar[frozenset[World]] = frozenset({"users"})
    service_fault: ClassVar[str] = "it puts examples in front of questions, and a service does not"

    def items(self, context: StrategyContext) -> tuple[Item, ...]:
        return tuple(self._behind_examples(item, context.state) for item in super().items(context))

    def _behind_examples(self, item: Item, state: EcologyState) -> Item:
        accepted = state.users.get(item.user, User()).accepted[-self.examples :]
        is_text = item.prompt.endswith(LEADS_OVER)
        examples = [
            part
            for a in accepted
            for part in (last_turn(a.prompt), f"{a.reply}\n" if is_text else a.reply)
        ]
        *before, question = turns(item.prompt)  # what the system says stays in front
        return replace(item, prompt=in_turns(*before, *examples, question))
