"""What goes wrong with a server that answers: found, said in one line, and no wrong answer used."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hosts import random_weights
from servers import FAKES, FakeServer, running
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines import engines
from symbiont_ecology.host.engines.served import ServedHost
from symbiont_ecology.host.engines.witness import WrongAdapterError
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState

PROMPTS = ("math.add: 47+8\n", "string.sort: kqa\n")
LASTING = 1 << 30
ENDS = {  # fault and how many calls it befalls: what must be said, or None where it is overcome
    ("full", 3): None,
    ("full", LASTING): "status 503",
    ("many", 3): None,
    ("many", LASTING): "status 429",
    ("bad", 1): None,
    ("bad", LASTING): "status 400",
    ("broken", 1): "status 500",
    ("garbage", 1): "a reply that can be read",
    ("odd", 1): "a reply that can be read",
    ("nan", 1): "a reply that can be read",
    ("alien", 1): "up to its end",
    ("short", 1): "up to its end",
    ("hang", 1): "within 2 s",
    ("drip", 1): "within 2 s",
    ("vanish", 2): None,
    ("vanish", LASTING): "no connection",
    ("cut", 2): None,
    ("cut", LASTING): "no connection",
    ("restart", 1): None,
    ("bare", 1): None,
    ("bare", LASTING): "answers of the bare host",
    ("replica", LASTING): "answers of the bare host",
    ("stale", 1): None,
    ("stale", LASTING): "which is stale|that differ by|answers of the bare host",
    ("closed", LASTING): "status 404: .*it takes none",
}


def load() -> HostKernel:
    return HostKernel.from_pretrained("embedded", slots=2, rank=4)


@pytest.fixture(params=FAKES)
def server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    with running(str(request.param)) as fake:
        yield fake


def spec(server: FakeServer, folder: Path, **knobs: object) -> dict[str, object]:
    kind = next(name for name, fake in FAKES.items() if isinstance(server, fake))
    quick = {"timeout": 60.0, "patience": 1.5, "connections": 4, "loaded": 4}
    return {"kind": kind, "url": server.url, "adapters_folder": str(folder), **quick, **knobs}


def connect(server: FakeServer, folder: Path, **knobs: object) -> ServedHost:
    host = engines.build(spec(server, folder, **knobs)).host(load)
    assert isinstance(host, ServedHost)
    return host


def asked(host: ServedHost, rows: list[Request]) -> tuple[tuple[str, ...], str]:
    """What the host answers, or what it says is wrong."""
    try:
        return host.rollout(rows, None, Decoding()).texts, ""
    except HostError as error:
        return (), str(error)


def rows_of(*slots: int) -> list[Request]:
    return [Request(prompt, slot, 6) for slot in slots for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("fault", "left"), ENDS, ids=[f"{fault} {'on' if left > 99 else left}" for fault, left in ENDS]
)
def test_a_fault_is_overcome_or_told_and_no_wrong_adapter_is_used(
    server: FakeServer, fault: str, left: int, faults: int, tmp_path: Path
) -> None:
    said, counts, kernel = ENDS[fault, left], Counter[str](), load()
    # A busy machine takes its time.
    limits = {
        "patience": 0.3 if said else 60.0,
        "timeout": 2.0 if "within" in (said or "") else 60.0,
    }
    host = connect(server, tmp_path, **limits)
    rows = rows_of(0, 1)
    for trial in range(faults):
        server.fail("")
        for slot in (0, 1):
            weights = random_weights(kernel.layout, 2 * trial + slot, rank=2)
            host.place(slot, weights)
            kernel.place(slot, weights)
        if trial % 2 and fault not in ("stale", "closed"):
            host.rollout(rows, None, Decoding())  # the fault befalls adapters that were probed
        if fault == "stale" and trial == 0:  # nothing came before that could be stale
            host.rollout(rows, None, Decoding())
            continue
        server.fail(fault, left)
        texts, told = asked(host, rows)
        assert told == "" if said is None else re.search(said, told), told
        assert "\n" not in told
        assert texts in ((), kernel.rollout(rows, None, Decoding()).texts)
        counts["told" if told else "right"] += 1
        assert server.hit
    lasting = fault == "stale"
    assert counts == Counter({"right" if said is None else "told": faults - lasting})
    server.fail("")
    answers = host.rollout(rows, None, Decoding())
    assert answers.texts == kernel.rollout(rows, None, Decoding()).texts


def test_a_replica_without_the_adapter_is_found_in_every_share_of_answers(
    server: FakeServer, tmp_path: Path
) -> None:
    host = connect(server, tmp_path)
    host.place(0, random_weights(host.layout, 1, rank=2))
    host.rollout(rows_of(0), None, Decoding())
    server.fail("replica")
    with pytest.raises(WrongAdapterError, match="one server alone, without replicas"):
        host.rollout(3 * rows_of(0), None, Decoding())


def test_an_adapter_after_one_step_of_learning_is_told_from_the_one_before(
    server: FakeServer, tmp_path: Path
) -> None:
    host = connect(server, tmp_path)
    before = AdapterWeights.random(host.layout, 4, 1.0, np.random.default_rng(0))
    host.place(0, before)
    host.rollout(rows_of(0), None, Decoding())
    (answer,) = host.encode_answers(["=55"])
    batch = LearningBatch((Lesson(PROMPTS[0], answer, 0),), {0: 0.02})
    learned, _, _ = host.learn(batch, {0: before}, {0: OptimizerState()})
    host.place(0, learned[0])
    server.fail("stale")
    with pytest.raises(WrongAdapterError, match=r"bare host|stale"):
        host.rollout(rows_of(0), None, Decoding())


def test_a_founder_equals_the_bare_host_and_is_not_suspected(
    server: FakeServer, tmp_path: Path
) -> None:
    host = connect(server, tmp_path)
    host.place(0, AdapterWeights.random(host.layout, 4, 1.0, np.random.default_rng(0)))
    server.fail("bare")
    texts = host.rollout(rows_of(0), None, Decoding()).texts
    assert texts == host.rollout(rows_of(HOST_SLOT), None, Decoding()).texts


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_adapters_that_get_lost_while_sampling_are_missed(
    server: FakeServer, temperature: float, tmp_path: Path
) -> None:
    host = connect(server, tmp_path)
    host.place(0, random_weights(host.layout, 1, rank=2))
    draws = [np.random.default_rng(row) for row in range(2)]
    host.rollout(rows_of(0), draws, Decoding(temperature))
    server.fail("bare")
    with pytest.raises(WrongAdapterError, match="answers of the bare host"):
        host.rollout(rows_of(0), draws, Decoding(temperature))


def test_a_server_with_another_model_is_refused(server: FakeServer, tmp_path: Path) -> None:
    server.kernel.place(7, random_weights(server.kernel.layout, 3, rank=2))
    server.host_slot = 7
    with pytest.raises(HostError, match="serve the same model"):
        connect(server, tmp_path)


def test_a_model_of_another_name_is_refused_before_the_kernel_is_loaded(
    server: FakeServer, tmp_path: Path
) -> None:
    def never() -> HostKernel:
        raise AssertionError("the kernel was loaded")

    with pytest.raises(
        HostError, match=r"to serve other, got served: set host\.engine\.served_model"
    ):
        engines.build(spec(server, tmp_path, served_model="other")).host(never)
    server.stop()
    with pytest.raises(HostError, match=r"no connection .*start the server, or correct"):
        engines.build(spec(server, tmp_path)).host(never)


def test_a_wrong_key_is_said(server: FakeServer, tmp_path: Path) -> None:
    server.key = "right"
    with pytest.raises(HostError, match="status 401"):
        connect(server, tmp_path)


def test_a_folder_that_cannot_be_written_is_said(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = connect(server, tmp_path / "file")
    host.place(0, random_weights(host.layout, 1, rank=2))
    with pytest.raises(Exception, match="expected a folder that can be written"):
        host.rollout(rows_of(0), None, Decoding())


def test_noise_within_the_host_is_refused(server: FakeServer, tmp_path: Path) -> None:
    host = connect(server, tmp_path)
    with pytest.raises(HostError, match=r"set host\.engine=kernel"):
        host.rollout(
            rows_of(HOST_SLOT), [None, None], dataclasses.replace(Decoding(), perturbation=0.1)
        )
