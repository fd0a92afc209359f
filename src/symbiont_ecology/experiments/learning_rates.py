"""Which learning rate suits a rule on a host: a few generations with each, scored on selection
items.

All begin alike (the same seed, so the same warm start and founders) and are asked alike. Selection
items are neither trained on nor held out, so no result is chosen by its own questions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.files import write_whole
from symbiont_ecology.registry import kind_of, knobs
from symbiont_ecology.run import Run
from symbiont_ecology.strategies import strategies
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Item

LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""Learning rates of Adam that are tried: half a decade apart."""
SWEPT_GENERATIONS, SWEEP_PER_CELL = 20, 16
"""Generations that are lived with each, and selection items per cell (or habitat)."""
SCORE_FILE, SWEEP_FOLDER = "score.json", "learning-rates"

Advance = Callable[[str, int], None]
"""Called with what is being done, and how many more generations were lived."""


@dataclass(frozen=True)
class LearningRateScore:
    """What came of a learning rate: ``right`` of so many selection items that were ``asked``."""

    learning_rate: float
    right: float
    asked: int
    train_flops: int

    @property
    def share(self) -> float:
        """The share that is right."""
        return self.right / max(self.asked, 1)


def with_learning_rate(config: RunConfig, learning_rate: float) -> RunConfig:
    """The config with another learning rate of founders.

    Raises:
        ConfigError: the strategy has none.
    """
    strategy = strategies.build(config.strategy)
    if "learning_rate" not in {knob.name for knob in knobs(type(strategy))}:
        raise ConfigError(
            f"--sweep: expected a strategy whose organelles learn, got {config.strategy!r}: leave "
            "--sweep out"
        )
    fields = {} if isinstance(config.strategy, str) else config.strategy
    spec = {**fields, "kind": kind_of(config.strategy), "learning_rate": learning_rate}
    return config.model_copy(update={"strategy": spec})


def swept_runs(config: RunConfig, folder: Path) -> dict[float, tuple[Path, RunConfig]]:
    """Folder and config of the short run with each learning rate, below the folder of a whole
    run."""
    nothing = dict.fromkeys((*config.train_budgets, "mirror", "final_holdout"))
    short = {"generations": SWEPT_GENERATIONS, "transcripts": 0.0, "report_to": ()}
    loop = config.run.model_copy(update=nothing | short)
    return {
        rate: (
            folder / SWEEP_FOLDER / f"{rate:g}",
            with_learning_rate(config, rate).model_copy(update={"run": loop}),
        )
        for rate in LEARNING_RATES
    }


def sweep_learning_rates(
    config: RunConfig, folder: Path, host: Host, advance: Advance = lambda text, generations: None
) -> Iterator[LearningRateScore]:
    """Tries each learning rate, or reads what came of it before; a run that was stopped goes on."""
    for learning_rate, (place, short) in swept_runs(config, folder).items():
        score, title = place / SCORE_FILE, f"learning rate {learning_rate:g}"
        if score.exists():
            yield LearningRateScore(**json.loads(score.read_text(encoding="utf-8")))
            advance(title, SWEPT_GENERATIONS)
            continue
        run = Run(place, short, host)
        run.tell = partial(_pass_on, advance, title)
        advance(title, run.state.generation if run.is_started else 0)
        if not run.is_complete:
            for _ in run:
                advance(title, 1)
        result = _score(learning_rate, LoadedRun.of_run(place), host)
        write_whole(score, json.dumps(asdict(result)) + "\n")
        yield result


def best_learning_rate(scores: Sequence[LearningRateScore]) -> LearningRateScore:
    """The one with the most right answers; of equals the smallest, which forgets least."""
    return min(scores, key=lambda score: (-score.right, score.learning_rate))


def sweep_items(tasks: TaskMixture, seed: int) -> list[Item]:
    """What every learning rate is scored on: items of the selection split.

    Raises:
        ConfigError: the tasks have none, so nothing would choose among learning rates.
    """
    shift = "habitats" if tasks.habitats is not None else "in-distribution"
    if items := draw_shifts(tasks, [shift], SWEEP_PER_CELL, seed=seed, split="selection"):
        return items
    raise ConfigError(
        f"--sweep: expected tasks with questions of the selection split, and those of "
        f"{', '.join(tasks.names)} have none to choose a learning rate by: leave --sweep out"
    )


def _pass_on(advance: Advance, title: str, message: str) -> None:
    """What a run tells of its founding, such as a warm start."""
    advance(f"{title}, {message}", 0)


def _score(learning_rate: float, run: LoadedRun, host: Host) -> LearningRateScore:
    tasks = run.tasks
    items = sweep_items(tasks, run.config.seed)
    routing = "learned" if tasks.habitats is None else "habitat"
    verdicts = run.evaluate(items, host, routing).verdicts
    flops = run.pool.state.spent.flops
    return LearningRateScore(learning_rate, float(sum(verdicts)), len(verdicts), flops)
