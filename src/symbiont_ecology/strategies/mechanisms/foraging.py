"""Foraging: habitats go to the organelle whose diet is like theirs; others are colonised.

What a habitat accepted, and refused, says what it wants. The sketches of these answers say which
habitats want the same (``ecology.diets``), whatever organelles have learned by then. So a habitat
moves when another diet explains it better. Where no diet does, a newborn comes, who first eats what
these habitats accepted. Where one diet explains what two organelles eat, all goes to one of them.
The other earns nothing any more, and energy does the rest. Nobody knows the number of kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import log
from operator import add
from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt

from symbiont_ecology.ecology import Awaken, Colonise, Decision, EcologyState, Found, Habitat, Serve
from symbiont_ecology.ecology.diets import (
    LIKENESS_LESS_COMMON,
    Diet,
    Likeness,
    diet_of,
    join_alike,
    kinds_among,
    likeness_in,
    taste_of,
)
from symbiont_ecology.ecology.habitats import SURE, shared_among
from symbiont_ecology.ecology.organelle import SuccessPosterior, pooled
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.types import Item, OrganelleId

SWEEPS, FULL_SWEEP = 2, 5
"""How often a habitat with news looks for a server in a generation; generations from one look of
everyone to the next."""
NOBODY = ""
LEAST_FOOD, HOPELESS = 2, 10
"""Accepted answers without which nobody is born; answers after which somebody is born even so."""


@mechanisms.register("foraging")
@dataclass(frozen=True)
class Foraging(Mechanism):
    """Who serves which habitat, and where organelles are born. For worlds with habitats."""

    meals: NonNegativeInt = 4  # learning steps of a newborn before it answers anything
    loyalty: NonNegativeFloat = 2.0  # nats by which another server must be better
    memory: bool = True  # whether servers remember habitats that changed, and come back for them
    examples: bool = True  # whether founders divide a warm start's examples, one kind for each
    needs_sketches: ClassVar[bool] = True
    needs_habitats: ClassVar[bool] = True

    @property
    def keeps_memories(self) -> bool:  # type: ignore[override]
        """The knob ``memory``."""
        return self.memory

    def found(self, context: StrategyContext, room: Room) -> list[Decision]:
        """One for each kind among the warm start's examples, which it remembers, if they show
        kinds. Nothing links examples of different families, so these must be of one."""
        state, families = context.state, context.tasks.names
        if not self.examples or len(families) > 1:
            return []
        sketched = [replace(example, coordinates="") for example in state.examples]
        diets = [diet_of([example], families) for example in sketched]
        groups = kinds_among(diets, LIKENESS_LESS_COMMON)[: room.places]
        memories = state.examples
        if state.bases:  # sketches are of another space than coordinates
            memories = tuple(replace(example, sketch="") for example in memories)
        return [
            Found(
                dict(room.traits),
                context.rank,
                memories=tuple(memories[place] for place in group),
                initial_steps=self.meals,
            )
            for group in groups
            if len(group) >= LEAST_FOOD
        ]

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """The habitat's server; while it has none, who is most likely to please it. Who pleases
        nobody yet may be of a kind of its own. Where replies are open, a refusal says little: who
        accepted nothing yet puts its next questions to others, too."""
        state = context.state
        habitat = state.habitats.get(item.habitat, Habitat())
        is_served = habitat.chosen in state.population
        tries_others = earlier and context.tasks.families[item.family].is_open
        if is_served and (habitat.accepted or not tries_others):
            return habitat.chosen
        pleased = Counter(
            other.chosen
            for other in state.habitats.values()
            if other.chosen in state.population and other.accepted
        )
        if not pleased:
            return None
        shared = shared_among(len(context.tasks.names))

        def promise(name: OrganelleId) -> float:
            """Log-odds that it is of the habitat's kind, and answers well then."""
            record = state.record(name, but_for=item.habitat)
            return habitat.trust(name, shared) + log(max(pleased[name], 1) * record)

        candidates = [name for name in state.population if name != habitat.chosen]
        order = sorted(candidates, key=promise, reverse=True)
        order = [habitat.chosen, *order] if is_served else order
        return order[earlier % len(order) if tries_others else 0]

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Which habitats change their server, and who is born for those that find none."""
        partition = Partition.of(context.state, context.tasks.names, self.loyalty)
        names = list(partition.tastes)
        askers = {
            outcome.assignment.items[0].habitat: None
            for outcome in context.outcomes
            if outcome.assignment.is_practice
        }
        is_due = context.state.generation % FULL_SWEEP == FULL_SWEEP - 1
        seekers = [
            name for name in names if is_due or name in askers or name not in partition.servers
        ]
        generator = context.draw("forage")
        for _ in range(SWEEPS):
            for place in generator.permutation(len(seekers)):
                partition.move(seekers[place])
        partition.merge()
        return self._decisions(partition, context, room)

    def _decisions(
        self, partition: Partition, context: StrategyContext, room: Room
    ) -> list[Decision]:
        state, places = context.state, room.places
        moved, decisions = dict[str, OrganelleId](), list[Decision]()
        for server, habitats in partition.by_server().items():
            if server in state.population:
                moved |= {h: server for h in habitats if state.habitats[h].chosen != server}
            elif server not in state.dormant and not partition.may_found(*habitats):
                # Nobody for now: others are tried in turn.
                moved |= {h: NOBODY for h in habitats if state.habitats[h].chosen != NOBODY}
            elif places:
                places -= 1
                decisions.append(
                    Awaken(tuple(habitats), server)
                    if server in state.dormant
                    else Colonise(tuple(habitats), dict(room.traits), context.rank, self.meals)
                )
        return [Serve(moved), *decisions] if moved else decisions


@dataclass(eq=False)
class Partition:
    """Which server each habitat has, as it is being thought over.

    ``shared`` is how often two kinds agree about a family. ``servers`` are organelles by habitat,
    or names of colonies that nobody has founded yet. ``tastes`` and ``diets`` are those of
    habitats, ``eaten`` is what servers' habitats accepted; ``past`` is what the living and the
    dormant remember of habitats that changed. ``tenants`` counts the habitats of each server,
    ``sizes`` those that accepted something: who pleases nobody attracts nobody. ``records`` are
    kept once they are known.
    """

    state: EcologyState
    likeness: Likeness
    shared: float
    loyalty: float
    tastes: dict[str, Diet]
    diets: dict[str, Diet]
    past: dict[str, Diet]
    servers: dict[str, str]
    eaten: dict[str, Diet]
    tenants: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    colonies: int = 0
    records: dict[str, tuple[SuccessPosterior, Mapping[str, SuccessPosterior]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, state: EcologyState, families: Sequence[str], loyalty: float) -> Partition:
        """As it is now. A habitat of which nothing is known stays out of it."""
        likeness = likeness_in(state)
        tastes = {
            name: taste_of(habitat.answers, families, refused=likeness.refused)
            for name, habitat in state.habitats.items()
            if habitat.answers
        }
        diets = {name: diet_of(state.habitats[name].answers, families) for name in tastes}
        past = {
            organelle.id: diet_of(organelle.memories, families)
            for organelle in (*state.population.values(), *state.dormant.values())
            if organelle.memories
        }
        settings = likeness, shared_among(len(families)), loyalty
        partition = cls(state, *settings, tastes, diets, past, {}, dict(past))
        for name in tastes:
            if (server := state.habitats[name].chosen) in state.population:
                partition._place(name, server)
        return partition

    def move(self, name: str) -> None:
        """A habitat goes where it is explained best, or in a colony of its own.

        Who pleases nobody is no choice, unless it serves the habitat already. A habitat that
        accepted nothing yet has no reason to stay.
        """
        before, habitat = self._leave(name), self.state.habitats[name]
        trust = partial(habitat.trust, shared=self.shared)
        weight_of = self.likeness.weight_of
        record = partial(self._record, name)
        candidates = [server for server in self.eaten if self.sizes[server] or server in self.past]
        agreements = self.likeness.agreements(
            [self.eaten[server] for server in candidates], self.tastes[name]
        )
        scores = {
            server: agreement + trust(server) + log(weight_of(self.sizes[server]) * record(server))
            for server, agreement in zip(candidates, agreements.tolist(), strict=True)
        }
        if before is not None:
            # Unless it pleases others too, it is left for a colony on sure evidence alone.
            alone = min(trust(before) + SURE, 0.0) + log(record(before))
            loyalty = self.loyalty if habitat.accepted else 0.0
            scores[before] = scores.get(before, alone) + loyalty
        # Last of equals: who was not tried yet comes first. Who may not found a colony goes on
        # trying.
        scores[NOBODY] = log(record(NOBODY))
        best = max(scores, key=scores.__getitem__)
        self._place(name, best or self._colony())

    def may_found(self, *names: str) -> bool:
        """Whether habitats have food for a colony, or all others have failed."""
        habitats = [self.state.habitats[name] for name in names]
        food = sum(len(habitat.accepted) for habitat in habitats)
        servers = set(+self.sizes)
        return food >= LEAST_FOOD or any(
            len(habitat.answers) >= HOPELESS
            and servers <= {answer.organelle_id for answer in habitat.answers}
            for habitat in habitats
        )

    def merge(self) -> None:
        """Servers whose habitats would be pleased by either become one, the best pair first."""
        tastes = {server: self._taste(server) for server in self._pleasing()}

        def join(first: str, second: str) -> None:
            """Makes them one."""
            server = self._join(first, second)
            tastes[server] = self._taste(server)

        join_alike(self._pleasing, partial(self._gain, tastes=tastes), join, self.loyalty)

    def by_server(self) -> dict[str, Sequence[str]]:
        """The habitats of each server."""
        habitats: dict[str, list[str]] = {}
        for name, server in self.servers.items():
            habitats.setdefault(server, []).append(name)
        return dict(habitats)

    def _pleasing(self) -> list[str]:
        """The servers of habitats that accepted something."""
        return [server for server in self.by_server() if self.sizes[server]]

    def _taste(self, server: str) -> Diet:
        return reduce(add, map(self.tastes.__getitem__, self._served(server)))

    def _join(self, first: str, second: str) -> str:
        """All habitats of the worse of two servers go to the better one, which is returned."""
        worse, better = sorted(
            (first, second),
            key=lambda server: (
                server in self.state.population,
                self.eaten[server].counts.sum(),  # who has eaten more has learned more
            ),
        )
        self.servers |= dict.fromkeys(self._served(worse), better)
        for counts in (self.tenants, self.sizes):
            counts[better] += counts.pop(worse)
        self.eaten[better] += self.eaten.pop(worse)
        if worse in self.past:
            self.eaten[better] -= self.past[worse]
            self.eaten[worse] = self.past[worse]
        return better

    def _served(self, server: str) -> list[str]:
        return [name for name, owner in self.servers.items() if owner == server]

    def _gain(self, first: str, second: str, tastes: Mapping[str, Diet]) -> float:
        """What it explains more if both servers are one, in nats."""
        prior = self.likeness.prior_of_union(self.sizes[first], self.sizes[second])
        return min(self._liking(first, second, tastes), self._liking(second, first, tastes)) + prior

    def _liking(self, server: str, rival: str, tastes: Mapping[str, Diet]) -> float:
        """What the habitats of another server say for this one, in nats."""
        habitats = (self.state.habitats[name] for name in self._served(rival))
        trust = sum(habitat.trust(server, self.shared) for habitat in habitats)
        return self.likeness.agreement(self.eaten[server], tastes[rival]) + trust

    def _leave(self, name: str) -> str | None:
        """The server that a habitat had, which is forgotten if nothing else is known of it."""
        before, diet = self.servers.pop(name, None), self.diets[name]
        if before is not None:
            self.tenants[before] -= 1
            self.sizes[before] -= not diet.is_empty
            self.eaten[before] -= diet
            if not self.tenants[before] and before not in self.past:
                del self.eaten[before]
        return before

    def _place(self, name: str, server: str) -> None:
        self.servers[name] = server
        diet = self.diets[name]
        self.tenants[server] += 1
        self.sizes[server] += not diet.is_empty
        self.eaten[server] = self.eaten[server] + diet if server in self.eaten else diet

    def _record(self, name: str, server: str) -> float:
        """``EcologyState.record`` but for a habitat; of who is not there yet, one half."""
        if server not in self.records:
            posteriors = self.state.pleased(server)
            self.records[server] = pooled(posteriors.values()), posteriors
        overall, pleased = self.records[server]
        own = pleased.get(name, SuccessPosterior())
        rest = SuccessPosterior(overall.successes - own.successes, overall.failures - own.failures)
        return rest.mean

    def _colony(self) -> str:
        self.colonies += 1
        return f"colony {self.colonies}"
