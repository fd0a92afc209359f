from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from runs import resume, start
from symbiont_ecology import Run
from symbiont_ecology.base.errors import ConfigError, EcologyWarning, MissingExtraError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.files import append_line, read_lines
from symbiont_ecology.extensions.bridges.trackers import TRACKERS_FILE, CurveTracker, Plot
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import read_config
from symbiont_ecology.run.trackers import trackers
from toy import Crash, ToyHost, toy_config

pytestmark = pytest.mark.usefixtures("own_parts")


@dataclass(frozen=True)
class Notebook(CurveTracker):
    """Writes down what it is told, in a file of the run."""

    package: ClassVar[str] = "json"

    @contextmanager
    def curves(self, run: str, folder: Path, config: RunConfig) -> Iterator[Plot]:
        path = folder / "notebook.jsonl"
        append_line(path, {"id": run, "seed": config.seed})

        def plot(generation: int, values: Mapping[str, float]) -> None:
            append_line(path, {"generation": generation, **values})

        yield plot
        append_line(path, {"ended": True})


@dataclass(frozen=True)
class Torn(Notebook):
    """Fails in the third generation, and again when it is closed."""

    @contextmanager
    def curves(self, run: str, folder: Path, config: RunConfig) -> Iterator[Plot]:

        def plot(generation: int, values: Mapping[str, float]) -> None:
            if generation >= 2:
                raise OSError("no space\nleft \x1b[31mon device" + "!" * 300)

        yield plot
        raise ValueError("cannot close either")


@dataclass(frozen=True)
class Absent(Notebook):
    """Needs what nobody has."""

    package: ClassVar[str] = "package_that_nobody_has"


@pytest.fixture(autouse=True)
def _registered(own_parts: None) -> None:
    for name, tracker in {"notebook": Notebook, "torn": Torn, "absent": Absent}.items():
        trackers.register(name)(tracker)


def config(*names: str, generations: int = 6) -> RunConfig:
    """A toy run that is reported; it checkpoints in every third generation."""
    plain = toy_config(generations=generations)
    return plain.model_copy(update={"run": plain.run.model_copy(update={"report_to": names})})


@dataclass
class MortalHost(ToyHost):
    """Breaks down in the sixth generation, as a kill would end it."""

    steps: int = 0

    def learn(self, *arguments: Any, **named: Any) -> Any:
        self.steps += 1
        if self.steps > 5:
            raise Crash
        return super().learn(*arguments, **named)


def lived_with_a_crash(folder: Path, *names: str) -> Run:
    """A run that goes back from its sixth generation to the checkpoint before the fourth."""
    with pytest.raises(Crash):
        start(config(*names, generations=8), folder, host=MortalHost())
    return resume(folder, host=ToyHost())


def notes(folder: Path) -> list[dict[str, Any]]:
    return [line for _, line in read_lines(folder / "notebook.jsonl")]


def told(folder: Path) -> list[int]:
    return [line["generation"] for line in notes(folder) if "generation" in line]


def summaries(folder: Path) -> list[GenerationEnded]:
    events = read_events(folder / "events.jsonl")
    return [event for event in events if isinstance(event, GenerationEnded)]


def test_a_tracker_is_told_what_the_log_says_of_every_generation(tmp_path: Path) -> None:
    start(config("notebook"), tmp_path, host=ToyHost())
    begun, *lines, ended = notes(tmp_path)
    assert (begun["seed"], ended) == (0, {"ended": True})
    assert len(lines) == 6
    for line, summary in zip(lines, summaries(tmp_path), strict=True):
        for name in ("generation", "accuracy", "population", "births", "deaths", "coverage"):
            assert line[name] == getattr(summary, name)
        assert (line["train_flops"], line["rows"]) == (summary.train_flops, summary.rows)
        assert line["energy"] == summary.energy_total / 1000
        assert line["seconds"] > 0
        assert 0 <= line["success/math.add"] <= 1


def test_in_a_world_with_users_it_is_told_who_serves_them(tmp_path: Path) -> None:
    plain = toy_config(generations=4, strategy="told")
    loop = plain.run.model_copy(update={"report_to": ("notebook",)})
    state = start(plain.model_copy(update={"run": loop}), tmp_path, host=ToyHost()).state
    *_, line, _ = notes(tmp_path)
    assert (line["users"], line["serving"]) == (len(state.users), len(state.served))
    assert 0 <= line["accepted_lately"] <= 1
    assert not [name for name in line if name.startswith("success/")]


def test_a_generation_that_is_lived_again_is_told_once(tmp_path: Path) -> None:
    lived_with_a_crash(tmp_path, "notebook")
    assert told(tmp_path) == list(range(8))
    first, second = (line for line in notes(tmp_path) if "seed" in line)
    assert first["id"] == second["id"]


def test_trackers_may_come_and_go_when_a_run_is_resumed(tmp_path: Path) -> None:
    for generation in Run.start(config(), folder=tmp_path, host=ToyHost()):
        if generation.summary.generation == 2:
            break
    assert not (tmp_path / TRACKERS_FILE).exists()
    for generations, names in ((6, "[notebook]"), (8, "[]")):
        overrides = [f"run.generations={generations}", f"run.report_to={names}"]
        resume(tmp_path, overrides=overrides, host=ToyHost())
    assert told(tmp_path) == [3, 4, 5]
    assert read_config(tmp_path).run.report_to == ()


def test_a_tracker_that_fails_is_one_warning_and_the_run_goes_on(tmp_path: Path) -> None:
    with pytest.warns(EcologyWarning) as said:
        reported = start(config("torn", "notebook"), tmp_path / "torn", host=ToyHost())
    (line,) = [str(warning.message) for warning in said]
    assert line.startswith("torn fails, and the run goes on without it: OSError: no space left")
    assert line.isprintable()
    assert len(line) < 300
    assert told(tmp_path / "torn") == list(range(6))
    plain = start(config(), tmp_path / "plain", host=ToyHost())
    assert (reported.state, reported.is_complete) == (plain.state, plain.is_complete)
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "torn" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()


def test_a_damaged_record_is_one_warning_and_the_run_goes_on(tmp_path: Path) -> None:
    start(config("notebook", generations=2), tmp_path, host=ToyHost())
    (tmp_path / TRACKERS_FILE).write_text("{")
    with pytest.warns(EcologyWarning, match=r"notebook fails.* delete it") as said:
        resume(tmp_path, overrides=["run.generations=4"], host=ToyHost())
    assert len(said) == 1
    assert told(tmp_path) == [0, 1]


def test_a_tracker_that_cannot_be_had_is_one_line_before_a_host_is_loaded() -> None:
    with pytest.raises(ConfigError, match="no tracker 'notebok'; did you mean 'notebook'"):
        check(config("notebok"))
    with pytest.raises(MissingExtraError, match=r"pip install 'symbiont-ecology\[absent\]'"):
        check(config("absent"))


def test_tensorboard_shows_every_generation_once_after_a_crash(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    state = lived_with_a_crash(tmp_path, "tensorboard").state
    shown = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    shown.Reload()
    points = shown.Scalars("accuracy")
    assert [point.step for point in points] == list(range(state.generation))
    logged = [summary.accuracy for summary in summaries(tmp_path)]
    assert [point.value for point in points] == pytest.approx(logged)
    assert "success/math.add" in shown.Tags()["scalars"]
    assert b"report_to" in shown.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
