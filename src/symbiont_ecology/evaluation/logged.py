"""What a run that learned from a log is worth on the part of the log that it never saw.

Two questions are put to every served habitat's organelle and to the bare host, about replies that
the habitat accepted: does it write such a reply itself, and how likely is the reply to it? Free
text is seldom written twice in the same words, so likelihood is what counts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from symbiont_ecology.ecology import HOST
from symbiont_ecology.engine.act import Question, read_log
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.evaluation.items import some_of
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
from symbiont_ecology.types import Item, OrganelleId

MOST_PER_HABITAT = 1 << 20
"""All that there are."""


@dataclass(frozen=True)
class HeldOut:
    """Accepted replies that were held out, as those who serve and the bare host see them.

    ``served`` and ``host`` are what each of them writes. ``served_nats`` and ``host_nats`` are mean
    log-probabilities of a token of the accepted replies, ``(items,)``.
    """

    items: Sequence[Item]
    served: Evaluation
    host: Evaluation
    served_nats: np.ndarray
    host_nats: np.ndarray

    def of(self, organelle_id: OrganelleId) -> HeldOut:
        """The part that an organelle answered."""
        rows = [
            place
            for place, rollout in enumerate(self.served.rollouts)
            if rollout.organelle_id == organelle_id
        ]
        return HeldOut(
            [self.items[row] for row in rows],
            replace(self.served, rollouts=tuple(self.served.rollouts[row] for row in rows)),
            replace(self.host, rollouts=tuple(self.host.rollouts[row] for row in rows)),
            self.served_nats[rows],
            self.host_nats[rows],
        )


def held_out(
    run: LoadedRun, host: Host, most: int | None = None, progress: Progress = no_progress
) -> HeldOut:
    """Asks about held-out rows of served habitats, at most so many of them by draw."""
    rows = run.items(MOST_PER_HABITAT, ("habitats",))
    items = some_of([item for item in rows if run.pool.server(item.habitat) != HOST], most)
    servers = [run.pool.server(item.habitat) for item in items]
    return HeldOut(
        items,
        run.evaluate(items, host, "habitat", progress=progress),
        run.evaluate(items, host, "host", progress=progress),
        _read(run, host, items, servers),
        _read(run, host, items, [HOST] * len(items)),
    )


def _read(
    run: LoadedRun, host: Host, items: Sequence[Item], readers: Sequence[OrganelleId]
) -> np.ndarray:
    """Mean log-probability of a token of each item's answer under an organelle, ``(items,)`` in
    nats."""
    questions = [Question(item.to_read, name) for item, name in zip(items, readers, strict=True)]
    rollouts, _ = read_log(questions, host, run.pool.weights.__getitem__)
    return np.array([rollout.confidence for rollout in rollouts])
