"""The host that ships: an ordinary folder with the abilities, habits and gaps that docs/hosts.md
states."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from runs import start
from symbiont_ecology import HostKernel
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.model.locating import EMBEDDED_FOLDER
from symbiont_ecology.run.config import load_config


@pytest.fixture(scope="module")
def kernel() -> HostKernel:
    return HostKernel.from_pretrained("embedded", slots=32, rank=4)


@pytest.fixture(scope="module")
def card() -> dict[str, object]:
    return json.loads((EMBEDDED_FOLDER / "host_card.json").read_text())


def test_transformers_loads_the_folder_and_answers_as_the_kernel_does(kernel: HostKernel) -> None:
    model = AutoModelForCausalLM.from_pretrained(kernel.name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(kernel.name_or_path)
    prompt = "math.add: 47+8\n"
    inputs = tokenizer([prompt], return_tensors="pt")
    assert inputs["input_ids"][0, 0] == tokenizer.bos_token_id
    written = model.generate(**inputs, max_new_tokens=8, do_sample=False)[
        0, inputs["input_ids"].shape[1] :
    ]
    assert [tokenizer.decode(written, skip_special_tokens=True)] == kernel.generate(
        [prompt], HOST_SLOT
    )
    text = "any täxt → \x00 round-trips: math.add True"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_the_folder_is_small_and_is_the_one_that_was_measured(card: dict[str, object]) -> None:
    assert sum(path.stat().st_size for path in EMBEDDED_FOLDER.iterdir()) <= 4_000_000
    weights = (EMBEDDED_FOLDER / "model.safetensors").read_bytes()
    assert card["sha256"] == hashlib.sha256(weights).hexdigest()


@pytest.mark.parametrize("preset", ["steady", "steady_single", "steady_frozen"])
def test_no_kind_of_run_changes_the_hosts_weights(
    preset: str, kernel: HostKernel, tmp_path: Path
) -> None:
    before = kernel.fingerprint(is_fresh=True)
    start(load_config(preset, ["run.generations=2"]), tmp_path / "run", host=kernel)
    assert kernel.fingerprint(is_fresh=True) == before


def test_an_ecology_learns_from_verdicts_alone_and_wastes_few_calls(
    kernel: HostKernel, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    start(load_config("steady", ["run.train_flops=1e11", "seed=11"]), folder, host=kernel)
    candidates = LoadedRun.of_run(folder)
    questions = candidates.items(10)

    def accuracy(routing: str) -> float:
        return candidates.evaluate(questions, kernel, routing).accuracy().estimate

    assert accuracy("learned") > accuracy("host") + 0.3
    ended = [e for e in read_events(folder / "events.jsonl") if isinstance(e, GenerationEnded)]
    assert all(event.calls <= 2 for event in ended)
