"""A toy run in a process of its own, so that it can be killed:
``toy_run.py FOLDER GENERATIONS PAUSE``.

Founds the run, or resumes what the folder holds, and waits ``PAUSE`` seconds in every call of the
host. Prints ``ready`` before it touches the folder, and ``done`` at the end.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs import resume, start
from toy import ToyHost, toy_config, toy_ecology


@dataclass
class SlowHost(ToyHost):
    """A host that takes its time, and so can be killed in the middle of a generation."""

    pause: float = 0.0

    def rollout(self, *arguments: Any, **named: Any) -> Any:
        """As the toy, later."""
        time.sleep(self.pause)
        return super().rollout(*arguments, **named)

    def learn(self, *arguments: Any, **named: Any) -> Any:
        """As the toy, later."""
        time.sleep(self.pause)
        return super().learn(*arguments, **named)


def main(folder: Path, generations: int, pause: float) -> None:
    """Runs to the end."""
    config = toy_config(
        5, generations, checkpoint_every=2, strategy=toy_ecology(questions=2, samples=2)
    )
    host = SlowHost(pause=pause)
    print("ready", flush=True)
    if (folder / "state.json").exists():
        resume(folder, host=host)
    else:
        start(config, folder, host=host)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
