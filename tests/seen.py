"""Runs to look at, on the toy host: one in which everything happens, one with users."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import towns
from runs import start
from symbiont_ecology.base.transcripts import Transcript, TranscriptLog
from symbiont_ecology.extensions.evoscope.page import live_server
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.config import Flip
from toy import ToyHost, toy_config, toy_ecology, toy_prices

FAMILIES = ("math.add", "string.sort", "logic.bool", "word.count")
LENIENT = {"level": 0.8, "gain": 0.4, "most": 12}
"""A gate that a few questions open or shut."""
ECONOMY = toy_prices(dowry=12_001, grace=2, cap=40_000, lowest=1000, rent=6000)
SUM = {"kind": "concatenation", "decay": 0.0}
MECHANISMS: dict[str, Any] = {
    "upheaval": True,
    "breeding": {"at": 25_000, "mutation": "svd_noise"},
    "refounding": {"least": 7},
    "merging": {"every": 2, "at": 0, "operator": SUM, "questions": 3, "gate": LENIENT},
    "morphogenesis": {"every": 3, "rich": 15_000, "poor": 8000, "full": 0.05},
}
HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><img src=x onerror='window.pwned = 1'>",
    "\"quoted\" 'twice' & &lt;b&gt;",
    "turned \u202eback\u2066 \x1b[2J\x00 \u200bend",
)
"""What a model might write."""


def eventful_plan(generations: int = 60, **more: Any) -> RunConfig:
    """Upheavals, merges, trials, new ranks; and ``more``."""
    knobs: dict[str, Any] = {
        "questions": 4,
        "samples": 2,
        "capacity": 24,
        "ranks": 68,
        "learning_rate": 0.3,
    }
    plan = toy_config(
        5,
        generations,
        FAMILIES,
        ECONOMY,
        strategy=toy_ecology(**knobs, mechanisms={**MECHANISMS, **more}),
        learning_rule="expert_iteration",
        allocator="epsilon_greedy",
    )
    flip = Flip(families=FAMILIES[:2], at_flops=2e8, back_flops=3.2e8)  # of 4.5e8 in all
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"flip": flip})})


def users_plan(
    strategy: Any = None, seed: int = 0, generations: int = 40, drift_at: int = 25
) -> RunConfig:
    """A small town, some of whose users change their mind."""
    world = {"families": FAMILIES[:3], "count": 9, "drift_at": drift_at}
    return towns.config(strategy, seed, generations, **world)


NOISE = {"mutation": {"kind": "gaussian", "sigma": 0.2}, "is_adaptive": True}
SPACE = {"ranks": [1, 2, 4], "learning_rates": [0.01, 0.03, 0.1, 0.3]}
METHODS: dict[str, dict[str, Any]] = {
    "es": {"kind": "es", "population": 6, "questions": 3, "noise": 0.3, "looks": 4},
    "genetic": {"kind": "genetic", "elite": 2, "b_std": 0.3, **NOISE},
    "hyper": {"kind": "hyper", "train_size": 12, "eval_size": 12, "batch": 6, **SPACE},
}
"""Ways of evolving without an economy."""


def method_plan(name: str, generations: int = 16, **more: Any) -> RunConfig:
    """A short run of one of ``METHODS``."""
    rule = "supervised" if name == "hyper" else "none"
    strategy = {**METHODS[name], **more}
    return toy_config(0, generations, FAMILIES[:2], strategy=strategy, learning_rule=rule)


def lived_to_its_end(folder: Path, plan: RunConfig) -> Path:
    """A complete run of a plan."""
    start(plan, folder, host=ToyHost())
    return folder


def with_hostile_replies(folder: Path) -> Path:
    """A run whose last replies are what a model should not write."""
    log = TranscriptLog(folder / "transcripts.jsonl", 1.0)
    log.rewind(1 << 30)
    said = partial(Transcript, 39, "o1", "practice", "math.add/short", "x", verdict=0.0, price=0)
    log.write(said(text, text, confidence=None, user="h1") for text in HOSTILE)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a live server, which ends with the block."""
    server = live_server([folder])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
