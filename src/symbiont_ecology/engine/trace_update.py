"""Learning by traces: one step for every learner from forward passes alone (``weights.traces``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from symbiont_ecology.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import Trace, ascended


def trace_update(
    batch: LearningBatch,
    traces: Sequence[Trace],
    weights: Mapping[int, AdapterWeights],
    optimizer_state: Mapping[int, OptimizerState],
) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
    """``Host.learn`` without the host: a step up the mean of weight · trace, and no loss to tell
    of.

    ``traces`` are those of the batch's lessons; all of one slot come from one batch of rollouts. A
    slot whose step is not finite comes back as it was, and is said to be sick.
    """
    new_weights, new_states, norms, tokens, sick = dict(weights), dict(optimizer_state), {}, {}, []
    taught: dict[int, list[tuple[Lesson, Trace]]] = defaultdict(list)
    for lesson, trace in zip(batch.lessons, traces, strict=True):
        taught[lesson.slot].append((lesson, trace))
    for slot, own in taught.items():
        everyone, rows = own[0][1].traces, [trace.row for _, trace in own]
        credit = everyone.credit(
            rows, [np.asarray(lesson.weight) / len(own) for lesson, _ in own], weights[slot].rank
        )
        norms[slot] = float(np.linalg.norm(credit))
        tokens[slot] = sum(len(lesson.completion) for lesson, _ in own)
        after = ascended(weights[slot], optimizer_state[slot], credit, batch.learning_rates[slot])
        if np.isfinite(after[0].vector).all():
            new_weights[slot], new_states[slot] = after
        else:
            sick.append(slot)
    return new_weights, new_states, LearningStatistics({}, norms, tokens, tuple(sick))
