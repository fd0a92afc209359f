"""Arms of comparisons: populations that share everything with an ecology but its way of deciding.

Specialists hold a niche each, and share nothing: a family of tasks, a user, or a kind of users.
In worlds with habitats others have a server for every habitat, which another rule chooses: losses,
likeness, a bandit, or chance. Nobody breeds or goes bankrupt in any of them. One more shows the
host what users accepted, instead of learning it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.base.types import BlobRef, Item, OrganelleId, in_turns, last_turn, turns
from symbiont_ecology.ecology import (
    Assignment,
    Decision,
    EcologyState,
    Found,
    Habitat,
    Retire,
    Serve,
)
from symbiont_ecology.ecology.clusters import prior_in, stats_of
from symbiont_ecology.ecology.habitats import MAX_ANSWERS
from symbiont_ecology.ecology.strategies import (
    CurriculumStrategy,
    LearningStrategy,
    StrategyContext,
    Want,
    World,
    assignments,
    strategies,
)
from symbiont_ecology.ecology.strategies.controls import NICHE, Single
from symbiont_ecology.tasks.habitats import Habitats, SyntheticHabitats
from symbiont_ecology.tasks.mixture import TaskMixture

RECENT = 4
"""Losses that are compared with those before them, to see whether the world changed."""
INITIAL_STEPS = 4
"""Learning steps of a new adapter on what its habitats accepted, before it answers anything."""
STARTS = 8
"""Runs of k-means, of which the tightest counts."""
FRESH = ""
"""What stands for an adapter that is not there yet."""
ROOM, PSEUDO_COUNT = 32, 8.0
"""Adapters that a bank keeps; answers for which the prior of an adapter in a habitat counts."""
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

    def _reset(
        self, outdated: Mapping[int, OrganelleId], context: StrategyContext
    ) -> list[Decision]:
        """Retire who is out of date, and found its niche anew."""
        retired: list[Decision] = [Retire(holder, "reset") for holder in outdated.values()]
        return [*retired, *self._found(outdated, context)]


@strategies.register("independent")
@dataclass(frozen=True)
class Independent(Specialists, CurriculumStrategy):
    """Every learner has families of its own, dealt out in turn, and takes all their questions.

    What an ecology adds to this is what its economy and its evolution add. ``samples: 0`` with
    supervised learning_rule makes SFT specialists.
    """

    learners: PositiveInt | None = None  # how many; None is one for each family
    reset: NonNegativeFloat = 0.0  # rise of its loss, nats per token, at which one starts anew

    @property
    def wants(self) -> frozenset[Want]:  # type: ignore[override]
        """Losses, if they decide who starts anew."""
        return frozenset({"losses"} if self.reset else ())

    def found(self, context: StrategyContext) -> list[Decision]:
        holders = _holders(context.state)
        niches = range(self._count(context.tasks))
        return self._found((niche for niche in niches if niche not in holders), context)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        holders, tasks = _holders(context.state), context.tasks
        niches = {name: index % self._count(tasks) for index, name in enumerate(tasks.names)}
        assigned = [
            Assignment(
                holders[niche], tasks.draw(cell, count, context.draw("items", *cell)), self.samples
            )
            for cell, count in Counter(self.demand(context)).items()
            if (niche := niches[cell[0]]) in holders
        ]
        return self.sampled(assigned, context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless someone is gone (a NaN) or its loss jumped."""
        state = context.state
        outdated = {
            niche: holder
            for niche, holder in _holders(state).items()
            if self.reset and _rise(state.population[holder].losses) >= self.reset
        }
        return [*self._reset(outdated, context), *self.found(context)]

    def _count(self, tasks: TaskMixture) -> int:
        return min(self.learners or len(tasks.names), len(tasks.names))


def _rise(losses: Sequence[float]) -> float:
    """Return by how much the last losses are above those before them, in nats per token; 0 while
    unknown."""
    if len(losses) <= 2 * RECENT:
        return 0.0
    return fmean(losses[-RECENT:]) - fmean(losses[:-RECENT])


