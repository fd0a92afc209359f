"""The ecology: a bandit hands out the questions, energy decides who breeds and who dies.

A curriculum says what is asked about, and an allocator who is asked; an organelle takes as many
questions as it can pay for. Where users ask, the clusters of users say who is asked, and every
question is answered. An organelle earns the cell's price for every verified answer and pays for its
compute; a lineage that earns less than it costs ends. What else happens between organelles are
mechanisms, one file each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pydantic import PositiveInt

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.fence import as_list
from symbiont_ecology.base.flops import ROLLOUT_WITH_LESSON
from symbiont_ecology.base.removed import is_removed
from symbiont_ecology.base.types import Item, OrganelleId, cell_name
from symbiont_ecology.ecology import (
    HOST,
    Assignment,
    Awaken,
    Birth,
    Decision,
    Found,
    Merge,
    Organelle,
    Resize,
)
from symbiont_ecology.ecology.learning import LearningRule
from symbiont_ecology.ecology.strategies import (
    LearningStrategy,
    StrategyContext,
    Want,
    World,
    assignments,
    author_of,
    strategies,
)
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

Knobs = dict[str, dict[str, object] | bool]

USUAL = ("upheaval", "breeding", "refounding")
"""Mechanisms of every ecology, unless they are switched off, in the order in which they act."""
FIRST_OF_OTHERS = "user_clustering"
"""The mechanism that acts next if it is on; all others follow in the order of their names."""


@strategies.register("ecology")
@dataclass(frozen=True)
class Ecology(LearningStrategy):
    """Organelles compete for questions; success is energy, and energy is offspring."""

    samples: PositiveInt = 1  # rollouts per question
    founders: PositiveInt = 1  # organelles at the start
    capacity: PositiveInt = 16  # most organelles alive
    ranks: PositiveInt = 48  # most units of LoRA rank over all organelles alive
    mechanisms: Knobs = field(default_factory=dict)  # knobs of each by its name, or false

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.founders > self.capacity:
            raise ConfigError(
                f"founders: expected at most capacity ({self.capacity}), got {self.founders}"
            )
        _ = self.built_mechanisms  # a mistake shows before a host is loaded

    @cached_property
    def built_mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms, in the order in which they act."""
        given = {
            mechanisms.present_name(name): knobs
            for name, knobs in self.mechanisms.items()
            if knobs is not False or not is_removed(mechanisms.kind, name)
        }
        others = sorted(given, key=lambda name: (name != FIRST_OF_OTHERS, name))
        chosen = dict.fromkeys((*USUAL, *others), True) | given
        for name in chosen:  # also those that are switched off: a typo must not leave one on
            _ = mechanisms[name]
        return tuple(
            mechanisms.build({**(knobs if isinstance(knobs, dict) else {}), "kind": name})
            for name, knobs in chosen.items()
            if knobs is not False
        )

    def check(self, rank: int, rule: LearningRule) -> None:
        super().check(rank, rule)
        if self.ranks < (needed := self.founders * rank):
            raise ConfigError(
                f"strategy.ranks: expected at least {needed}, host.rank ({rank}) for each of "
                f"{self.founders} founders, got {self.ranks}"
            )

    def found(self, context: StrategyContext) -> list[Decision]:
        # Founders start as the host itself (B = 0) and differ in A, or all start warm.
        room, users = self._room(context, ()), context.tasks.users
        if users is not None and users.groups:
            return [
                Found(self.traits, context.rank, users=tuple(group))
                for group in users.groups.values()
            ]
        offers = (part.found(context, room) for part in self.built_mechanisms)
        usual: list[Decision] = [Found(self.traits, context.rank) for _ in range(self.founders)]
        return next((list(offer) for offer in offers if offer), usual)

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """Hand out the questions of all cells among those who can pay for them.

        If nobody lives, the bare host alone spends what is left to be spent.
        """
        tasks, state, draw = context.tasks, context.state, context.draw
        if not state.population:
            generator = draw("probe")
            probes = [tasks.draw(cell, 1, generator) for cell in tasks.cells]
            return [Assignment(HOST, items, purpose="probe") for items in probes]
        takers = self._by_user(context) if tasks.users else self._by_cell(context)
        practice = assignments([taker for taker in takers if taker[0] != HOST], self.samples)
        unclaimed = assignments([taker for taker in takers if taker[0] == HOST], 1)
        return [*practice, *(replace(one, purpose="probe") for one in unclaimed)]

    @cached_property
    def wants(self) -> frozenset[Want]:  # type: ignore[override]
        """Wants of its mechanisms; and the bankrupt die."""
        return frozenset[Want]({"deaths"}).union(*(part.wants for part in self.built_mechanisms))

    @cached_property
    def phrases(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of its mechanisms."""
        return tuple(phrase for part in self.built_mechanisms for phrase in part.phrases)

    @cached_property
    def worlds(self) -> frozenset[World]:  # type: ignore[override]
        """Worlds where every mechanism can work."""
        both = frozenset[World]({"cells", "users"})
        return both.intersection(*(part.worlds for part in self.built_mechanisms))

    def _by_cell(self, context: StrategyContext) -> list[tuple[OrganelleId, Item]]:
        """Return the allocator's choice for the questions that the curriculum demands, unless a
        mechanism knows better."""
        state, draw, demand = context.state, context.draw, self.demand(context)
        allowance = {o.id: self._affordable(o, context) for o in state.population.values()}
        names = [cell_name(cell) for cell in demand]
        takers = context.allocator.assign(names, state.posteriors, allowance, draw("allocate"))
        items = {
            cell: iter(context.tasks.draw(cell, count, draw("items", *cell)))
            for cell, count in Counter(demand).items()
        }
        chosen = [(organelle_id, next(items[demand[place]])) for organelle_id, place in takers]
        return [(self._wish(item, context) or organelle_id, item) for organelle_id, item in chosen]

    def _by_user(self, context: StrategyContext) -> list[tuple[OrganelleId, Item]]:
        """Return a mechanism's choice for what users ask, or else the allocator's; every
        question is answered."""
        state, items = context.state, self.items(context)
        wishes, earlier = list[OrganelleId | None](), Counter[str]()
        for item in items:
            wishes.append(self._wish(item, context, earlier[item.user]))
            earlier[item.user] += 1
        chosen: dict[int, OrganelleId] = {}
        if not all(wishes):
            allowance = dict.fromkeys(state.population, len(items))
            niches, generator = [item.niche for item in items], context.draw("allocate")
            takers = context.allocator.assign(niches, state.posteriors, allowance, generator)
            chosen = {place: organelle_id for organelle_id, place in takers}
        pairs = zip(wishes, items, strict=True)
        return [(wish or chosen[place], item) for place, (wish, item) in enumerate(pairs)]

    def _wish(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Return the author of a reply that was given, or the first mechanism's choice that has
        one."""
        state = context.state
        if author := author_of(item, state):
            return author
        user = state.users.get(item.user)
        if item.logged and user and user.chosen in state.population:
            return user.chosen  # whoever said it, who serves the user learns it
        wishes = (mechanism.taker(item, context, earlier) for mechanism in self.built_mechanisms)
        return next((wish for wish in wishes if wish), None)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Let every mechanism decide in turn, on the room that those before it left. Where users
        come in groups that are known, nothing is to be decided."""
        if context.tasks.users is not None and context.tasks.users.groups:
            return []
        decisions: list[Decision] = []
        for mechanism in self.built_mechanisms:
            result = mechanism.tell(context, self._room(context, decisions))
            decisions += as_list(mechanisms.called(mechanism), result, Decision)
        return decisions

    def _room(self, context: StrategyContext, decisions: Sequence[Decision]) -> Room:
        """Return the places and ranks that are left after decisions; the newborn have full rank."""
        rank_of = {o.id: o.genome.rank for o in context.state.population.values()}
        coming_ranks = list[int]()
        for decision in decisions:
            match decision:
                case Found() | Birth() | Awaken() | Merge():
                    coming_ranks.append(context.rank)
                case Resize(organelle_id, rank):
                    rank_of[organelle_id] = max(rank_of[organelle_id], rank)
        places = self.capacity - len(rank_of) - len(coming_ranks)
        ranks = self.ranks - sum(rank_of.values()) - sum(coming_ranks)
        return Room(max(min(places, ranks // context.rank), 0), max(ranks, 0), self.traits)

    def _affordable(self, organelle: Organelle, context: StrategyContext) -> int:
        """Return the number of questions that the balance pays for if every rollout is also learned
        from.

        Everyone may try one, into debt if need be. So nobody starves on a balance too small to
        work with, and a debtor can earn its way back while grace lasts.
        """
        balance = context.state.ledger.balance(organelle.id)
        per_question = self.samples * context.prices.rollout * ROLLOUT_WITH_LESSON
        return max((balance - context.prices.ticket) // per_question, 1)
