"""Results of ablations that were made up, so that the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from symbiont_ecology.extensions.study.ablation import MEASURES

MEANS = {
    "accuracy": 0.7,
    "retention": 0.9,
    "coverage": 20.0,
    "energy": 8e7,
    "flops": 8e7,
    "flipped": 0.4,
    "kept": 0.7,
}
SPREADS = {
    "accuracy": 0.02,
    "retention": 0.02,
    "coverage": 1.0,
    "energy": 2e6,
    "flops": 2e6,
    "flipped": 0.02,
    "kept": 0.02,
}


def made_up(
    truth: Mapping[str, Mapping[str, float]], seeds: int = 12, world: int = 0
) -> dict[str, Any]:
    """Results in which each mechanism truly adds so much to each outcome, and nothing to those not
    named."""
    generator = np.random.default_rng(world)

    def lived(added: Mapping[str, float]) -> dict[str, list[float]]:
        noise = {name: SPREADS[name] * generator.standard_normal(seeds) for name in MEASURES}
        return {
            name: (MEANS[name] - added.get(name, 0.0) + noise[name]).tolist() for name in MEASURES
        }

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