@dataclass(frozen=True)
class Residents(Specialists):
    """Every question goes to the organelle of its niche, which is founded when it is first asked.

    A subclass says what a niche is.
    """

    worlds: ClassVar[frozenset[World]] = frozenset({"habitats"})
    service_fault: ClassVar[str] = "it founds adapters for who asks next, which nobody knows"

    @abstractmethod
    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        """Return the number of the niche that each item belongs to."""

    def found(self, context: StrategyContext) -> list[Decision]:
        return self._missing(context, context.state.generation)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        holders = _holders(context.state)
        items, niches = self._asked(context, context.state.generation)
        asked = zip(niches, items, strict=True)
        takers = [(holders[niche], item) for niche, item in asked if niche in holders]
        return self.sampled(assignments(takers, self.samples), context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        return self._missing(context, context.state.generation + 1)

    def _missing(self, context: StrategyContext, generation: int) -> list[Decision]:
        """A holder for every niche that asks in a generation and has none."""
        holders, niches = _holders(context.state), self._asked(context, generation)[1]
        missing = (niche for niche in dict.fromkeys(niches) if niche not in holders)
        return self._found(missing, context)

    def _asked(self, context: StrategyContext, generation: int) -> tuple[Sequence[Item], list[int]]:
        world = context.tasks.habitats
        assert world is not None  # engine.build has checked it
        items = world.questions(generation)
        return items, self.niches(items, world, generation)


@strategies.register("per_habitat")
@dataclass(frozen=True)
class PerHabitat(Residents):
    """One adapter per habitat: nothing is shared, and a newcomer starts from the host.

    With ``learning_rule.replay`` it is the strong control. With ``reset`` it starts anew when its
    habitat changed (``Habitat.after``): the control for changes, which keeps nothing.
    """

    reset: bool = False  # whether an adapter starts anew when its habitat changed

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, world = context.state, context.tasks.habitats
        assert world is not None
        outdated = {
            niche: holder
            for niche, holder in _holders(state).items()
            if self.reset and _has_outlived(state.habitats.get(world.names[niche]), holder)
        }
        return [*self._reset(outdated, context), *super().tell(context)]

    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        return [world.number(item.habitat) for item in items]


def _has_outlived(habitat: Habitat | None, resident: OrganelleId) -> bool:
    """Return True if a habitat changed while this organelle was its resident: then what it
    remembers begins with an answer of it, and is shorter than its past."""
    if habitat is None or len(habitat.answers) >= min(habitat.asked, MAX_ANSWERS):
        return False
    return habitat.answers[0].organelle_id == resident


@strategies.register("told")
@dataclass(frozen=True)
class Told(Residents):
    """One adapter per kind. It is told the kind of every habitat at any time: the ceiling."""

    wants: ClassVar[frozenset[Want]] = frozenset({"kinds"})

    def niches(self, items: Sequence[Item], world: Habitats, generation: int) -> list[int]:
        assert isinstance(world, SyntheticHabitats)  # engine.build has checked it
        kinds = world.kinds(generation)
        return [int(kinds[world.number(item.habitat)]) for item in items]


# Servers: every habitat has one, and another rule chooses it.


@dataclass(frozen=True)
class Serving(LearningStrategy):
    """Every question goes to the server of its habitat.

    It begins with one organelle. A habitat without a server asks anybody, by draw. A subclass says
    who serves whom.
    """

    worlds: ClassVar[frozenset[World]] = frozenset({"habitats"})

    def found(self, context: StrategyContext) -> list[Decision]:
        return [] if context.state.population else [Found(self.traits, context.rank)]

    def newcomer(
        self, habitats: Sequence[str], context: StrategyContext, weights: BlobRef | None = None
    ) -> Found:
        """Return the founding of an adapter for habitats, with weights from the store or new."""
        founding = Found(self.traits, context.rank, weights, operator="coloniser")
        return replace(founding, habitats=tuple(habitats), initial_steps=INITIAL_STEPS)

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        """Return the living organelle that each of these habitats asks now. Somebody lives."""
        state = context.state
        return [_chosen(name, state) or _by_draw(state, generator) for name in names]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        items, generator = context.tasks.questions(context.state.generation), context.draw("serve")
        if not context.state.population:
            return []
        servers = self.servers([item.habitat for item in items], context, generator)
        assigned = assignments(zip(servers, items, strict=True), self.samples)
        return self.sampled(assigned, context)


def _by_draw(state: EcologyState, generator: np.random.Generator) -> OrganelleId:
    living = list(state.population)
    return living[int(generator.integers(len(living)))]


def _chosen(name: str, state: EcologyState) -> OrganelleId | None:
    """The server that was chosen for a habitat, if it is alive."""
    habitat = state.habitats.get(name)
    return habitat.chosen if habitat and habitat.chosen in state.population else None


def _asked(context: StrategyContext) -> list[str]:
    """The habitats that asked in this generation, in the order of asking."""
    practice = (outcome for outcome in context.outcomes if outcome.assignment.is_practice)
    return list(dict.fromkeys(outcome.assignment.items[0].habitat for outcome in practice))


def _moves(servers: Mapping[str, OrganelleId], state: EcologyState) -> list[Decision]:
    """The decision that makes them the servers, as far as they are new; none without a change."""
    new = {
        name: server
        for name, server in servers.items()
        if state.habitats.get(name, Habitat()).chosen != server
    }
    return [Serve(new)] if new else []


@dataclass(frozen=True)
class Clusters(Serving):
    """A given number of organelles; habitats are dealt out among them by losses.

    Federated learning in groups, brought to verdicts: what a habitat accepted is its data. After
    every question of a habitat, its newest accepted answers are scored under every organelle. One
    that accepted nothing yet, or nothing since it changed, asks anybody. A subclass says who fits
    whom.
    """

    organelles: PositiveInt = 4  # as many as there are kinds, if it is told the truth
    answers: PositiveInt = 4  # newest accepted answers of a habitat that everybody is scored on

    @property
    def scored_answers(self) -> int:  # type: ignore[override]
        """The knob ``answers``."""
        return self.answers

    @abstractmethod
    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        """Return the place of the organelle for each habitat.

        Args:
            losses: nats per accepted answer, ``(habitats, organelles)``.
            generator: for what is left to chance.
        """

    def found(self, context: StrategyContext) -> list[Decision]:
        missing = self.organelles - len(context.state.population)
        return [Found(self.traits, context.rank) for _ in range(missing)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        state = context.state
        living = list(state.population)
        scored = {
            name: habitat.losses
            for name, habitat in state.habitats.items()
            if habitat.losses.keys() >= set(living)
        }
        server_of = dict[str, OrganelleId]()
        if living and scored:
            losses = np.array([[loss[name] for name in living] for loss in scored.values()])
            places = self.fitting(losses, context.draw("deal"))
            server_of = {name: living[place] for name, place in zip(scored, places, strict=True)}
        servers = {name: server_of.get(name, "") for name in _asked(context)}
        return [*_moves(servers, state), *self.found(context)]


@strategies.register("ifca")
@dataclass(frozen=True)
class LowestLoss(Clusters):
    """IFCA: everyone goes where its own loss is lowest (Ghosh et al. 2020, arXiv 2006.04088)."""

    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        noise = 1e-9 * generator.random(losses.shape)  # a draw among equals
        places: list[int] = np.argmin(losses + noise, axis=1).tolist()
        return places


@strategies.register("clove")
@dataclass(frozen=True)
class LossVectors(Clusters):
    """CLoVE: those with similar losses under all models are one group (arXiv 2506.22427, 2025).

    Groups are found by k-means, and matched with organelles so that the sum of losses is lowest.
    While there are fewer habitats than organelles everyone goes where its own loss is lowest.
    """

    def fitting(self, losses: np.ndarray, generator: np.random.Generator) -> Sequence[int]:
        from scipy.cluster.vq import kmeans2
        from scipy.optimize import linear_sum_assignment

        count = losses.shape[1]
        if len(losses) < 2 * count:
            places: list[int] = np.argmin(losses, axis=1).tolist()
            return places
        best, groups = np.inf, np.zeros(len(losses), int)
        for _ in range(STARTS):
            centres, labels = kmeans2(losses, count, minit="++", rng=generator)
            spread = float(((losses - centres[labels]) ** 2).sum())
            if spread < best:
                best, groups = spread, labels
        totals = np.zeros((count, count))
        np.add.at(totals, groups, losses)
        _, matched = linear_sum_assignment(totals)
        return [int(matched[group]) for group in groups]


@strategies.register("nearest")
@dataclass(frozen=True)
class Nearest(Serving):
    """One adapter per habitat, and newcomers learn from neighbours (after Per-Pcs, 2406.10471).

    A newcomer asks the adapter of the habitat that is most like it, by sketches of what both
    accepted. After some accepted answers it has an adapter of its own: a copy of that one, or a
    fresh one if nobody is like it.
    """

    accepted: PositiveInt = 2  # answers that a habitat accepts before it has its own adapter
    wants: ClassVar[frozenset[Want]] = frozenset({"sketches"})

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        state, near = context.state, _nearest_of(names, context)
        return [
            _chosen(name, state) or near[name][0] or _by_draw(state, generator) for name in names
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, decisions = context.state, list[Decision]()
        ready = [
            name
            for name in _asked(context)
            if not _chosen(name, state) and len(state.habitats[name].accepted) >= self.accepted
        ]
        for name, (neighbour, likeness) in _nearest_of(ready, context).items():
            weights = state.genome(neighbour).weights if neighbour and likeness > 0 else None
            decisions.append(self.newcomer((name,), context, weights))
        return [*decisions, *self.found(context)]


def _nearest_of(
    names: Sequence[str], context: StrategyContext
) -> dict[str, tuple[OrganelleId | None, float]]:
    """For each habitat without an adapter of its own: the adapter of the one that is most like it,
    and by how much, in nats; None if nothing is known."""
    state, families = context.state, context.tasks.names
    clusters = {
        server: stats
        for name, habitat in state.habitats.items()
        if (server := _chosen(name, state))
        and not (stats := stats_of(habitat.answers, families)).is_empty
    }
    prior, nearest = prior_in(state), dict[str, tuple[OrganelleId | None, float]]()
    for name in dict.fromkeys(names):
        answers = state.habitats.get(name, Habitat()).answers
        own = stats_of(answers, families, refusal_weight=prior.refusal_weight)
        if _chosen(name, state) or own.is_empty or not clusters:
            nearest[name] = None, 0.0
            continue
        agreements = prior.all_log_odds(list(clusters.values()), own)
        best = int(agreements.argmax())
        nearest[name] = list(clusters)[best], float(agreements[best])
    return nearest


@strategies.register("bank")
@dataclass(frozen=True)
class Bank(Serving):
    """Every habitat stays with an adapter that pleases it. If it is pleased no more, it chooses.

    A habitat chooses by Thompson sampling (1933) among all adapters and a fresh one. What it knows
    of an adapter are its own verdicts since it last changed. What it said before counts a little;
    where it never met the adapter, the verdicts of all others do. Nothing is thrown away while
    there is room; then the adapter leaves that answered least. It has memory and replay as the
    ecology has, and neither energy nor births for pay nor deaths.
    """

    patience: PositiveInt = 4  # newest answers in a habitat by which an adapter is judged
    pleased: PositiveFloat = 0.5  # part of them that must be accepted
    youth: NonNegativeInt = 10  # generations in which a fresh adapter is not judged

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        state, rates = context.state, _rates(context.state)
        return [
            _chosen(name, state) or _highest(_beliefs(name, rates, state), generator)
            for name in names
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, generator, rates = context.state, context.draw("bank"), _rates(context.state)
        moved, decisions = dict[str, OrganelleId](), list[Decision]()
        for name in _asked(context) if state.population else ():
            habitat = state.habitats[name]
            server = _chosen(name, state) or habitat.last
            if server not in state.population:
                continue
            if self._is_young(server, state) or self._pleases(server, habitat):
                moved[name] = server
                continue
            beliefs = _beliefs(name, rates, state)
            beliefs[FRESH] = (PSEUDO_COUNT / 2, PSEUDO_COUNT / 2)
            if best := _highest(beliefs, generator):
                moved[name] = best
            else:
                decisions.append(self.newcomer((name,), context))
        crowd = len(state.population) + len(decisions) - ROOM
        # The youngest have the fewest answers, because nobody has asked them yet.
        counts = Counter(a.organelle_id for h in state.habitats.values() for a in h.answers)
        ranking = sorted(state.population, key=lambda o: (self._is_young(o, state), counts[o]))
        leaving = ranking[: max(crowd, 0)]
        moved = {name: server for name, server in moved.items() if server not in leaving}
        retired = [Retire(organelle_id, "replaced") for organelle_id in leaving]
        return [*_moves(moved, state), *retired, *decisions, *self.found(context)]

    def _is_young(self, organelle_id: OrganelleId, state: EcologyState) -> bool:
        born = state.population[organelle_id].born
        return born > 0 and state.generation - born < self.youth

    def _pleases(self, server: OrganelleId, habitat: Habitat) -> bool:
        verdicts = [a.is_accepted for a in habitat.answers if a.organelle_id == server]
        newest = verdicts[-self.patience :]
        return len(newest) < self.patience or sum(newest) >= self.pleased * self.patience


def _rates(state: EcologyState) -> dict[OrganelleId, float]:
    """The part of its remembered answers that was accepted, of everyone alive."""
    counts = _verdicts_on(state.habitats.values())
    return {
        o: (counts[o, True] + 1) / (counts[o, True] + counts[o, False] + 2)
        for o in state.population
    }


def _beliefs(
    name: str, rates: Mapping[OrganelleId, float], state: EcologyState
) -> dict[OrganelleId, tuple[float, float]]:
    """The parameters of the Beta posterior of every adapter in a habitat."""
    counts, beliefs = _verdicts_on([state.habitats.get(name, Habitat())]), {}
    for organelle_id, overall in rates.items():
        record = state.posteriors.get(organelle_id, {}).get(name)
        rate = record.mean if record else overall
        accepted = counts[organelle_id, True] + PSEUDO_COUNT * rate
        beliefs[organelle_id] = accepted, counts[organelle_id, False] + PSEUDO_COUNT * (1 - rate)
    return beliefs


def _verdicts_on(habitats: Iterable[Habitat]) -> Counter[tuple[OrganelleId, bool]]:
    """Count the accepted and the refused among the remembered answers of each."""
    return Counter((a.organelle_id, a.is_accepted) for h in habitats for a in h.answers)


def _highest(
    beliefs: Mapping[OrganelleId, tuple[float, float]], generator: np.random.Generator
) -> OrganelleId:
    """Return the adapter with the highest draw from its posterior."""
    draws = {organelle_id: generator.beta(*belief) for organelle_id, belief in beliefs.items()}
    return max(draws, key=draws.__getitem__)


@strategies.register("neutral")
@dataclass(frozen=True)
class Neutral(Serving):
    """Births and deaths happen at given times, those of an ecology's run in the same world.

    Newborns get as many habitats as they got there, but which is drawn; so is who dies. A habitat
    stays with its server while that lives. What an ecology does better than this is what its births
    and deaths find out (neutral theory, Hubbell 2001).
    """

    births: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = ()  # [generation, habitats] each
    deaths: tuple[NonNegativeInt, ...] = ()  # generation of each

    def tell(self, context: StrategyContext) -> list[Decision]:
        state, generator = context.state, context.draw("neutral")
        servers = {
            name: habitat.last
            for name, habitat in state.habitats.items()
            if not _chosen(name, state) and habitat.last in state.population
        }
        decisions, names = _moves(servers, state), list(state.habitats)
        for moment, count in self.births:
            if moment == state.generation and names:
                drawn = generator.permutation(len(names))[:count]
                habitats = tuple(names[place] for place in drawn)
                decisions.append(self.newcomer(habitats, context))
        living = list(state.population)
        for place in generator.permutation(len(living))[: Counter(self.deaths)[state.generation]]:
            decisions.append(Retire(living[place], "drawn"))
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
    worlds: ClassVar[frozenset[World]] = frozenset({"habitats"})
    service_fault: ClassVar[str] = "it puts examples in front of questions, and a service does not"

    def items(self, context: StrategyContext) -> tuple[Item, ...]:
        return tuple(self._behind_examples(item, context.state) for item in super().items(context))

    def _behind_examples(self, item: Item, state: EcologyState) -> Item:
        accepted = state.habitats.get(item.habitat, Habitat()).accepted[-self.examples :]
        is_text = item.prompt.endswith(LEADS_OVER)
        examples = [
            part
            for a in accepted
            for part in (last_turn(a.prompt), f"{a.reply}\n" if is_text else a.reply)
        ]
        *before, question = turns(item.prompt)  # what the system says stays in front
        return replace(item, prompt=in_turns(*before, *examples, question))
