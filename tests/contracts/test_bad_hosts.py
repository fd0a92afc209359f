"""Hosts and calls that cannot work say so in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from symbiont_ecology.config import load_config
from symbiont_ecology.errors import ConfigError, HostError
from symbiont_ecology.host.backend import passes
from symbiont_ecology.host.kernel import HostKernel


@pytest.fixture
def gpt2(host_folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(host_folders["gpt2"], tmp_path / "gpt2"))


def test_a_tokenizer_file_without_a_model_is_refused(gpt2: Path) -> None:
    (gpt2 / "tokenizer.json").write_text("{}")
    with pytest.raises(HostError, match="expected a tokenizer"):
        HostKernel.from_pretrained(gpt2)


def test_a_missing_tensor_is_refused_and_not_made_up(gpt2: Path) -> None:
    tensors = load_file(gpt2 / "model.safetensors")
    gone = next(name for name in sorted(tensors) if name.endswith("c_fc.weight"))
    del tensors[gone]
    save_file(tensors, gpt2 / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HostError, match="c_fc"):
        HostKernel.from_pretrained(gpt2)


def test_an_end_token_beyond_the_vocabulary_is_left_out(gpt2: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((gpt2 / name).read_text())
        (gpt2 / name).write_text(json.dumps(settings | {"eos_token_id": 50256}))
    kernel = HostKernel.from_pretrained(gpt2)
    assert len(kernel.generate(["a"], -1, max_new_tokens=4, min_new_tokens=3)) == 1


def test_slots_too_large_for_the_machine_are_refused(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "library", lambda: None)  # which reads adapters where they lie
    with pytest.raises(HostError, match="GB for 16 slots"):
        HostKernel.from_pretrained(host_folders["qwen3"], rank=10**8)


def test_calls_of_the_wrong_shape_are_refused(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"])
    assert kernel.generate(["a", "b"], np.int64(-1)) == kernel.generate(["a", "b"], [-1, -1])  # type: ignore[arg-type]
    with pytest.raises(HostError, match="got one text"):
        kernel.generate("abc", -1)
    with pytest.raises(HostError, match="one slot for each of 2"):
        kernel.generate(["a", "b"], [0])
    with pytest.raises(HostError, match="a completion for each of 2"):
        kernel.score(["a", "b"], ["c"], -1)
    with pytest.raises(HostError, match="max_new_tokens >= 0"):
        kernel.generate(["a"], -1, max_new_tokens=-4)


@pytest.mark.parametrize("override", ["tasks.families=[math.add,math.add]", "tasks.depths=[]"])
def test_cells_are_named_once(override: str) -> None:
    with pytest.raises(ConfigError, match="each of them once"):
        load_config("steady", [override])
