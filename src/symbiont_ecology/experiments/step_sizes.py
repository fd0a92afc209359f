"""Which step size suits a rule on a host: a few generations with each, scored on selection items.

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
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.files import write_whole
from symbiont_ecology.registry import knobs
from symbiont_ecology.run import Run
from symbiont_ecology.strategies import strategies

STEP_SIZES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""Adam's step sizes that are tried: half a decade apart."""
SWEPT_GENERATIONS, SWEEP_PER_CELL = 20, 16
"""Generations that are lived with each, and selection items per cell (or habitat)."""
SCORE_FILE, SWEEP_FOLDER = "score.json", "step-sizes"

Advance = Callable[[str, int], None]
"""Called with what is being done, and how many more generations were lived."""


@dataclass(frozen=True)
class StepSizeScore:
    """What came of a step size: ``right`` of so many selection items that were ``asked``."""

    step_size: float
    right: float
    asked: int
    train_flops: int

    @property
    def share(self) -> float:
        """The share that is right."""
        return self.right / max(self.asked, 1)


def with_step_size(config: RunConfig, step_size: float) -> RunConfig:
    """The config with another step size of founders.

    Raises:
        ConfigError: the strategy has none.
    """
    strategy = strategies.build(config.strategy)
    if "learning_rate" not in {knob.name for knob in knobs(type(strategy))}:
        raise ConfigError(
            f"--sweep: expected a strategy whose organelles learn, got {config.strategy!r}: leave "
            "--sweep out"
        )
    kind = config.strategy if isinstance(config.strategy, str) else config.strategy["kind"]
    fields = {} if isinstance(config.strategy, str) else config.strategy
    spec = {**fields, "kind": kind, "learning_rate": step_size}
    return config.model_copy(update={"strategy": spec})


def swept_runs(config: RunConfig, folder: Path) -> dict[float, tuple[Path, RunConfig]]:
    """Folder and config of the short run with each step size, below the folder of a whole run."""
    none = dict.fromkeys(config.train_budgets)
    short = {"generations": SWEPT_GENERATIONS, "transcripts": 0.0, "report_to": ()}
    loop = config.run.model_copy(update={**none, **short, "final_holdout": None})
    runs = {}
    for step_size in STEP_SIZES:
        place = folder / SWEEP_FOLDER / f"{step_size:g}"
        runs[step_size] = place, with_step_size(config, step_size).model_copy(update={"run": loop})
    return runs


def sweep_step_sizes(
    config: RunConfig, folder: Path, host: Host, advance: Advance = lambda news, generations: None
) -> Iterator[StepSizeScore]:
    """Tries each step size, or reads what came of it before; a run that was stopped goes on."""
    for step_size, (place, short) in swept_runs(config, folder).items():
        score, about = place / SCORE_FILE, f"step size {step_size:g}"
        if score.exists():
            yield StepSizeScore(**json.loads(score.read_text(encoding="utf-8")))
            advance(about, SWEPT_GENERATIONS)
            continue
        run = Run(place, short, host)
        run.tell = partial(_pass_on, advance, about)
        advance(about, run.state.generation if run.is_started else 0)
        if not run.is_complete:
            for _ in run:
                advance(about, 1)
        found = _score(step_size, LoadedRun.of_run(place), host)
        write_whole(score, json.dumps(asdict(found)) + "\n")
        yield found


def best_step_size(scores: Sequence[StepSizeScore]) -> StepSizeScore:
    """The one with the most right answers; of equals the smallest, which forgets least."""
    return min(scores, key=lambda score: (-score.right, score.step_size))


def _pass_on(advance: Advance, about: str, news: str) -> None:
    """What a run tells of its founding, such as a warm start."""
    advance(f"{about}, {news}", 0)


def _score(step_size: float, run: LoadedRun, host: Host) -> StepSizeScore:
    is_world = run.config.tasks.habitats is not None
    shift, routing = ("habitats", "habitat") if is_world else ("in-distribution", "learned")
    items = draw_shifts(
        mixture(run.config), [shift], SWEEP_PER_CELL, seed=run.config.seed, split="selection"
    )
    verdicts = run.evaluate(items, host, routing).verdicts
    spent = run.pool.state.spent.flops
    return StepSizeScore(step_size, float(sum(verdicts)), len(verdicts), spent)
