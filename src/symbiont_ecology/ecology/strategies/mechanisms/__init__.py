"""What makes a population an ecology: births, merges, upheavals. One mechanism per file.

Mechanisms act one after the other in every generation, each on what the state says and on the
places that those before it left. They decide and never do: decisions are values. An ablation is a
config without one. A mechanism of *probation* has challengers: each of them and its parents answer
the same fresh questions, and are compared.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.types import Item, OrganelleId, cell_name
from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Judge, Outcome
from symbiont_ecology.ecology.gate import Challenger, PairedCounts, Ruling
from symbiont_ecology.ecology.strategies import StrategyContext

_Verdicts = dict[tuple[str, Item, int], float]
"""By cell, item, and how often the item had come before."""


@dataclass(frozen=True)
class Room:
    """What a strategy leaves to a mechanism."""

    places: int
    """Organelles that may still be added, >= 0."""
    ranks: int
    """Units of LoRA rank that may still be added, >= 0."""
    traits: Mapping[str, float]
    """Of newcomers without parents."""


class Mechanism:
    """Frozen. By default it neither asks anything nor decides anything.

    ``needs_sketches`` asks the engine for sketches, or coordinates, of the answers that habitats
    remember: see ``RememberedAnswer.vector``.
    ``keeps_memories``, ``keeps_ranges``, ``fits_habitats`` and ``needs_habitats`` are as in a
    strategy.
    """

    needs_sketches: ClassVar[bool] = False
    keeps_memories: ClassVar[bool] = False
    keeps_ranges: ClassVar[bool] = False
    fits_habitats: ClassVar[bool] = True
    needs_habitats: ClassVar[bool] = False

    def founding_faults(self, rank: int) -> Sequence[str]:
        """As of a strategy."""
        return ()

    def found(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """Who is founded; nobody leaves it to others, and to the strategy."""
        return ()

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """Questions of its own, beside those of practice."""
        return ()

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Who takes a question, which may be the bare host; None leaves it to others, and to the
        allocator. ``earlier`` questions of its habitat were given out in this generation."""
        return None

    def tell(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """What follows from the outcomes, which the state's posteriors and ledger already show."""
        return ()


mechanisms: Registry[Mechanism] = Registry(
    "mechanism", "symbiont_ecology.ecology.strategies.mechanisms"
)


ORPHANED = Ruling("reject", "a parent died")


class ProbationMechanism(Mechanism, ABC):
    """A mechanism that puts children on probation, and judges its own.

    ``by`` is the name of the mechanism. ``questions`` are asked per cell and generation: the
    nearest whole number of them; or, below one, a single one in the nearest whole number of
    generations. So every look of the gate sees the same mix of cells.
    """

    by: ClassVar[str]
    fits_habitats: ClassVar[bool] = False  # it asks questions that no habitat asked
    questions: float = 1

    @abstractmethod
    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> Ruling:
        """Decide on a challenger whose parents are alive, by its newest counts."""

    @abstractmethod
    def propose(self, context: StrategyContext) -> list[Decision]:
        """Put new challengers on probation."""

    def ask(self, context: StrategyContext) -> list[Assignment]:
        assignments, state = list[Assignment](), context.state
        if state.generation % max(round(1 / self.questions), 1):
            return []  # not due
        for challenger in self._challengers(state):
            if not has_parents(challenger, state):
                continue
            names = {name for cells in challenger.cells.values() for name in cells}
            for cell in context.tasks.cells:
                if cell_name(cell) in names:
                    generator = context.draw("probation", challenger.id, *cell)
                    items = context.tasks.draw(cell, max(round(self.questions), 1), generator)
                    assignments += [
                        Assignment(organelle_id, items, purpose="probation")
                        for organelle_id in (challenger.id, *challenger.parents)
                    ]
        return assignments

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        decisions = list[Decision]()
        for challenger in self._challengers(context.state):
            newest = with_new_counts(challenger, context.outcomes)
            is_rival = has_parents(newest, context.state)
            ruling = self.judge(newest, context.state, room) if is_rival else ORPHANED
            decisions.append(Judge(newest, ruling.verdict, ruling.reason))
        return [*decisions, *self.propose(context)]

    def busy(self, state: EcologyState) -> set[OrganelleId]:
        """Return the parents of those on probation."""
        challengers = self._challengers(state)
        return {parent for challenger in challengers for parent in challenger.parents}

    def _challengers(self, state: EcologyState) -> list[Challenger]:
        return [challenger for challenger in state.challengers.values() if challenger.by == self.by]


def has_parents(challenger: Challenger, state: EcologyState) -> bool:
    """Return true if all its parents are still alive."""
    return all(parent in state.population for parent in challenger.parents)


def homes(organelle_id: OrganelleId, state: EcologyState) -> tuple[str, ...]:
    """Return the cells, by name, where an organelle is the archive's elite."""
    elites = sorted(state.archive.elites.items())
    return tuple(name for name, elite in elites if elite.organelle_id == organelle_id)


def with_new_counts(challenger: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """Add the paired answers of one more generation to a challenger."""
    verdicts: dict[OrganelleId, _Verdicts] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.assignment.purpose == "probation":
            cell, seen = cell_name(outcome.assignment.cell), Counter[Item]()
            for rollout in outcome.rollouts:
                key = (cell, rollout.item, seen[rollout.item])
                verdicts[rollout.organelle_id][key] = rollout.verdict
                seen[rollout.item] += 1
    counts = {}
    for parent in challenger.parents:
        before = challenger.counts.get(parent, {})
        counts[parent] = {
            home: before.get(home, PairedCounts())
            + _paired(verdicts[challenger.id], verdicts[parent], cells)
            for home, cells in challenger.cells.items()
        }
    return replace(challenger, counts=counts)


def _paired(verdicts: _Verdicts, rivals: _Verdicts, cells: Sequence[str]) -> PairedCounts:
    """Count over the questions of some cells that both were asked: a budget may have left one
    out."""
    pairs = PairedCounts()
    for key in verdicts.keys() & rivals.keys():
        if key[0] in cells:
            gap = verdicts[key] - rivals[key]
            pairs += PairedCounts(int(gap > 0), int(gap == 0), int(gap < 0))
    return pairs
