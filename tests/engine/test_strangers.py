"""A run that learned tasks leaves what is none of them to the bare host."""

from __future__ import annotations

import pytest

from runs import start
from symbiont_ecology import Run
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.routings import routings
from toy import ToyHost, toy_config

STRANGE = "What is the capital of France?"
OTHERS = ("single", "host", "family")
"""Routings that ask no router."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strangers") / "run"
    router = {"kind": "lexical", "familiar": 0.75}
    start(toy_config(generations=30).model_copy(update={"router": router}), folder, host=ToyHost())
    return Run.open(folder, host=ToyHost())


@pytest.mark.parametrize("routing", [name for name in routings.names() if name not in OTHERS])
def test_a_strange_prompt_goes_to_the_bare_host(run: Run, routing: str) -> None:
    assert run.ask(STRANGE, routing).organelle_id == HOST


def test_practised_questions_go_where_they_went_without_the_threshold(run: Run) -> None:
    loaded = run.loaded
    items = loaded.items(20)
    before = loaded.config.model_copy(update={"router": {"kind": "lexical"}})
    routed = loaded.evaluate(items, run.host, "learned").choices
    assert routed.total() - routed[HOST] > len(items) / 2
    pool = type(loaded.pool).of_run(run.folder, run.state, before, loaded.tasks)
    prompts = [item.prompt for item in items]
    now, then = (one.expectation(prompts).argmax(axis=1) for one in (loaded.pool, pool))
    assert (now == then).all()
