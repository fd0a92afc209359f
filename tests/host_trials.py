"""Trials of damaged hosts in a process of their own: whatever kills it is seen from outside."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
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
        self._scratch = scratch
        self._start()

    def __call__(self, folder: Path, found: Sequence[Damage]) -> Ending:
        """Load a host with these damages, let it answer and learn."""
        self._pipe.send((folder, list(found)))
        if self._pipe.poll(PATIENCE):
            try:
                ending: Ending = self._pipe.recv()
            except EOFError:
                self._process.join()
                ending = Ending("died", f"status {self._process.exitcode}", 0.0)
        else:
            ending = Ending("hung", "", PATIENCE)
        if ending.end in ("died", "hung"):
            self.stop()
            self._start()
        return ending

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_try_all, args=(theirs, self._scratch))
        self._process.start()
        theirs.close()


def tried(folder: Path) -> Ending:
    """Load a host and ask for all that it can do."""
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


def _try_all(asked: Connection, scratch: Path) -> None:
    while True:
        folder, found = asked.recv()
        place = Path(tempfile.mkdtemp(dir=scratch))
        ending = tried(damaged(folder, place / "host", found))
        shutil.rmtree(place)
        asked.send(ending)
