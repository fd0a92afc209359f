"""The page of an adapter beside its bare host."""

from __future__ import annotations

from collections.abc import Sequence

from symbiont_ecology.analysis.page import render
from symbiont_ecology.evaluation.adapter_comparison import CHANGES, AdapterComparison
from symbiont_ecology.transcripts import plain
from symbiont_ecology.types import last_turn

EXAMPLES_TOLD, LONGEST_TOLD = 5, 300
"""Examples of every kind, and characters of each of their texts."""


def adapter_page(found: AdapterComparison, recommended: Sequence[str]) -> str:
    """Everything but most replies, as Markdown; nothing in a reply is markup there."""
    examples = {
        change: [
            [
                plain(text, LONGEST_TOLD)
                for text in (
                    last_turn(pair.item.prompt),
                    pair.item.answer,
                    pair.host.text,
                    pair.adapter.text,
                )
            ]
            for pair in found.examples(change, EXAMPLES_TOLD)
        ]
        for change in CHANGES
    }
    parts = {"recommended": recommended, "examples": examples}
    return render("adapter_comparison.md.j2", found=found, **parts)
