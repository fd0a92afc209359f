"""Measures the embedded host: what it answers by habit, what it could answer, and what it would
keep.

All on reserved payloads (holdout split), greedy, each cell apart. The card is ``host_card.json``
beside the weights; docs/results/embedded_host.md has it as a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from host_recipe.habits import synthetic_family
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Item, Request
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import CONVENTIONS, DEPTHS, SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import Cue, PromptStyle, Terse, Wording

QUESTIONS = 500
"""Questions per cell, or all reserved payloads where a cell has fewer."""
WORDING_QUESTIONS = 200


def measure(folder: Path) -> dict[str, Any]:
    """The host's table: for each cell, shares of replies that are right in each way of asking."""
    kernel = HostKernel.from_pretrained(folder, slots=1, rank=1)
    cells = {
        f"{name}/{depth}": _measure_cell(kernel, synthetic_family(name), depth)
        for name in tasks.names()
        if issubclass(tasks[name], SyntheticTask)
        for depth in DEPTHS
    }
    weights = (folder / "model.safetensors").read_bytes()
    return {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights), "cells": cells}


def _measure_cell(kernel: HostKernel, family: SyntheticTask, depth: str) -> dict[str, Any]:
    items = family.distinct(depth, QUESTIONS, Draw(0)("card", family.name, depth), split="holdout")
    row: dict[str, Any] = {"role": family.role, "group": family.group, "questions": len(items)}
    row["reserved"] = "all" if len(items) < QUESTIONS else f">= {QUESTIONS}"
    row["habit"] = _share(kernel, family, items, Terse())
    if family.role == "composition":
        return row
    row["ceiling"] = _share(kernel, family, items, Cue())
    sample = items[:WORDING_QUESTIONS]
    variants = [family.in_variant(k) for k in range(CONVENTIONS) if k != family.target]
    row["other_cues"] = [_share(kernel, variant, sample, Cue()) for variant in variants]
    row["other_habits"] = [_share(kernel, variant, items, Terse()) for variant in variants]
    for label, shift in (("known_wording", 1), ("unseen_wording", 0)):
        row[label] = _share(kernel, family, sample, Wording(shift))
    return row


def _share(
    kernel: HostKernel, family: SyntheticTask, items: Sequence[Item], style: PromptStyle
) -> float:
    """The share of questions that the host answers in the family's convention."""
    rows = [
        Request(
            style.render(family, item.question),
            HOST_SLOT,
            family.reply_limits[DEPTHS.index(item.depth)],
        )
        for item in items
    ]
    texts = kernel.rollout(rows, None, Decoding()).texts
    right = sum(family.verify(item.question, text) for item, text in zip(items, texts, strict=True))
    return round(right / len(items), 4)


def table(card: dict[str, Any]) -> str:
    """Return the card as the table of docs/results/embedded_host.md."""
    columns = ("habit", "ceiling", "other_cues", "known_wording", "unseen_wording")
    roles = ("trained", "shared", "unrelated", "composition")
    lines = ["| family | role | bare host | cue ceiling | other cues | known wording |"]
    lines[0] += " unseen wording | reserved payloads |"
    lines.append("|---" * 8 + "|")
    families = sorted(
        {cell.partition("/")[0] for cell in card["cells"]},
        key=lambda name: (roles.index(card["cells"][f"{name}/short"]["role"]), name),
    )
    for name in families:
        cells = [card["cells"][f"{name}/{depth}"] for depth in DEPTHS]
        shares = [" / ".join(_percent(cell.get(column)) for cell in cells) for column in columns]
        counts = [
            str(cell["questions"]) if cell["reserved"] == "all" else f"≥ {QUESTIONS}"
            for cell in cells
        ]
        row = (name, cells[0]["role"], *shares, " / ".join(counts))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _percent(share: float | list[float] | None) -> str:
    if share is None:
        return "–"
    return f"{100 * (sum(share) / len(share) if isinstance(share, list) else share):.0f}"
