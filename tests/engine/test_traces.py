"""A run that learns by traces: forward passes alone, and otherwise a run like any other."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, Born, Event, GenerationEnded, Learned, Quarantined
from symbiont_ecology.types import Completions
from symbiont_ecology.weights.blobs import BlobStore
from symbiont_ecology.weights.traces import Traces, has_zero_b
from towns import config as town
from towns import lived
from toy import ToyHost, toy_config, toy_ecology

SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
HEBBIAN = {"kind": "hebbian", "perturbation": 0.5}
both = pytest.mark.parametrize("strategy", [SINGLE, toy_ecology()], ids=lambda spec: spec["kind"])


def live(folder: Path, host: ToyHost | None = None, **changes: Any) -> list[Event]:
    """The events of a toy run that learns by traces."""
    start(toy_config(learning_rule=HEBBIAN, **changes), folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


@both
def test_an_organelle_learns_from_verdicts_without_a_backward_pass(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    host = ToyHost()
    events = live(tmp_path / "run", host, generations=40, strategy=strategy)
    found = [event.accuracy for event in events if isinstance(event, GenerationEnded)]
    assert host.learned == []
    assert sum(found[-5:]) / 5 > sum(found[:3]) / 3 + 0.25
    assert sum(found[-5:]) / 5 > 0.75


@both
def test_it_resumes_exactly(strategy: dict[str, Any], tmp_path: Path) -> None:
    config = toy_config(generations=6, strategy=strategy, learning_rule=HEBBIAN)
    start(config, tmp_path / "whole", host=ToyHost())
    start(config, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_founder_stays_the_host_in_its_first_generation_and_can_be_heard_after_it(
    tmp_path: Path,
) -> None:
    events = live(tmp_path / "run", generations=1, strategy=SINGLE)
    assert not [event for event in events if isinstance(event, Learned)]
    (organelle,) = checkpoint.load_state(tmp_path / "run").population.values()
    weights = BlobStore(tmp_path / "run/blobs").weights(organelle.genome.weights)
    (born,) = [event for event in events if isinstance(event, Born)]
    assert organelle.genome.weights != born.weights
    assert not weights.delta("policy").any()
    assert not has_zero_b(weights)


def test_a_lesson_takes_its_outer_products_and_nothing_else(tmp_path: Path) -> None:
    host = ToyHost()
    events = live(tmp_path / "run", host, generations=6, strategy=SINGLE)
    learned = [event for event in events if isinstance(event, Learned)]
    rank, ((_, d_in, _),) = toy_config().host.rank, host.layout.modules
    assert learned
    for event in learned:
        assert event.flops == 2 * event.tokens * rank * d_in
        assert event.loss == 0
        assert event.gradient_norm > 0
    budget = checkpoint.load_state(tmp_path / "run").spent
    assert budget.flops == sum(
        event.flops for event in events if isinstance(event, Acted | Learned)
    )
    assert budget.calls == len(host.rolled)


@pytest.mark.parametrize("part", [0.3, 1.0])
def test_it_meets_its_budget_within_two_percent(part: float, tmp_path: Path) -> None:
    probe = toy_config(generations=20, strategy=SINGLE, learning_rule=HEBBIAN)
    budget = part * start(probe, tmp_path / "probe", host=ToyHost()).state.spent.flops
    config = toy_config(
        generations=100_000, strategy=SINGLE, learning_rule=HEBBIAN, train_flops=budget
    )
    spent = start(config, tmp_path / "run", host=ToyHost()).state.spent.flops
    assert 0.98 * budget <= spent <= 1.02 * budget


@dataclass
class Watched(ToyHost):
    """A host that knows which of its traces somebody still holds."""

    left: list[weakref.ref[Traces]] = field(default_factory=list)

    def rollout(self, *arguments: Any, **named: Any) -> Completions:
        """As the toy; traces of earlier batches must be gone by now."""
        gc.collect()
        assert [one for one in self.left if one() is not None] == []
        found = super().rollout(*arguments, **named)
        assert found.traces is not None
        self.left.append(weakref.ref(found.traces))
        return found


def test_traces_do_not_outlive_their_generation(tmp_path: Path) -> None:
    host = Watched()
    live(tmp_path / "run", host, generations=5)
    assert len(host.left) == 6


@dataclass
class Doomed(ToyHost):
    """A host on which the trace of an answer to a sum with a 7 in it is not finite."""

    def rollout(self, rows: Any, draws: Any, decoding: Any) -> Completions:
        """As the toy, with NaN where such prompts were read."""
        found = super().rollout(rows, draws, decoding)
        assert found.traces is not None
        read, noise = found.traces.modules["policy"]
        is_ill = np.array(["math.add" in row.prompt and "7" in row.prompt for row in rows])
        modules = {"policy": (np.where(is_ill[:, None, None], np.nan, read), noise)}
        return replace(found, traces=replace(found.traces, modules=modules))


def test_an_update_that_is_not_finite_is_quarantined_and_resumes_exactly(tmp_path: Path) -> None:
    config = toy_config(generations=12, families=("math.add", "math.max"), learning_rule=HEBBIAN)
    start(config, tmp_path / "whole", host=Doomed())
    start(config, tmp_path / "parts", host=Doomed(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=Doomed(), should_stop=lambda: True).is_complete:
        pass
    assert [e for e in read_events(tmp_path / "whole/events.jsonl") if isinstance(e, Quarantined)]
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()
    state, store = checkpoint.load_state(tmp_path / "whole"), BlobStore(tmp_path / "whole/blobs")
    assert state.ledger.total == 0
    for organelle in state.population.values():
        assert np.isfinite(store.weights(organelle.genome.weights).vector).all()


def test_a_coloniser_eats_by_a_backward_pass_whatever_its_rule_is(tmp_path: Path) -> None:
    plan = town().model_copy(update={"learning_rule": HEBBIAN})
    _, events = lived(tmp_path, plan)
    colonisers = {e.id for e in events if isinstance(e, Born) and e.operator == "coloniser"}
    meals = [e for e in events if isinstance(e, Learned) and e.id in colonisers and e.loss > 0]
    assert colonisers
    assert {one.id for one in meals} == colonisers
    assert all(one.tokens > 0 for one in meals)
