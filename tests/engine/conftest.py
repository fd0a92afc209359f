"""Parts that fail, for as long as a test goes on; a run that nothing interrupted."""

from __future__ import annotations

import pytest

from faulty import Absent, Chance, Moody, Wild
from resumed import config, trace
from runs import start
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.ecology.learning import learning_rules, reward_rules
from toy import ToyHost


@pytest.fixture
def faulty_parts(own_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward, a learning rule and an operator of ``faulty``."""
    reward_rules.register("moody")(Moody)
    learning_rules.register("absent")(Absent)
    operators.register("wild")(Wild)
    monkeypatch.setattr(Chance, "calls", 0)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The trace of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert start(config(), folder, host=ToyHost()).is_complete
    return trace(folder)
