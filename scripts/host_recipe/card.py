"""Measures the embedded host: what it answers by habit, what it could answer, and what it would
keep.

All on reserved payloads (holdout split), greedy, each cell apart. The table goes into
``host_card.json`` beside the weights, and from there into docs/host.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import TaskFamily, prompt_styles, task_families
from symbiont_ecology.types import DEPTHS, HOST_SLOT, Decoding, Depth, Item, Request

QUESTIONS = 500
"""Questions per cell, or all reserved payloads where a cell has fewer."""
WORDING_QUESTIONS = 200


def measure(folder: Path) -> dict[str, Any]:
    """The host's table: for each cell, shares of replies that are right in each way of asking."""
    kernel = HostKernel.from_pretrained(folder, slots=1, rank=1)
    cells = {
        f"{name}/{depth}": _measure_cell(kernel, task_families.build(name), depth)
        for name in task_families.names()
        for depth in DEPTHS
    }
    weights = (folder / "model.safetensors").read_bytes()
    return {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights), "cells": cells}


def _measure_cell(kernel: HostKernel, family: TaskFamily, depth: Depth) -> dict[str, Any]:
    items = family.distinct(depth, QUESTIONS, Draw(0)("card", family.name, depth), split="holdout")
    row: dict[str, Any] = {"role": family.role, "group": family.group, "questions": len(items)}
    row["reserved"] = "all" if len(items) < QUESTIONS else f">= {QUESTIONS}"
    row["habit"] = _share(kernel, family, items, "terse")
    if family.role == "composition":
        return row
    row["ceiling"] = _share(kernel, family, items, "cue")
    others = [index for index in range(3) if index != family.target]
    row["other_cues"] = [
        _share(
            kernel,
            family,
            [family.item(i.payload, depth, k) for i in items[:WORDING_QUESTIONS]],
            "cue",
        )
        for k in others
    ]
    row["other_habits"] = [
        _share(kernel, family, [family.item(i.payload, depth, k) for i in items], "terse")
        for k in others
    ]
    for label, shift in (("known_wording", 1), ("unseen_wording", 0)):
        spec = {"kind": "wording", "shift": shift}
        row[label] = _share(kernel, family, items[:WORDING_QUESTIONS], spec)
    return row


def _share(
    kernel: HostKernel, family: TaskFamily, items: Sequence[Item], style: str | dict[str, Any]
) -> float:
    render = prompt_styles.build(style).render
    rows = [
        Request(render(family, item), HOST_SLOT, family.reply_limit(item.depth)) for item in items
    ]
    texts = kernel.rollout(rows, None, Decoding()).texts
    right = sum(family.verify(item, text) for item, text in zip(items, texts, strict=True))
    return round(right / len(items), 4)
