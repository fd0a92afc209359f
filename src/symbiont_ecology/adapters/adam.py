"""Adam for methods that have a direction to go and no backward pass."""

from __future__ import annotations

import numpy as np

from symbiont_ecology.adapters.adapter import OptimizerState

BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8


def adam_direction(
    gradient: np.ndarray, before: OptimizerState
) -> tuple[np.ndarray, OptimizerState]:
    """Return the direction of a step up the gradient ``(parameters,)``, to be multiplied by a
    learning rate, and the state after it (Kingma & Ba 2014, arXiv:1412.6980)."""
    step = before.step + 1
    first, second = (
        np.zeros_like(gradient) if m is None else m for m in (before.first, before.second)
    )
    first = BETA_FIRST * first + (1 - BETA_FIRST) * gradient
    second = BETA_SECOND * second + (1 - BETA_SECOND) * gradient**2
    spread = np.sqrt(second / (1 - BETA_SECOND**step)) + EPSILON
    direction = first / (1 - BETA_FIRST**step) / spread
    return direction, OptimizerState(step, first, second, before.notes)
