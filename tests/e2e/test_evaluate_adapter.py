"""``evaluate --adapter``, typed: beside the bare host, in a style, from a part of the questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hosts import add_chat_template, make_host, random_weights
from lines import jsonl
from said import Symbiont
from symbiont_ecology.base.errors import EcologyWarning
from symbiont_ecology.model.kernel import HostKernel

ROWS = [
    {
        "prompt": f"math.add: {number}+7\n",
        "target": f"={number + 7}",
        "family": "math.add",
        "depth": "short" if number < 60 else "long",
    }
    for number in range(50, 70)
] + [
    {"prompt": f"capital {n}?", "target": "Paris", "family": "trivia", "depth": "short"}
    for n in range(10)
]


@pytest.fixture(scope="module")
def adapter(host: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the host says."""
    kernel = HostKernel.from_pretrained(host, slots=1)
    kernel.place(0, random_weights(kernel.layout, seed=1))
    folder = tmp_path_factory.mktemp("exported") / "adapter"
    kernel.export(0, folder)
    return folder


@pytest.fixture
def asked(tmp_path: Path, adapter: Path, host: Path) -> list[object]:
    """The words that ask the adapter all questions."""
    questions = jsonl(tmp_path / "questions.jsonl", ROWS)
    return ["evaluate", "--adapter", adapter, "--holdout", questions, "--host", host]


def test_an_adapter_beside_its_host_is_a_table_and_json(
    symbiont: Symbiont, asked: list[object], tmp_path: Path
) -> None:
    record = tmp_path / "c.json"
    said = symbiont(*asked, "--json", record)
    assert said.code == 0, said.err
    assert "adapter - host: " in said.out
    found = json.loads(record.read_text())
    assert found["questions"] == 30
    assert {name: one["choices"] for name, one in found["systems"].items()} == {
        "host": {"host": 30},
        "adapter": {"adapter": 30},
    }
    assert set(found["families"]) == {"math.add", "trivia"}
    gap = found["differences"]["host"]
    assert (gap["estimate"], gap["won"], gap["lost"]) == (0, 0, 0)
    assert {one["who"] for one in found["items"]} == {"adapter"}
    assert found["changes"]["both wrong"] == 30
    assert {one["change"] for one in found["items"]} == {"both wrong"}
    assert any(one["reply"] != one["host_reply"] for one in found["items"])
    assert "both wrong: 30" in said.out


def test_a_style_puts_its_line_end_and_its_examples_around_the_questions(
    symbiont: Symbiont, asked: list[object], adapter: Path, tmp_path: Path
) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=2, max_position_embeddings=1024))
    words = [*asked[:-1], host, "--max-samples", 4]
    replies = {}
    for style in ("terse", "few_shot", "{kind: few_shot, is_chat: true}"):
        record = tmp_path / "c.json"
        said = symbiont(*words, "--style", style, "--json", record)
        assert said.code == 0, said.err
        replies[style] = [one["reply"] for one in json.loads(record.read_text())["items"]]
    assert "\n" not in "".join(replies["few_shot"]), "a text ends with its line"
    assert len({str(each) for each in replies.values()}) == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--routing", "host"], "evaluate --adapter: expected no --routing beside it"),
        (["--style", "ters"], "no prompt style 'ters'; did you mean 'terse'?"),
        (["--adapter", "damaged"], "damaged"),
        (["--adapter", "poisoned"], "expected finite weights"),
        (["--adapter", "nowhere"], "got none in nowhere: check the path"),
        (["--host", "narrow"], "expected an adapter for a host of width 64, got 128 for "),
    ],
)
def test_a_mistake_is_one_line_before_the_host_is_loaded(
    symbiont: Symbiont,
    asked: list[object],
    adapter: Path,
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(HostKernel, "from_pretrained")
    spoil(adapter, tmp_path)
    make_host(tmp_path / "narrow", layers=1, hidden_size=64)
    said = symbiont(*asked, *words)
    assert said.code == 2
    assert expected in said.error


def test_an_adapter_of_another_model_is_one_line_of_warning(
    symbiont: Symbiont, asked: list[object], adapter: Path, host: Path, tmp_path: Path
) -> None:
    mine = Path(shutil.copytree(adapter, tmp_path / "mine"))
    config = json.loads((mine / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "Qwen/Qwen2.5-0.5B"
    (mine / "adapter_config.json").write_text(json.dumps(config))
    other = shutil.copytree(host, tmp_path / "Llama-3-8B")
    with pytest.warns(EcologyWarning, match=r"was made for Qwen/Qwen2.5-0.5B, and") as told:
        symbiont(*asked[:-1], other, "--adapter", mine, "--max-samples", 1)
    assert len(told) == 1
    kernel = HostKernel.from_pretrained(tmp_path / "Llama-3-8B", slots=1)
    again = shutil.copytree(mine, tmp_path / "again")  # each is told once
    with pytest.warns(EcologyWarning, match="was made for Qwen"):
        kernel.attach(again)


def spoil(adapter: Path, folder: Path) -> None:
    """Copies of an adapter that cannot be used."""
    for name in ("damaged", "poisoned"):
        shutil.copytree(adapter, folder / name)
    weights = folder / "damaged" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    weights = folder / "poisoned" / "adapter_model.safetensors"
    tensors = load_file(weights)
    first = min(tensors)
    save_file({**tensors, first: np.full_like(tensors[first], np.nan)}, weights)


def test_a_style_needs_an_adapter(symbiont: Symbiont, lived: Path) -> None:
    said = symbiont("evaluate", lived, "--style", "terse")
    assert said.code == 2
    assert "evaluate --style: expected --adapter beside it" in said.error
