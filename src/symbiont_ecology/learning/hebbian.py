"""Three factors: what a synapse read, how its output was perturbed, and the reward that followed.

Reward above a baseline, times the trace Σ noise ⊗ input of an answer (``weights.traces``), is in
the mean the policy gradient, from forward passes alone: node perturbation (Werfel, Xie & Seung
2005; Fiete & Seung 2006).
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveFloat

from symbiont_ecology.learning import learning_rules
from symbiont_ecology.learning.policy_gradient import PolicyGradient
from symbiont_ecology.registry import Share


@learning_rules.register("hebbian")
@dataclass(frozen=True)
class Hebbian(PolicyGradient):
    """The advantages of ``policy_gradient``, learned from traces: A moves towards rewarded noise.

    B stays as it is. A founder's B is 0, so its noise has no effect: its first generation only sets
    baselines, and then it gets a random B, and A = 0. Fewer modules (``host.targets``) mean less
    variance.
    """

    group: Share = 1.0  # part of the other samples of an item in its baseline, in [0, 1]
    perturbation: PositiveFloat = 1.25  # standard deviation of the noise on A x, > 0
