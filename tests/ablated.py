"""Results of ablations that were made up, so that the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from symbiont_ecology.extensions.study.ablation import MEASURES

MEANS = dict(zip(MEASURES, (0.7, 0.9, 20.0, 8e7, 8e7, 0.4, 0.7), strict=True))
SPREADS = dict(zip(MEASURES, (0.02, 0.02, 1.0, 2e6, 2e6, 0.02, 0.02), strict=True))


def made_up(
    truth: Mapping[str, Mapping[str, float]], seeds: int = 12, world: int = 0
) -> dict[str, Any]:
    """Results in which each mechanism truly adds so much to each outcome, and nothing to those not
    named."""
    generator = np.random.default_rng(world)

    def lived(added: Mapping[str, float]) -> dict[str, list[float]]:
        noise = {name: SPREADS[name] * generator.standard_normal(seeds) for name in MEASURES}
        means = {name: MEANS[name] - added.get(name, 0.0) for name in MEASURES}
        return {name: (means[name] + noise[name]).tolist() for name in MEASURES}

    arms = {name: {"about": name, "set": [f"strategy.mechanisms.{name}=false"]} for name in truth}
    return {
        "protocol": {
            "name": "made-up",
            "question": "does the instrument see what is there?",
            "base": [],
            "unit_flops": 1e9,
            "budgets": [1.0],
            "seeds": list(range(seeds)),
            "arms": {"ecology": {"about": "the default ecology", "set": []}, **arms},
            "main": "ecology",
            "per_cell": 40,
            "level": 0.05,
            "flip": {"at": 1.0, "back": 1.5, "extra": [0.0, 0.5]},
        },
        "digest": "0123",
        "host": {"fingerprint": "89ab", "versions": {"numpy": "2", "source": "4567"}},
        "sources": ["4567"],
        "rows": [
            {"mechanism": name, "purpose": "accuracy", "about": name, "change": [], "add": []}
            for name in truth
        ],
        "off_budget": 0.004,
        "measured": {"ecology": lived({}), **{name: lived(added) for name, added in truth.items()}},
    }
