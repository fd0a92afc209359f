"""The portfolio of a run: who can be asked, and what the run, or a selection after it, says about
each.

Candidates are the elites of the archive, each an organelle at the moment when it held a cell (the
living may have unlearned since what they could do then; docs/log.md has the comparison), and the
living. What the router learns from are the run's own practice outcomes, read back from the event
log: prompts, who answered, and the verdict. It costs no extra rollout, and no family label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import HOST, EcologyState, Elite
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.evaluation.answers import Answer
from symbiont_ecology.events import Acted, Event, Upheaved, read_events
from symbiont_ecology.inference.routers import Observation, Promise, routers
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Depth, Item, OrganelleId
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.blobs import BlobStore

OBSERVATION_HALF_LIFE, PAST = 50, 0.25
"""Verdicts per cell, of everyone together, after which an older one is worth half as much to the
router; but no more than such a share of a whole life, or short ones are judged by what they could
do at the beginning."""


@dataclass(frozen=True)
class AdapterPool:
    """Candidates with their weights, and what is known of them.

    ``scores`` holds success rates by cell and candidate, ``elites`` the candidates that a router
    chooses among, ``source`` where the scores come from: ``practice`` (train items, in passing) or
    ``selection``.
    """

    state: EcologyState
    config: RunConfig
    weights: Mapping[OrganelleId, AdapterWeights]
    elites: tuple[OrganelleId, ...]
    scores: Mapping[str, Mapping[OrganelleId, float]]
    observations: tuple[Observation, ...]
    source: str = "practice"

    @classmethod
    def of_run(cls, folder: Path, state: EcologyState, config: RunConfig) -> AdapterPool:
        """Reads weights and outcomes back from a run folder."""
        store = BlobStore(folder / "blobs")
        weights = {o.id: store.weights(o.genome.weights) for o in state.population.values()}
        weights |= {
            elite_id(elite): store.weights(elite.weights) for elite in state.archive.elites.values()
        }
        elites = {elite_id(elite) for elite in state.archive.elites.values()} or set(
            state.population
        )
        scores: dict[str, dict[OrganelleId, float]] = defaultdict(dict)
        for organelle_id in sorted(state.population):
            for cell, posterior in state.posteriors.get(organelle_id, {}).items():
                scores[cell][organelle_id] = posterior.mean
        for cell, elite in state.archive.elites.items():
            scores[cell][elite_id(elite)] = elite.score
        return cls(
            state,
            config,
            weights,
            tuple(sorted(elites)),
            scores,
            tuple(_observations(folder, state, config)),
        )

    @cached_property
    def promise(self) -> Promise:
        """What the run's router has learned to expect of the host and of each elite."""
        return routers.build(self.config.router).fit(self.observations, self.elites)

    def best(self) -> OrganelleId:
        """The candidate with the highest success summed over all cells; the host if there is none.

        Judged by practice, only the living have a record in more than their own cell.
        """
        record: dict[OrganelleId, float] = dict.fromkeys(sorted(self.state.population), 0.0)
        for scores in self.scores.values():
            for organelle_id, score in scores.items():
                if self.source == "selection" or organelle_id in self.state.population:
                    record[organelle_id] = record.get(organelle_id, 0.0) + score
        record.pop(HOST, None)
        return max(sorted(record), key=lambda organelle_id: record[organelle_id], default=HOST)

    def best_of(self, cells: Sequence[str]) -> OrganelleId:
        """The elite with the highest success in one of the cells; the host where nobody has a
        record."""
        found = [
            (score, organelle_id)
            for cell in cells
            for organelle_id, score in self.scores.get(cell, {}).items()
            if organelle_id in self.elites
        ]
        return max(found, default=(0.0, HOST))[1]

    def reselected(self, answers: Sequence[Answer]) -> AdapterPool:
        """The same candidates with scores, and further observations, from answers to selection
        questions."""
        verdicts: dict[str, dict[OrganelleId, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in answers:
            verdicts[one.question.cell][one.organelle_id].append(one.verdict)
        scores = {
            cell: {organelle_id: sum(found) / len(found) for organelle_id, found in by_who.items()}
            for cell, by_who in verdicts.items()
        }
        seen = [Observation(one.question.prompt, one.organelle_id, one.verdict) for one in answers]
        return replace(
            self, scores=scores, observations=(*self.observations, *seen), source="selection"
        )


def elite_id(elite: Elite) -> OrganelleId:
    """``o7@42``: the organelle as it was in that generation."""
    return f"{elite.organelle_id}@{elite.generation}"


def _observations(folder: Path, state: EcologyState, config: RunConfig) -> list[Observation]:
    tasks = mixture(config)
    moments: dict[OrganelleId, dict[OrganelleId, int]] = defaultdict(dict)
    for elite in state.archive.elites.values():
        moments[elite.organelle_id][elite_id(elite)] = elite.generation
    if not moments:  # nobody was judged: the living are the candidates
        moments |= {
            organelle_id: {organelle_id: state.generation - 1} for organelle_id in state.population
        }
    # Not beyond the checkpoint: what a killed run did after it will be done again.
    events = list(islice(read_events(folder / "events.jsonl"), state.next_seq))
    practised = _practised(events, state.generation)
    half_life = min(OBSERVATION_HALF_LIFE * len(tasks.cells), PAST * practised[-1])
    observations, opened = [], _opened(events)
    for event in events:
        if not isinstance(event, Acted):
            continue
        if event.id == HOST:
            observations += _seen(event, HOST, 1.0, tasks)
            continue
        if event.generation <= opened.get(event.cell, -1):  # another world
            continue
        for organelle_id, then in moments[event.id].items():
            age = practised[then] - practised[event.generation]
            weight = 0.5 ** (age / half_life)
            if 0.1 <= weight <= 1:  # not long before the candidate's moment, and not after it
                observations += _seen(event, organelle_id, weight, tasks)
    return observations


def _practised(events: Sequence[Event], generations: int) -> np.ndarray:
    """Rollouts of practice up to each generation, ``(generations + 1,)``."""
    counts = np.zeros(generations + 1)
    for event in events:
        if isinstance(event, Acted) and event.purpose == "practice":
            counts[event.generation] += len(event.items) * max(event.samples, 1)
    return counts.cumsum()


def _opened(events: Sequence[Event]) -> dict[str, int]:
    """The last generation in which the world was found to have changed, by cell."""
    return {
        cell: event.generation
        for event in events
        if isinstance(event, Upheaved)
        for cell in event.cells
    }


def _seen(
    event: Acted, organelle_id: OrganelleId, weight: float, tasks: TaskMixture
) -> list[Observation]:
    """One observation per rollout. Who only read gold answers is taken to know what it read."""
    seen = []
    for index, identity in enumerate(event.items):
        verdicts = event.verdicts[index * event.samples : (index + 1) * event.samples] or (1.0,)
        prompt = tasks.prompt(_item(identity))
        seen += [Observation(prompt, organelle_id, verdict, weight) for verdict in verdicts]
    return seen


def _item(identity: str) -> Item:
    family, depth, convention, payload = identity.split("/", 3)
    return Item(family, _depth(depth), payload, int(convention), "")


def _depth(text: str) -> Depth:
    return text  # type: ignore[return-value]
