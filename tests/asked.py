"""Helpers for tests of evaluations: items of all kinds, and who of a toy run answers them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from runs import start
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item, OrganelleId
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.items import DEFAULT_REPLY_LIMIT
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
from symbiont_ecology.extensions.data.writing import items_as_lines
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.data import reference_answer
from symbiont_ecology.tasks.grading import ReferenceVerifier, graders
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import prompt_styles
from toy import ToyHost, toy_config, toy_ecology

FAMILIES = ("math.add", "string.sort", "logic.bool", "countdown")
NO_COST = Cost()


def learned(folder: Path) -> Path:
    """A toy ecology that has learned."""
    strategy = toy_ecology(founders=4, capacity=6, learning_rate=0.15)
    config = toy_config(generations=40, families=FAMILIES, strategy=strategy, router="lexical")
    start(config, folder, host=ToyHost())
    return folder


def synthetic(name: str, style: str = "terse") -> SyntheticTask:
    """A synthetic task with prompts of a style."""
    task = tasks.build(name)
    assert isinstance(task, SyntheticTask)
    return task.in_style(prompt_styles.build(style))


def tasks_of(*names: str, style: str = "terse") -> TaskMixture:
    """Synthetic tasks at two depths."""
    return TaskMixture(tuple(synthetic(name, style) for name in names), ("short", "long"))


def foreign(number: int = 0, **changes: str) -> Item:
    """An item as it is read from a line that somebody else wrote."""
    fields = {
        "prompt": f"capital of {number}?",
        "target": "Paris",
        "family": "geo.capitals",
        "depth": "easy",
    } | changes
    answer = reference_answer(fields.pop("target"))
    return Item(
        f"g{number}",
        question=fields["prompt"],
        reply_limit=max(DEFAULT_REPLY_LIMIT, len(answer.encode(errors="replace")) + 1),
        verifier=ReferenceVerifier(graders.build("exact"), (answer,)),
        answer=answer,
        **fields,
    )


def answer(
    item: Item,
    organelle_id: OrganelleId = HOST,
    text: str = "",
    verdict: float = 0.0,
    cost: Cost = NO_COST,
    confidence: float = 0.0,
) -> Rollout:
    """A rollout of one token, with this log-probability."""
    nats = np.array([confidence], np.float64)
    return Rollout(item, organelle_id, (1,), nats, text, verdict, verdict, cost)


def write_items(items: Iterable[Item], path: Path) -> None:
    """Write a file of questions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, items_as_lines(items))


def values(rollouts: list[Rollout]) -> list[tuple[object, ...]]:
    """All that there is to compare in rollouts."""
    return [
        (
            one.item,
            one.organelle_id,
            one.token_ids,
            one.log_probabilities.tolist(),
            one.text,
            one.verdict,
            one.reward,
            one.cost,
            one.fault,
        )
        for one in rollouts
    ]


def accuracy(run: LoadedRun, items: list[Item], routing: str) -> Evaluation:
    return run.evaluate(items, ToyHost(), routing)


def chosen(run: LoadedRun, items: list[Item], routing: str) -> list[str]:
    return [one.organelle_id for one in accuracy(run, items, routing).rollouts]


def graded(verdicts: list[float], routing: str = "host") -> Evaluation:
    rollouts = [
        answer(foreign(number), verdict=verdict, cost=Cost(flops=10))
        for number, verdict in enumerate(verdicts)
    ]
    return Evaluation("run", routing, "toy", tuple(rollouts))
