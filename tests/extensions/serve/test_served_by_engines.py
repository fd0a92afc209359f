"""A service whose answers a server writes while the kernel learns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts import random_weights
from in_service import NEVER_LEARNS, QUESTION, TOWN, Serve, Served, wait_until
from servers import FakeServer, running
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.limits import ServiceLimits
from symbiont_ecology.extensions.serve.messages import UNABLE
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.config import load_config

LASTING = 1 << 30
ENDS = {"full": 1, "nan": 1, "vanish": 1, "restart": 1, "bare": LASTING, "closed": LASTING}
"""Faults, and how many questions they befall."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with running() as fake:
        yield fake


@pytest.fixture
def connect(server: FakeServer, serve: Serve, tmp_path: Path) -> Any:
    """Serves a town whose questions the server answers."""

    def begin(limits: ServiceLimits = NEVER_LEARNS, **knobs: Any):
        quick = {"timeout": 30.0, "loaded": 8, "connections": 4}
        where = {"kind": "vllm", "url": server.url, "adapters_folder": str(tmp_path / "adapters")}
        pairs = [f"{key}: {value!r}" for key, value in {**where, **quick, **knobs}.items()]
        config = load_config("habitats/town", [*TOWN, f"host.engine={{{', '.join(pairs)}}}"])
        served = serve(config=config, limits=limits)
        apart(served)
        return served

    return begin


def apart(served: Served, seed: int = 0) -> None:
    """Three organelles that answer otherwise than the host and than each other."""
    (weights, *_) = served.service.snapshot.weights.values()
    served.live_as(**{f"o{k}": random_weights(weights.layout, seed + k, rank=2) for k in range(3)})


def text_of(kernel: HostKernel, served: Served, name: str) -> str:
    """What the kernel answers greedily as an organelle, or as the host."""
    slot = HOST_SLOT
    if name != HOST:
        slot = 0
        kernel.place(slot, served.service.snapshot.weights[name])
    return kernel.generate([f"{QUESTION}\n"], slot, max_new_tokens=12)[0]


def ask(served: Served, name: str, **more: Any) -> Any:
    return served.ask(model=name, temperature=0, max_tokens=12, user="ada", **more)


def said(answer: Any) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def test_many_at_once_get_the_answers_of_whom_they_asked(connect: Any, kernel: HostKernel) -> None:
    served, told = connect(), dict[int, Any]()
    names = [HOST, "o0", "o1", "o2"] * 4

    def one(place: int) -> None:
        told[place] = said(ask(served, names[place]))

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == {place: text_of(kernel, served, name) for place, name in enumerate(names)}


def test_a_streamed_reply_comes_in_one_piece(connect: Any, kernel: HostKernel) -> None:
    served = connect()
    text = ask(served, "o2", stream=True).text
    assert f'"content":"{text_of(kernel, served, "o2")}"' in text.replace('": "', '":"')
    assert '"finish_reason"' in text


def test_a_server_tells_the_log_probability_of_each_token_and_no_other(
    connect: Any, kernel: HostKernel
) -> None:
    served = connect()
    (choice,) = ask(served, "o2", logprobs=True).json()["choices"]
    data = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
    assert data.decode() == choice["message"]["content"] == text_of(kernel, served, "o2")
    refused = ask(served, "o2", logprobs=True, top_logprobs=2)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")


def test_adapters_that_have_learned_answer_under_new_names(
    connect: Any, server: FakeServer
) -> None:
    served = connect(limits=ServiceLimits(learn_share=1.0, patience=0.0))
    for user in ("ada", "ben"):
        for number in range(6):
            answer = served.ask(user=user, seed=number).json()
            served.judge(answer["id"], accepted=True)
    wait_until(lambda: served.service.journal.learned == served.service.journal.verdicts)
    before = len(server.names)
    for name in served.service.snapshot.weights:
        assert ask(served, name).status_code == 200
    assert len(server.names) > before
    assert not served.service.learning_error


@pytest.mark.parametrize("fault", ENDS)
def test_a_fault_is_told_and_no_wrong_adapter_answers(
    connect: Any, server: FakeServer, kernel: HostKernel, fault: str, faults: int
) -> None:
    served = connect()
    for trial in range(faults):
        server.fail("")
        assert said(ask(served, "o0")) == text_of(kernel, served, "o0")
        if trial % 2 or fault == "closed":  # the fault befalls an adapter that is new
            apart(served, 10 * trial + 10)
        server.fail(fault, ENDS[fault])
        answer = ask(served, "o0")
        assert server.hit
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == UNABLE
    server.fail("")
    assert said(ask(served, "o1")) == text_of(kernel, served, "o1")


def test_who_waits_for_a_server_that_hangs_is_told_in_time(
    connect: Any, server: FakeServer, kernel: HostKernel
) -> None:
    served = connect(limits=ServiceLimits(learn_share=0, seconds=1.0))
    server.fail("hang", 1)
    assert ask(served, "o0").status_code == 504
    assert said(ask(served, "o1")) == text_of(kernel, served, "o1")
    served.stop()
