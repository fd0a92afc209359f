"""Changes of the living: their rank, their servers, their posteriors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from symbiont_ecology.adapters import OptimizerState
from symbiont_ecology.adapters.deltas import grown, grown_optimizer_state, shares, truncated
from symbiont_ecology.base.events import Event, Resized, Served, Upheaved
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.ecology.population import ApplyContext, Decision

FALLEN = SuccessPosterior(0.0, 4.0)
"""The posterior of everyone alive in cells where the world changed: they were just seen to fail."""


@dataclass(frozen=True)
class Resize(Decision):
    """An organelle grows or shrinks by rank, if the spectrum of its ΔW says so.

    ``share`` is what the weakest direction must carry at least to grow, or may carry at most to
    shrink, in units of an even share.
    """

    organelle_id: OrganelleId
    rank: int
    share: float

    def apply(self, context: ApplyContext) -> list[Event]:
        """The organelle changes in rank, or stays as it is."""
        state, store = context.state, context.store
        organelle = state.population[self.organelle_id]
        weights = store.weights(organelle.genome.weights)
        optimizer_state = store.optimizer_state(organelle.optimizer_state)
        spectrum = shares(weights)
        weakest, kept = spectrum[-1] * len(spectrum), 1.0
        if self.rank > weights.rank:
            if weakest < self.share:
                return []
            resized = grown(weights, self.rank, context.draw("grow", organelle.id))
            optimizer_state = grown_optimizer_state(optimizer_state, weights, self.rank)
        else:
            if weakest > self.share or not spectrum.any():  # an adapter that never learned is 0
                return []
            kept = float(spectrum[: self.rank].sum())
            resized = truncated(weights, self.rank)
            # Its moments belong to directions that are gone, its age is its own.
            optimizer_state = OptimizerState(step=optimizer_state.step, notes=optimizer_state.notes)
        genome = replace(organelle.genome, weights=store.put_weights(resized), rank=self.rank)
        ref = store.put_optimizer_state(optimizer_state)
        changed = replace(organelle, genome=genome, optimizer_state=ref)
        state.population[organelle.id] = changed
        return [Resized(state.generation, organelle.id, self.rank, kept, genome.weights)]


@dataclass(frozen=True)
class Serve(Decision):
    """Habitats are served by other organelles, who get their next questions and learn what they
    accepted."""

    servers: Mapping[str, OrganelleId]
    """Of each habitat that changes."""

    def apply(self, context: ApplyContext) -> list[Event]:
        """Every habitat has its new server."""
        state = context.state
        for name, organelle_id in self.servers.items():
            state.habitats[name] = replace(state.habitats[name], chosen=organelle_id)
        return [Served(state.generation, dict(self.servers))]


@dataclass(frozen=True)
class Upheaval(Decision):
    """The world is taken to have changed in some cells: posteriors and claims there are void."""

    cells: tuple[str, ...]

    def apply(self, context: ApplyContext) -> list[Event]:
        """Everyone is taken to fail there."""
        state, void = context.state, dict.fromkeys(self.cells, FALLEN)
        for name in self.cells:
            state.archive.elites.pop(name, None)
            state.drift_detectors.pop(name, None)  # what was usual there is so no more
        for organelle in state.population.values():
            state.posteriors.setdefault(organelle.id, {}).update(void)
        return [Upheaved(state.generation, self.cells)]
