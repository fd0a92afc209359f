"""Parts that fail, for as long as a test goes on."""

from __future__ import annotations

import pytest

from faulty import Absent, Chance, Moody, Wild
from symbiont_ecology.learning import learning_rules, reward_rules
from symbiont_ecology.operators import operators


@pytest.fixture
def faulty_parts(own_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward, a learning rule and an operator of ``faulty``."""
    reward_rules.register("moody")(Moody)
    learning_rules.register("absent")(Absent)
    operators.register("wild")(Wild)
    monkeypatch.setattr(Chance, "calls", 0)
