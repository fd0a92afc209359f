"""A model of sentences without a download: it stands in for the package that brings real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EMBEDDED: list[str] = []
"""Texts that were embedded, in order."""


class LetterCounts:
    """Embeds a text as how often each letter occurs; fulfils what the reward asks of
    ``SentenceTransformer``."""

    def __init__(self, model: str, **options: Any) -> None:
        assert options["device"] == "cpu"
        if "missing" in model:
            raise OSError(f"{model} is not a model\nand so on")

    def encode(self, text: str, **options: Any) -> np.ndarray:
        """Counts of a to z, ``(26,)``."""
        EMBEDDED.append(text)
        counts = [text.lower().count(chr(letter)) for letter in range(97, 123)]
        return np.array(counts, np.float32)


def bring_encoder(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any] = LetterCounts) -> None:
    """The package is there until the test ends."""
    name = "sentence_transformers"
    package = ModuleType(name)
    package.__spec__ = ModuleSpec(name, None)
    package.SentenceTransformer = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, package)
    EMBEDDED.clear()
