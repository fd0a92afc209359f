"""Strategies and mechanisms of one's own that return something else than they should."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.ecology.strategies import StrategyContext, strategies
from symbiont_ecology.ecology.strategies.controls import Single
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from toy import ToyHost, toy_config, toy_ecology


@pytest.fixture
def silent(own_parts: None) -> None:
    """A strategy and a mechanism without a return."""

    @strategies.register("deaf")
    @dataclass(frozen=True)
    class Deaf(Single):
        """It hears, and says nothing."""

        def tell(self, context: StrategyContext) -> Any:
            """Nothing comes back."""

    @strategies.register("mute")
    @dataclass(frozen=True)
    class Mute(Single):
        """It asks by text."""

        def ask(self, context: StrategyContext) -> Any:
            """No assignment."""
            return ["what is 1+1?"]

    @mechanisms.register("idle")
    @dataclass(frozen=True)
    class Idle(Mechanism):
        """It decides nothing, and does not say so."""

        def tell(self, context: StrategyContext, room: Room) -> Any:
            """Nothing comes back."""


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("deaf", r"strategy 'deaf' \(\S+\) returned None, expected a list of Decisions"),
        ("mute", r"strategy 'mute' \(\S+\) returned 'what is 1\+1\?', expected a list of Assignm"),
        (toy_ecology(mechanisms={"idle": True}), r"mechanism 'idle' \(\S+\) returned None"),
    ],
)
def test_what_is_no_list_of_decisions_or_assignments_is_said_in_one_line(
    strategy: Any, said: str, silent: None, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=said) as caught:
        start(toy_config(strategy=strategy), tmp_path, host=ToyHost())
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match=said):  # mended code could go on from here
        resume(tmp_path, host=ToyHost())
