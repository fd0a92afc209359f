"""Who answers a prompt at inference: routers that see prompt text and nothing else. One router per
file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from symbiont_ecology.registry import Registry
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True)
class Observation:
    """One past rollout: who answered which prompt, and the verdict. No family label in sight."""

    prompt: str
    organelle_id: OrganelleId
    verdict: float
    weight: float = 1.0
    """Newer outcomes say more about an organelle that went on learning."""


Expectation = Callable[[Sequence[str]], np.ndarray]
"""Prompts in, what is expected of everyone out: ``(prompts, 1 + candidates)``, the bare host
first."""


class Router(Protocol):
    """Learns from observations which organelle to ask; sees prompt text only."""

    def fit(
        self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]
    ) -> Expectation:
        """What to expect of the bare host and of each candidate; to ask the highest is to route."""


routers: Registry[Router] = Registry("router", "symbiont_ecology.inference.routers")
