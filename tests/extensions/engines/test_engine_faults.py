"""What goes wrong with a server that answers: found, said in one line, and no wrong answer used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hosts import random_weights
from servers import FakeServer, running
from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.extensions.engines.answering import ServedHost
from symbiont_ecology.model.engines import engines
from symbiont_ecology.model.kernel import HostKernel

PROMPTS = ("math.add: 47+8\n", "string.sort: kqa\n")
LASTING = 1 << 30
ENDS = {  # fault and how many calls it befalls: what must be said
    ("full", 1): "status 503",
    ("odd", 1): "one that cannot be read",
    ("nan", 1): "expected 1 to",
    ("alien", 1): "tokens of the host",
    ("hang", 1): "within 2 s",
    ("vanish", 1): "none within",
    ("cut", 1): "none within",
    ("restart", 1): "status 404",
    ("bare", LASTING): "some of the bare host",
    ("closed", LASTING): "status 404.*it takes no adapter",
}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with running() as fake:
        yield fake


def connect(server: FakeServer, folder: Path, **knobs: object) -> ServedHost:
    quick = {"timeout": 60.0, "connections": 4, "loaded": 4}
    spec = {"kind": "vllm", "url": server.url, "adapters_folder": str(folder), **quick, **knobs}
    host = engines.build(spec).host(lambda: HostKernel.from_pretrained("embedded", slots=2, rank=4))
    assert isinstance(host, ServedHost)
    return host


def rows_of(*slots: int) -> list[Request]:
    return [Request(prompt, slot, 6) for slot in slots for prompt in PROMPTS]


@pytest.mark.parametrize(("fault", "left"), ENDS, ids=[fault for fault, _ in ENDS])
def test_a_fault_is_told_and_no_wrong_adapter_is_used(
    server: FakeServer, fault: str, left: int, faults: int, tmp_path: Path
) -> None:
    kernel = HostKernel.from_pretrained("embedded", slots=2, rank=4)
    host = connect(server, tmp_path, timeout=2.0 if fault == "hang" else 60.0)
    rows = rows_of(0, 1)
    for trial in range(faults):
        server.fail("")
        for slot in (0, 1):
            weights = random_weights(kernel.layout, 2 * trial + slot, rank=2)
            host.place(slot, weights)
            kernel.place(slot, weights)
        if trial % 2 and fault != "closed":
            host.rollout(rows, None, Decoding())  # the fault befalls adapters that were right
        server.fail(fault, left)
        with pytest.raises(HostError) as caught:
            host.rollout(rows, None, Decoding())
        assert re.search(ENDS[fault, left], str(caught.value))
        assert "\n" not in str(caught.value)
        assert server.hit
        server.fail("")
        expected = HostKernel.rollout(kernel, rows, None, Decoding()).texts
        assert host.rollout(rows, None, Decoding()).texts == expected


def test_an_adapter_after_one_step_of_learning_is_told_from_the_bare_host(
    server: FakeServer, tmp_path: Path
) -> None:
    host = connect(server, tmp_path)
    founder = AdapterWeights.random(host.layout, 4, 1.0, np.random.default_rng(0))
    server.fail("bare")
    host.place(0, founder)  # which equals it
    texts = host.rollout(rows_of(0), None, Decoding()).texts
    assert texts == host.rollout(rows_of(HOST_SLOT), None, Decoding()).texts
    (answer,) = host.encode_answers(["=55"])
    batch = LearningBatch((Lesson(PROMPTS[0], answer, 0),), {0: 0.02})
    learned, _, _ = host.learn(batch, {0: founder}, {0: OptimizerState()})
    host.place(0, learned[0])
    for draws, decoding in ((None, Decoding()), (np.random.default_rng(0).spawn(2), Decoding(0.6))):
        with pytest.raises(HostError, match="bare host"):
            host.rollout(rows_of(0), draws, decoding)


def test_a_server_with_another_model_is_refused(server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"to serve other, got .*served"):
        connect(server, tmp_path, served_model="other")
    server.kernel.place(7, random_weights(server.kernel.layout, 3, rank=2))
    server.host_slot = 7
    with pytest.raises(HostError, match="serve the same model"):
        connect(server, tmp_path)
    server.key = "right"
    with pytest.raises(HostError, match="status 401"):
        connect(server, tmp_path)
