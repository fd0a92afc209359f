"""Who answers a prompt at inference: routers that see prompt text and nothing else. One router per file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from symbiont_ecology.registry import Registry
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True)
class Observation:
    """One past rollout: who answered which prompt, and the verdict. No family label in sight."""

    prompt: str
    who: OrganelleId
    verdict: float
    weight: float = 1.0
    """Newer outcomes say more about an organelle that went on learning."""


Choice = Callable[[Sequence[str]], list[OrganelleId]]
"""Prompts in, for each the organelle that should answer it, or ``HOST`` to abstain."""


class Router(Protocol):
    """Learns from observations which organelle to ask; sees prompt text only."""

    def fit(self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]) -> Choice:
        """A routing function over the candidates and the bare host."""


routers: Registry[Router] = Registry("router", "symbiont_ecology.routing.routers")
