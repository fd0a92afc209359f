"""Logs of replies that users accepted or refused, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, compose
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.users import SyntheticUsers
from toy import toy_config, toy_prices

Row = dict[str, Any]
RICH = toy_prices(ticket=0, rent=60_000, lowest=6000, base=6000, highest=6000, dowry=15_000)
FORAGING = {"foraging": True, "breeding": False, "upheaval": False}
SIZES = {"capacity": 12, "ranks": 64, "learning_rate": 0.1, "aging": 0.0}
ECOLOGY: dict[str, Any] = {"kind": "ecology", **SIZES, "mechanisms": FORAGING}


def town(count: int = 6, kinds: int = 2, questions: int = 6) -> SyntheticUsers:
    """A synthetic world that logs are taken from."""
    families = "math.add", "string.sort", "logic.bool"
    plan = toy_config(families=families, strategy={"kind": "single"})
    users = UsersConfig(count=count, kinds=kinds, questions=questions)
    tasks = plan.tasks.model_copy(update={"users": users})
    world = mixture(plan.model_copy(update={"tasks": tasks})).users
    assert isinstance(world, SyntheticUsers)
    return world


def rows_of(world: SyntheticUsers, generations: int = 30) -> list[Row]:
    """What a model that answers in a convention by draw, right but for that, would be told."""
    found = []
    for generation in range(generations):
        draw = Draw(1, generation)("logged")
        for item in world.questions(generation):
            task = next(task for task in world.tasks if task.name == item.family)
            assert isinstance(task, SyntheticTask)
            reply = task.answers(item.question)[int(draw.integers(3))]
            row = {"user": item.user, "family": item.family, "prompt": item.prompt}
            found.append({**row, "reply": reply, "accepted": bool(item.verifier(reply))})
    return found


def log_config(
    path: Path, *overrides: str, families: Sequence[str] = (), strategy: object = None
) -> RunConfig:
    """The config of a toy run that learns from a log, by family if some are named."""
    log = {"kind": "log", "name": "log", "path": str(path)}
    sources = [log | {"name": f"log.{family}", "only": family} for family in families] or [log]
    words = (
        f"tasks.families={json.dumps(sources)}",
        "tasks.users.questions=6",
        f"strategy={json.dumps(strategy or ECOLOGY)}",
        "learning_rule={kind: expert_iteration, skip: 0.0, replay: 1.0}",
        f"economy={json.dumps(asdict(RICH))}",
        "run.generations=27",
        "run.checkpoint_every=4",
    )
    return compose((), (*words, *overrides), "test")


def by_server(servers: dict[str, str], world: SyntheticUsers) -> list[set[int]]:
    """The kinds that each server serves."""
    found: dict[str, set[int]] = {}
    for name, kind in zip(world.names, np.asarray(world.kinds(0)).tolist(), strict=True):
        found.setdefault(servers[name], set()).add(kind)
    return list(found.values())
