"""Which strategies can be served, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from in_service import TOWN, Serve, wait_until
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.ecology import HOST, Assignment
from symbiont_ecology.ecology.strategies import StrategyContext, strategies
from symbiont_ecology.extensions.serve.service import check_served
from symbiont_ecology.model.llama import LlamaDecoder
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig, load_config

USUAL = ("ecology", "single", "genetic", "nearest", "neutral")
REFUSED = ("per_habitat", "told", "in_context", "es")


def town_of(strategy: str) -> RunConfig:
    """The town with that strategy; as they usually are, those that compare rewards do not learn."""
    does_learn = not strategies[strategy].compares_rewards
    rule = () if does_learn else ("learning_rule=none",)
    # The ecology of the town has mechanisms of its own.
    chosen = () if strategy == "ecology" else (f"strategy={strategy}",)
    return load_config("habitats/town", [*TOWN, *chosen, *rule])


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


def test_a_verdict_is_about_the_member_of_a_population_that_answered(serve: Serve) -> None:
    served = serve(config=town_of("genetic"))
    authors = dict[str, str]()
    for user in ("ada", "bob", "eve", "joe", "sue", "tom"):
        answer = served.ask(user=user).json()
        authors[user] = answer["organelle"]
        served.judge(answer["id"], accepted=True)
    wait_until(lambda: served.service.journal.learned == served.service.journal.verdicts)
    served.stop()
    log = list(read_events(served.folder / "events.jsonl"))
    practised = {e.habitat: e.id for e in log if isinstance(e, Acted) and e.purpose == "practice"}
    assert practised == authors
    assert len(set(authors.values())) > 1


def raises(strategy: object, context: StrategyContext) -> None:
    raise ValueError("'ada' is not in list")


def says_nothing(strategy: object, context: StrategyContext) -> None:
    """As a method without a return."""


def chooses_the_dead(strategy: object, context: StrategyContext) -> list[Assignment]:
    return [Assignment("o999", context.tasks.questions(context.state.generation))]


def chooses_no_name(strategy: object, context: StrategyContext) -> list[Assignment]:
    return [Assignment(["o1"], context.tasks.questions(context.state.generation))]  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", [raises, says_nothing, chooses_the_dead, chooses_no_name])
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


def test_a_request_for_which_memory_runs_out_ends_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    with monkeypatch.context() as patched:
        patched.setattr(LlamaDecoder, "start", no_memory)
        assert served.ask(user="bob").status_code == 503
    assert served.ask(user="bob").status_code == 200
    assert served.service.scheduler.open_jobs == 0


def no_memory(*arguments: object) -> None:
    raise torch.OutOfMemoryError("out of memory")
