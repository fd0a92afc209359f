"""A toy run that is stopped and resumed, and what must be equal of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runs import resume, start
from symbiont_ecology.run.config import RunConfig
from toy import ToyHost, toy_config

GENERATIONS = 8


def config() -> RunConfig:
    return toy_config(seed=3, generations=GENERATIONS, checkpoint_every=3)


def trace(folder: Path) -> dict[str, bytes]:
    """What must be equal, byte for byte; and every blob that is left."""
    names = "config.yaml", "provenance.json", "state.json", "events.jsonl", "transcripts.jsonl"
    files = [folder / name for name in names]
    files += [*folder.glob("state.previous.json"), *sorted((folder / "blobs").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def stop_after(count: int) -> Callable[[], bool]:
    """Says when to stop: after so many generations."""
    left = iter(range(count, 0, -1))
    return lambda: next(left) == 1


def finish(folder: Path) -> dict[str, bytes]:
    """Resumes to the end and returns the trace."""
    assert resume(folder, host=ToyHost()).is_complete
    return trace(folder)


def stopped(folder: Path) -> Path:
    start(config(), folder, host=ToyHost(), should_stop=stop_after(5))
    return folder
