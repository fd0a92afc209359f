"""The portfolio of a run: the elites of its archive, and how a question finds the one to ask.

An elite is an organelle at the moment when it held a cell; the living may have unlearned since what they
could do then (docs/log.md has the comparison). What the router learns from are the run's own practice
outcomes, read back from the event log: prompts, who answered, and the verdict. It costs no extra rollout,
and no family label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import HOST, EcologyState, Elite
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.events import Acted, read_events
from symbiont_ecology.routing.routers import Observation, routers
from symbiont_ecology.types import Depth, Item, OrganelleId
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.blobs import BlobStore

Routing = Literal["host", "single", "cell", "learned"]
"""*host*: the bare host answers everything. *single*: the organelle with the best record over all cells.
*cell*: the archive's elite of the question's true cell (an oracle: it reads labels). *learned*: the run's
label-free router, which may abstain to the host."""

FADE = 0.8
"""What a verdict is worth to the router, for each generation that it lies before the elite's own."""


@dataclass(frozen=True)
class Portfolio:
    """Candidates with their weights, and what the run says about them."""

    state: EcologyState
    config: RunConfig
    weights: Mapping[OrganelleId, AdapterWeights]
    observations: tuple[Observation, ...]

    @classmethod
    def of_run(cls, folder: Path, state: EcologyState, config: RunConfig) -> Portfolio:
        """Reads weights and outcomes back from a run folder."""
        store = BlobStore(folder / "blobs")
        weights = {o.id: store.weights(o.genome.weights) for o in state.population.values()}
        weights |= {elite_id(elite): store.weights(elite.weights) for elite in state.archive.elites.values()}
        return cls(state, config, weights, tuple(_observations(folder, state, config)))

    def choose(self, questions: Sequence[Question], routing: str) -> list[OrganelleId]:
        """Who answers each question.

        Raises:
            ConfigError: no such routing.
        """
        match routing:
            case "host":
                return [HOST] * len(questions)
            case "single":
                return [self.best()] * len(questions)
            case "cell":
                elites = self.state.archive.elites
                cells = [f"{question.family}/{question.depth}" for question in questions]
                return [elite_id(elites[cell]) if cell in elites else HOST for cell in cells]
            case "learned":
                router = routers.build(self.config.router)
                candidates = {elite_id(elite) for elite in self.state.archive.elites.values()}
                choose = router.fit(self.observations, sorted(candidates))
                return choose([question.prompt for question in questions])
        raise ConfigError(f"routing: expected one of {', '.join(get_args(Routing))}, got {routing!r}")

    def best(self) -> OrganelleId:
        """The organelle with the highest believed success summed over all cells, judged on train items."""
        record = {
            who: sum(belief.mean for belief in self.state.beliefs.get(who, {}).values())
            for who in sorted(self.state.population)
        }
        return max(record, key=lambda who: record[who], default=HOST)


def elite_id(elite: Elite) -> OrganelleId:
    """``o7@42``: the organelle as it was in that generation."""
    return f"{elite.who}@{elite.generation}"


def _observations(folder: Path, state: EcologyState, config: RunConfig) -> list[Observation]:
    tasks = mixture(config)
    moments: dict[OrganelleId, set[int]] = defaultdict(set)
    for elite in state.archive.elites.values():
        moments[elite.who].add(elite.generation)
    observations = []
    # Not beyond the checkpoint: what a killed run did after it will be done again.
    for event in islice(read_events(folder / "events.jsonl"), state.next_seq):
        if not isinstance(event, Acted):
            continue
        known = {f"{event.id}@{moment}": FADE ** (moment - event.generation) for moment in moments[event.id]}
        for who, weight in {HOST: 1.0}.items() if event.id == HOST else known.items():
            if not 0.01 <= weight <= 1:  # long before the elite's moment, or after it
                continue
            for index, identity in enumerate(event.items):
                prompt = tasks.prompt(_item(identity))
                verdicts = event.rewards[index * event.samples : (index + 1) * event.samples]
                observations += [Observation(prompt, who, verdict, weight) for verdict in verdicts]
    return observations


def _item(identity: str) -> Item:
    family, depth, convention, payload = identity.split("/", 3)
    return Item(family, _depth(depth), payload, int(convention), "")


def _depth(text: str) -> Depth:
    return text  # type: ignore[return-value]
