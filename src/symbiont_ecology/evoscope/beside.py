"""What the bare host says to the prompts of a run, to be read beside the organelles' replies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from symbiont_ecology.engine.build import build_host
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.types import Item

BESIDE_TOKENS = 32
"""Tokens."""


def host_replies(folder: Path, prompts: Sequence[str]) -> dict[str, str]:
    """The bare host's greedy replies by prompt; the run's host is loaded for it."""
    run = LoadedRun.of_run(folder)
    items = [
        Item(
            id=f"beside/{prompt}",
            family="",
            depth="",
            question=prompt,
            prompt=prompt,
            reply_limit=BESIDE_TOKENS,
            verifier=_nothing,
        )
        for prompt in dict.fromkeys(prompts)
    ]
    rollouts = run.evaluate(run.as_asked(items), build_host(run.config), "host").rollouts
    return {rollout.item.question: rollout.text for rollout in rollouts}


def _nothing(reply: str) -> float:
    """Replies are shown, not judged."""
    return 0.0
