"""One contract for all engines that answer: the kernel, and servers beside it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hosts import random_weights
from servers import FakeServer, running
from symbiont_ecology import Run
from symbiont_ecology.adapters import OptimizerState
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.extensions.engines.answering import ServedHost
from symbiont_ecology.model.engines import engines
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import load_config

SLOTS = 4
VLLM = "host.engine={kind: vllm, adapters_folder: published}"
PROMPTS = ("math.add: 47+8\n", "math.mul: 7*8\n", "string.sort: kqa\n", "logic.bool: a and b\n")
KINDS = ("kernel", "vllm")


def load() -> HostKernel:
    return HostKernel.from_pretrained("embedded", slots=SLOTS, rank=4)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str) -> Iterator[FakeServer | None]:
    if kind == "kernel":
        yield None
        return
    with running() as fake:
        yield fake


def connect(server: FakeServer, folder: Path, **knobs: Any) -> ServedHost:
    quick = {"timeout": 30.0, "loaded": 8, "connections": 4}
    spec = {"kind": "vllm", "url": server.url, "adapters_folder": str(folder), **quick, **knobs}
    host = engines.build(spec).host(load)
    assert isinstance(host, ServedHost)
    return host


@pytest.fixture
def host(server: FakeServer | None, tmp_path: Path) -> HostKernel:
    return load() if server is None else connect(server, tmp_path / "adapters")


def population(host: HostKernel, seed: int = 0) -> list[Request]:
    """Adapters of several ranks in all slots, and a question of each kind for everyone."""
    for slot in range(SLOTS):
        host.place(slot, random_weights(host.layout, 10 * seed + slot, rank=1 + slot % 4))
    everyone = [*range(SLOTS), HOST_SLOT]
    return [Request(prompt, slot, 6) for slot in everyone for prompt in PROMPTS]


def assert_equal(ours: Completions, theirs: Completions) -> None:
    assert ours.texts == theirs.texts
    np.testing.assert_array_equal(ours.lengths, theirs.lengths)
    np.testing.assert_array_equal(ours.prompt_lengths, theirs.prompt_lengths)
    for row in range(len(ours)):
        assert ours[row].token_ids == theirs[row].token_ids
        assert ours[row].is_stopped == theirs[row].is_stopped
        np.testing.assert_allclose(
            ours[row].log_probabilities, theirs[row].log_probabilities, atol=1e-4
        )


def test_rollouts_of_a_population_equal_the_kernels_greedy_answers(host: HostKernel) -> None:
    rows, kernel = population(host), load()
    population(kernel)
    assert_equal(host.rollout(rows, None, Decoding()), kernel.rollout(rows, None, Decoding()))


def test_stop_texts_and_empty_answers_are_as_the_kernels(host: HostKernel) -> None:
    rows, kernel, decoding = population(host), load(), Decoding(stop=("1", "5"))
    rows.append(Request(PROMPTS[0], 1, 0))
    population(kernel)
    assert_equal(host.rollout(rows, None, decoding), kernel.rollout(rows, None, decoding))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_of_sampled_answers_are_the_models_own(
    host: HostKernel, temperature: float
) -> None:
    rows = population(host)
    draws = [np.random.default_rng(row) if row % 3 else None for row in range(len(rows))]
    done = host.rollout(rows, draws, Decoding(temperature, top_p=0.95))
    ids = [done[row].token_ids for row in range(len(rows))]
    read = host.score([row.prompt for row in rows], ids, [row.slot for row in rows])
    for row, values in enumerate(read):
        np.testing.assert_allclose(done[row].log_probabilities, values, atol=1e-4)


def test_a_rows_generator_alone_decides_its_answer(host: HostKernel) -> None:
    rows = population(host)

    def told(order: list[int]) -> dict[int, str]:
        draws = [np.random.default_rng(100 + row) for row in order]
        done = host.rollout([rows[row] for row in order], draws, Decoding(1.0))
        return dict(zip(order, done.texts, strict=True))

    everyone = list(range(len(rows)))
    alone = told(everyone)
    assert told(everyone[::-1]) == alone
    assert told([3])[3] == alone[3]
    assert len(set(alone.values())) > 5


def test_learning_is_the_kernels_and_the_next_answer_is_of_what_was_learned(
    host: HostKernel,
) -> None:
    kernel = load()
    weights = {slot: random_weights(kernel.layout, slot, rank=4) for slot in range(2)}
    states = {slot: OptimizerState() for slot in weights}
    (answer,) = kernel.encode_answers(["=55"])
    batch = LearningBatch(
        (Lesson(PROMPTS[0], answer, 0), Lesson(PROMPTS[1], answer, 1)), {0: 0.05, 1: 0.05}
    )
    rows = [Request(prompt, slot, 6) for slot in weights for prompt in PROMPTS]
    ours, theirs = (weights, states), (weights, states)
    for _ in range(3):
        ours, theirs = host.learn(batch, *ours)[:2], kernel.learn(batch, *theirs)[:2]
        for slot in weights:
            np.testing.assert_array_equal(ours[0][slot].vector, theirs[0][slot].vector)
            host.place(slot, ours[0][slot])
            kernel.place(slot, theirs[0][slot])
        assert_equal(host.rollout(rows, None, Decoding()), kernel.rollout(rows, None, Decoding()))


@pytest.mark.parametrize("kind", ["vllm"], indirect=True)
def test_adapters_are_unloaded_least_recently_used_first_and_no_name_comes_twice(
    server: FakeServer, tmp_path: Path
) -> None:
    host, kernel = connect(server, tmp_path / "adapters", loaded=5), load()
    for seed in (0, 1, 0, 2, 1):
        rows = population(host, seed)
        population(kernel, seed)
        assert_equal(host.rollout(rows, None, Decoding()), kernel.rollout(rows, None, Decoding()))
        assert len(server.adapters) <= 5
        assert len(list((tmp_path / "adapters").iterdir())) == len(server.adapters)
    assert len(server.names) == len(set(server.names))
    before = len(server.names)
    host.rollout(population(host, 1), None, Decoding())
    assert len(server.names) == before  # what is held is not loaded again
    del host
    gc.collect()
    assert not server.adapters
    assert not list((tmp_path / "adapters").iterdir())


@pytest.mark.parametrize("kind", ["vllm"], indirect=True)
def test_the_key_is_sent_and_read_from_a_file(server: FakeServer, tmp_path: Path) -> None:
    server.key = "a-secret"
    (tmp_path / "key").write_text("a-secret\n")
    host = connect(server, tmp_path / "adapters", api_key_file=str(tmp_path / "key"))
    assert len(host.rollout(population(host), None, Decoding())) == 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["host.engine=vlm"], "no engine 'vlm'; did you mean 'vllm'"),
        (["host.engine=vllm"], "engine 'vllm': missing key 'adapters_folder'"),
        ([VLLM, "host.engine.url=127.0.0.1"], "url: expected such as http://127.0.0.1:8000"),
        ([VLLM, "host.engine.url='http://10.0.0.7:8000'"], "url: 10.0.0.7 is beyond this machine"),
        ([VLLM, "host.slots=65"], "expected host.slots=65 or more, got 64"),
        ([VLLM, "learning_rule=hebbian"], "learning_rule: 'hebbian' works within the kernel"),
    ],
)
def test_a_wrong_engine_is_one_line_before_a_model_is_loaded(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(load_config("steady", words))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["vllm"], indirect=True)
def test_a_run_learns_from_what_a_server_answers(server: FakeServer, tmp_path: Path) -> None:
    spec = f"{{kind: vllm, url: '{server.url}', adapters_folder: {tmp_path}/adapters, loaded: 6}}"
    words = ["host.rank=2", "host.slots=4", "tasks.families=[math.add]", "tasks.depths=[short]"]
    words += ["seed=3", "strategy.questions=2", "run.generations=2", f"host.engine={spec}"]
    run = Run.start("steady", *words, folder=tmp_path / "run").finish()
    assert run.is_complete
    assert run.events.GenerationEnded.accuracy.notna().all()
    assert server.names
    assert (run.best.save_peft(tmp_path / "best") / "adapter_config.json").is_file()
