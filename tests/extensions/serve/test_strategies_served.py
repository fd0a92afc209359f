"""Which strategies can be served, and what becomes of one that fails."""

from __future__ import annotations

import pytest

from in_service import TOWN, Serve, wait_until
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.extensions.serve.service import check_served
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig, load_config

USUAL = ("ecology", "single", "nearest", "ifca", "clove", "bank", "neutral")
REFUSED = ("per_habitat", "told", "in_context")


def town_of(strategy: str) -> RunConfig:
    """The town with that strategy."""
    # The ecology of the town has mechanisms of its own.
    chosen = () if strategy == "ecology" else (f"strategy={strategy}",)
    return load_config("habitats/town", [*TOWN, *chosen])


def refusal(strategy: str) -> str:
    """Why it is not served; empty if it is."""
    try:
        config = town_of(strategy)
        check(config)
        check_served(config, "town")
    except ConfigError as error:
        return str(error)
    return ""


def test_what_can_be_served_is_known() -> None:
    assert {name for name in strategies.names() if not refusal(name)} == set(USUAL)


@pytest.mark.parametrize("name", REFUSED)
def test_a_strategy_that_cannot_be_served_is_refused_in_one_line(name: str) -> None:
    said = refusal(name)
    assert f"strategy {name!r} cannot be served" in said
    assert "\n" not in said


@pytest.mark.parametrize("name", USUAL)
def test_an_unknown_user_is_answered_and_learned_from(serve: Serve, name: str) -> None:
    served = serve(config=town_of(name))
    for _ in range(2):
        answer = served.ask(user="nobody has met me")
        assert answer.status_code == 200
        assert served.judge(answer.json()["id"], accepted=True).status_code == 200
        wait_until(lambda: served.service.journal.learned == served.service.journal.verdicts)
    served.stop()
    assert served.service.learning_error == ""
