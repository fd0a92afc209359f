"""The pool of adapters of a run: who can be asked, and what is known of each.

Candidates are the elites of the archive and the living. An elite is an organelle at the moment when
it held a cell: the living may have unlearned since what they could do then (docs/log.md has the
comparison). The router learns from the run's own practice, read back from the event log: prompts,
who answered, and the verdict. It costs no extra rollout, and no family label.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Upheaved
from symbiont_ecology.base.types import OrganelleId, last_turn
from symbiont_ecology.ecology import HOST, EcologyState, Elite
from symbiont_ecology.ecology.routing.routers import Expectation, Observation, routers
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.mixture import TaskMixture

OBSERVATION_HALF_LIFE, MAX_HALF_LIFE_SHARE = 50, 0.25
"""Verdicts per cell, over everyone, after which an older one is worth half as much to the router.
It is at most such a share of a whole run, or a short run is judged by how it began."""
MIN_WEIGHT = 0.1
"""Observations that count less are left out."""


@dataclass(frozen=True, repr=False)
class AdapterPool:
    """Candidates with their weights, and what is known of them.

    ``scores`` holds success rates by cell and candidate. ``elites`` are the candidates that a
    router chooses among.
    """

    state: EcologyState
    config: RunConfig
    weights: Mapping[OrganelleId, AdapterWeights]
    elites: tuple[OrganelleId, ...]
    scores: Mapping[str, Mapping[OrganelleId, float]]
    observations: tuple[Observation, ...]

    @classmethod
    def of_run(
        cls, folder: Path, state: EcologyState, config: RunConfig, tasks: TaskMixture
    ) -> AdapterPool:
        """Read weights and outcomes back from a run folder."""
        store = BlobStore(folder / "blobs")
        elites = state.archive.elites
        weights = {o.id: store.weights(o.genome.weights) for o in state.population.values()}
        weights |= {elite_id(elite): store.weights(elite.weights) for elite in elites.values()}
        candidates = set(map(elite_id, elites.values())) or set(state.population)
        scores: dict[str, dict[OrganelleId, float]] = defaultdict(dict)
        for organelle_id in sorted(state.population):
            for cell, posterior in state.posteriors.get(organelle_id, {}).items():
                scores[cell][organelle_id] = posterior.mean
        for cell, elite in elites.items():
            scores[cell][elite_id(elite)] = elite.score
        # Not beyond the checkpoint: what a killed run did after it will be done again.
        events = list(islice(read_events(folder / "events.jsonl"), state.next_seq))
        acted = [event for event in events if isinstance(event, Acted)]
        for event in acted:  # who only read reference answers is taken to know them
            if event.purpose == "practice" and not event.verdicts and event.id in state.population:
                scores[event.cell].setdefault(event.id, 1.0)
        opened = {
            cell: event.generation
            for event in events
            if isinstance(event, Upheaved)  # the world was taken to have changed
            for cell in event.cells
        }
        observations = tuple(_observations(acted, opened, state, tasks))
        ids = tuple(sorted(candidates))
        return cls(state, config, weights, ids, scores=scores, observations=observations)

    @cached_property
    def expectation(self) -> Expectation:
        """Success that the run's router expects of the host and of each elite."""
        return routers.build(self.config.router).fit(self.observations, self.elites)

    def best(self, among: Collection[OrganelleId] = ()) -> OrganelleId:
        """Return the candidate with the highest success summed over all cells; the host if there is
        none. With ``among``, one of these.

        Only the living have a record in more than one cell. Of equals it is the
        one with the highest score in an exam: where exams are read, nobody has a success.
        """
        alive = self.state.population
        record = dict.fromkeys(alive, 0.0)
        for scores in self.scores.values():
            for name in scores.keys() & alive:
                record[name] += scores[name]

        def rank(name: OrganelleId) -> tuple[float, float]:
            exam = alive[name].score
            return record[name], -math.inf if exam is None else exam

        return max(sorted(record.keys() & among or record), key=rank, default=HOST)

    def server(self, user: str) -> OrganelleId:
        """Return the living organelle that serves a user; the host if there is none."""
        entry = self.state.users.get(user)
        return entry.server if entry and entry.server in self.state.population else HOST


def elite_id(elite: Elite) -> OrganelleId:
    """Return ``o7@42``: the organelle as it was in that generation."""
    return f"{elite.organelle_id}@{elite.generation}"


def _observations(
    acted: Sequence[Acted], opened: Mapping[str, int], state: EcologyState, tasks: TaskMixture
) -> Iterator[Observation]:
    """Yield what the run saw of the host and of each candidate, rollout by rollout.

    ``opened`` are the generations up to which cells are forgotten. An older verdict counts less,
    the more of its cell was practised since: what is not practised any more does not age.
    """
    moments: dict[OrganelleId, dict[OrganelleId, int]] = defaultdict(dict)
    for elite in state.archive.elites.values():
        moments[elite.organelle_id][elite_id(elite)] = elite.generation
    if not moments:  # nobody was judged: the living are the candidates
        moments |= {name: {name: state.generation - 1} for name in state.population}
    moments[HOST] = {}
    practised = _practised(acted, state.generation)
    for event in acted:
        seen = {HOST: 1.0} if event.id == HOST else {}
        is_forgotten = event.generation <= opened.get(event.cell, -1)
        rollouts = practised[event.cell]
        half_life = min(OBSERVATION_HALF_LIFE, MAX_HALF_LIFE_SHARE * rollouts[-1]) or math.inf
        for candidate, moment in moments[event.id].items():
            weight = 0.5 ** ((rollouts[moment] - rollouts[event.generation]) / half_life)
            # Neither long before that moment, nor after it.
            if not is_forgotten and MIN_WEIGHT <= weight <= 1:
                seen[candidate] = weight
        if not seen:
            continue
        # Who only read reference answers in practice is taken to know them; who read them in a
        # probe was measured by that, and learned nothing.
        unjudged = (1.0,) if event.purpose == "practice" else ()
        for place, identity in enumerate(event.items):
            first = place * event.samples
            verdicts = event.verdicts[first : first + event.samples]
            prompt = last_turn(tasks.prompt(identity))
            for verdict in verdicts or unjudged:
                for name, weight in seen.items():
                    yield Observation(prompt, name, verdict, weight)


def _practised(acted: Sequence[Acted], generations: int) -> Mapping[str, np.ndarray]:
    """Return the rollouts of practice in each cell up to each generation; 0 of any other cell."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(generations + 1))
    for event in acted:
        if event.purpose == "practice":
            counts[event.cell][event.generation] += len(event.items) * max(event.samples, 1)
    for count in counts.values():
        np.cumsum(count, out=count)
    return counts
