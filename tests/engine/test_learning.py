"""Learning: verdicts alone raise accuracy, a sick organelle harms nobody, and controls stay
controls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import (
    Acted,
    Born,
    Event,
    GenerationEnded,
    Learned,
    Quarantined,
    Retired,
)
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run.open_run import lived_seconds
from toy import ToyHost, toy_config, toy_ecology

SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}


def live(folder: Path, host: ToyHost | None = None, **changes: Any) -> list[Event]:
    """The events of a toy run."""
    start(toy_config(**changes), folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


def accuracies(events: list[Event]) -> list[float]:
    return [event.accuracy for event in events if isinstance(event, GenerationEnded)]


@pytest.mark.parametrize("learning_rule", ["policy_gradient", "expert_iteration"])
@pytest.mark.parametrize("strategy", [SINGLE, toy_ecology()], ids=lambda spec: spec["kind"])
def test_an_organelle_learns_from_verdicts_alone(
    learning_rule: str, strategy: dict[str, Any], tmp_path: Path
) -> None:
    events = live(tmp_path / "run", generations=25, strategy=strategy, learning_rule=learning_rule)
    found = accuracies(events)
    assert sum(found[-5:]) / 5 > 0.75
    assert sum(found[-5:]) / 5 > sum(found[:3]) / 3 + 0.25


def test_nobody_learns_without_a_learning_rule(tmp_path: Path) -> None:
    events = live(tmp_path / "run", generations=20, strategy=SINGLE, learning_rule="none")
    found = accuracies(events)
    assert abs(sum(found[-8:]) / 8 - sum(found[:8]) / 8) < 0.15
    assert not [event for event in events if isinstance(event, Learned)]
    (born,) = [event for event in events if isinstance(event, Born)]
    assert checkpoint.load_state(tmp_path / "run").population["o1"].genome.weights == born.weights


def test_a_run_calls_the_host_twice_a_generation_and_wastes_few_rows(tmp_path: Path) -> None:
    host, strategy = ToyHost(), toy_ecology(founders=8, capacity=16, questions=4, samples=4)
    events = live(tmp_path / "run", host, generations=25, strategy=strategy)
    ended = [event for event in events if isinstance(event, GenerationEnded)]
    assert max(event.calls for event in ended) <= 2
    assert len(host.rolled) == len(ended) + 1  # and one to found the run
    assert len(host.learned) <= len(ended)
    rows = sum(event.rows for event in ended) + host.rolled[0]
    learnable = sum(
        len(e.verdicts) for e in events if isinstance(e, Acted) and e.purpose == "practice"
    )
    assert sum(host.rolled) == rows == checkpoint.load_state(tmp_path / "run").spent.rows
    assert rows / learnable <= 1.2


# A number that is not finite.


def test_a_nan_slot_is_quarantined_and_the_others_do_not_notice(tmp_path: Path) -> None:
    well = live(tmp_path / "well", generations=6)
    ill = live(tmp_path / "ill", ToyHost(poison={2: 0}), generations=6)
    (quarantined,) = [event for event in ill if isinstance(event, Quarantined)]
    organelle_id, when = quarantined.id, quarantined.generation
    retired = [event for event in ill if isinstance(event, Retired) and event.id == organelle_id]
    assert [event.cause for event in retired] == ["quarantined"]

    def until(events: list[Event]) -> list[Event]:
        """Everything that others did up to that generation; births and the summary come after the
        loss."""
        others = [event for event in events if getattr(event, "id", None) != organelle_id]
        late = Born | GenerationEnded
        ends = [when - isinstance(event, late) for event in others]
        return [one for one, end in zip(others, ends, strict=True) if one.generation <= end]

    assert until(ill) == until(well)
    later = {event.id for event in ill if event.generation > when and isinstance(event, Acted)}
    assert organelle_id not in later
    assert later
    ended = [event.generation for event in ill if isinstance(event, GenerationEnded)]
    assert ended == list(range(6))
    assert checkpoint.load_state(tmp_path / "ill").ledger.total == 0


def test_a_quarantine_resumes_exactly(tmp_path: Path) -> None:
    class Doomed(ToyHost):
        """A host on which whoever learns from an item with a 7 in it meets a NaN: no call count to
        lose."""

        def learn(self, batch: Any, weights: Any, optimizer_state: Any) -> Any:
            ill = {lesson.slot for lesson in batch.lessons if "77" in lesson.prompt}
            grown, kept, statistics = super().learn(batch, weights, optimizer_state)
            for slot in ill:
                grown[slot], kept[slot] = weights[slot], optimizer_state[slot]
            return grown, kept, replace(statistics, sick=tuple(sorted(ill)))

    config = toy_config(generations=12, families=("math.add", "math.max"))
    start(config, tmp_path / "whole", host=Doomed())
    start(config, tmp_path / "parts", host=Doomed(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=Doomed(), should_stop=lambda: True).is_complete:
        pass
    assert '"Quarantined"' in (tmp_path / "whole/events.jsonl").read_text()
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_a_generation_that_is_lived_again_counts_once_on_the_clock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    live(folder, generations=3)
    seconds = lived_seconds(folder)
    lines = (folder / "timings.jsonl").read_text()
    (folder / "timings.jsonl").write_text('{"generation": 2, "seconds": 99.0}\n' + lines)
    assert lived_seconds(folder) == pytest.approx(seconds)
    with (folder / "timings.jsonl").open("a") as file:
        file.write('{"generation": 3, "seconds": 99.0}\n')
    assert lived_seconds(folder, 3) == pytest.approx(seconds)


def test_a_run_that_its_time_ends_is_whole_and_complete(tmp_path: Path) -> None:
    config = toy_config(generations=10_000, checkpoint_every=10_000)
    loop = config.run.model_copy(update={"train_seconds": 0.1})
    config = config.model_copy(update={"run": loop})
    lived = start(config, tmp_path / "run", host=ToyHost())
    assert lived.is_complete
    lines = (tmp_path / "run/timings.jsonl").read_text().splitlines()
    assert lived.state.generation == len(lines) > 1
    assert resume(tmp_path / "run", host=ToyHost()).state == lived.state
