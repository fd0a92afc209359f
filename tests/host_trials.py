"""Trials of damaged hosts in a process of their own: whatever kills it is seen from outside.

As a program it reads one trial per line from stdin, and writes how each one ended to stdout.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from damage import Damage, damaged

PATIENCE = 120.0
"""Seconds until a trial counts as hanging."""


@dataclass(frozen=True)
class Ending:
    """How a trial ended: ``answered``, ``refused``, ``trace``, ``died`` or ``hung``; what was said,
    and after how many seconds of loading."""

    end: str
    said: str
    seconds: float


class Trials:
    """A process that tries damaged hosts; it is started again when it is gone."""

    def __init__(self, scratch: Path) -> None:
        self._scratch, self._errors = scratch, scratch / "stderr"
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, folder: Path, found: Sequence[Damage]) -> Ending:
        """Loads a host with these damages, lets it answer and learn."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        trial = {"folder": str(folder), "damages": [asdict(one) for one in found]}
        process.stdin.write(json.dumps(trial) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            self.stop()
            return Ending("hung", "", PATIENCE)
        line = process.stdout.readline()
        if not line:
            self._process = None
            left = self._errors.read_text(encoding="utf-8", errors="replace")
            return Ending("died", f"status {process.wait()}\n{left[-4000:]}", 0.0)
        return Ending(**json.loads(line))

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._errors.open("w") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(self._scratch)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        return self._process


def tried(folder: Path) -> Ending:
    """Loads a host and asks for all that it can do."""
    from hosts import random_weights
    from symbiont_ecology.base.errors import EcologyError
    from symbiont_ecology.base.types import LearningBatch, Lesson
    from symbiont_ecology.model.kernel import HostKernel

    began = time.perf_counter()
    try:
        kernel = HostKernel.from_pretrained(folder, slots=2, rank=2)
        loaded = time.perf_counter() - began
        weights = random_weights(kernel.layout, 0, rank=2)
        kernel.place(0, weights)
        kernel.fingerprint()
        prompts = ["12+7=", "12+7=19", "a"]
        texts = kernel.generate(prompts, [0, 0, -1], max_new_tokens=3)
        kernel.score(prompts, ["19", "x", "y"], [0, -1, -1])
        (answer,) = kernel.encode_answers(["19"])
        kernel.learn(LearningBatch((Lesson("a", answer, 0),), {0: 1e-3}), {0: weights}, {})
    except EcologyError as error:
        return Ending("refused", str(error), time.perf_counter() - began)
    except Exception:
        return Ending("trace", traceback.format_exc(), time.perf_counter() - began)
    return Ending("answered", repr(texts), loaded)


def main(scratch: Path) -> None:
    """Tries what is asked for, trial by trial."""
    for line in sys.stdin:
        trial = json.loads(line)
        found = [Damage(**{**one, "place": tuple(one["place"])}) for one in trial["damages"]]
        place = Path(tempfile.mkdtemp(dir=scratch))
        ending = tried(damaged(Path(trial["folder"]), place / "host", found))
        shutil.rmtree(place)
        print(json.dumps(asdict(ending)), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]))
