"""Which strategies can be served, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from in_service import TOWN, Serve
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.ecology import HOST, Assignment
from symbiont_ecology.ecology.strategies import StrategyContext, strategies
from symbiont_ecology.extensions.serve.service import check_served
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig, load_config

USUAL = ("ecology", "single", "nearest", "neutral")
REFUSED = ("per_user", "told", "in_context")


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


def test_what_can_be_served_is_known_and_the_others_are_refused_in_one_line() -> None:
    refusals = {name: said for name in strategies.names() if (said := refusal(name))}
    assert set(strategies.names()) - set(refusals) == set(USUAL)
    for name in REFUSED:
        assert f"strategy {name!r} cannot be served" in refusals[name]
        assert "\n" not in refusals[name]


@pytest.mark.parametrize("name", USUAL)
def test_an_unknown_user_is_answered_and_learned_from(serve: Serve, name: str) -> None:
    served = serve(config=town_of(name))
    for _ in range(2):
        served.accept(user="nobody has met me")
        served.learn_all()
    served.stop()
    assert served.service.learning_error == ""


def raises(strategy: object, context: StrategyContext) -> None:
    raise ValueError("'ada' is not in list")


def chooses_the_dead(strategy: object, context: StrategyContext) -> list[Assignment]:
    return [Assignment("o999", context.tasks.questions(context.state.generation))]


def chooses_no_name(strategy: object, context: StrategyContext) -> list[Assignment]:
    return [Assignment(["o1"], context.tasks.questions(context.state.generation))]  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", [raises, chooses_the_dead, chooses_no_name])
def test_a_strategy_that_fails_ends_a_request_and_not_the_service(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., object]
) -> None:
    served = serve()
    strategy = type(served.service.run.runtime.strategy)
    with monkeypatch.context() as patched:
        patched.setattr(strategy, "ask", ask)
        failed = served.ask(user="bob")
        assert failed.status_code == 503
        assert "ada" not in failed.text
        assert served.ask(model=HOST).status_code == 200
    assert served.ask(user="bob").status_code == 200
    assert served.service.scheduler.open_jobs == 0
