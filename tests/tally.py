"""How many cases of each kind were tried, and how many of them failed: ``pytest --tally FILE``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

TRIED, FAILED = Counter[str](), Counter[str]()


def tally(kind: str, tried: int, failed: int = 0) -> None:
    """Counts cases of a kind."""
    TRIED[kind] += tried
    FAILED[kind] += failed


def write_tally(path: Path) -> None:
    """Writes what was counted, by kind."""
    counts = {kind: {"tried": count, "failed": FAILED[kind]} for kind, count in TRIED.items()}
    path.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
