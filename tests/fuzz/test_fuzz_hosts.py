"""Whatever is wrong with the folder of a host, it is one line of error, and soon.

``--cases`` says how many damages are tried; all are some thousands.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from damage import Damage, damaged, damages
from hosts import KINDS, make_host, random_weights
from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import LearningBatch, Lesson
from symbiont_ecology.model.kernel import HostKernel

SOON = 10.0
"""Seconds in which a host is refused, on a busy machine."""
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


@pytest.fixture(scope="session")
def small_hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random host of one layer of every kind."""
    sizes = {"hidden_size": 48, "intermediate_size": 40}
    changes = {kind: sizes | {"head_dim": 8} for kind in KINDS}
    changes |= {"qwen2": sizes, "gpt2": {"n_layer": 1}}
    return {
        kind: make_host(tmp_path_factory.mktemp("host"), kind, layers=1, **changes[kind])
        for kind in KINDS
    }


def drawn(hosts: dict[str, Path], cases: int) -> Iterator[tuple[str, Damage]]:
    """Damages in an order of chance."""
    known = [(kind, one) for kind, folder in hosts.items() for one in damages(folder)]
    for index in Draw(0)("damages").permutation(len(known))[:cases]:
        yield known[index]


def test_a_damaged_host_answers_or_is_refused_in_one_line(
    small_hosts: dict[str, Path], cases: int, tmp_path: Path
) -> None:
    trials, counts, wrong = Trials(tmp_path), Counter[tuple[str, str]](), list[str]()
    for kind, folder in small_hosts.items():
        whole = trials(folder, [])
        assert whole.end == "answered", f"{kind}: {whole.said}"
    for kind, damage in drawn(small_hosts, cases):
        ending = trials(small_hosts[kind], (damage,))
        counts[damage.group, ending.end] += 1
        is_line = "\n" not in ending.said and len(ending.said) < 2000
        is_refused = ending.end == "refused" and is_line and ending.seconds < SOON
        if not is_refused and (ending.end != "answered" or damage.must_fail):
            said = f"{ending.end} after {ending.seconds:.1f} s: {ending.said}"
            wrong.append(f"{kind}: {damage}: {said}")
    trials.stop()
    for (group, end), count in sorted(counts.items()):
        print(f"{group:10} {end:10} {count:6}")
    assert not wrong, f"{len(wrong)} of {cases}\n" + "\n".join(wrong)
