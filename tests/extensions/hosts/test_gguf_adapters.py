"""Adapters as GGUF files: what llama.cpp computes with them, and what ollama is told."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

from gguf_models import tiny, write_gguf
from said import Symbiont
from symbiont_ecology import Run
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.base.errors import AdapterError
from symbiont_ecology.extensions.hosts.gguf_adapters import Ollama, write_gguf_adapter
from symbiont_ecology.extensions.hosts.packages import held
from symbiont_ecology.model.kernel import HostKernel

KINDS = ("Llama", "Qwen2", "Qwen3", "Gemma2", "Gemma3", "Phi3", "Starcoder2", "GPT2")
PROMPT = "the quick brown fox jumps"
MAX_TOKENS, RANK = 24, 3


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _changed(kernel: HostKernel, file: Path, config: Any) -> AdapterWeights:
    """Write a random adapter that changes every module much."""
    weights = AdapterWeights.random(kernel.layout, RANK, 1.7, np.random.default_rng(0), b_std=0.2)
    write_gguf_adapter(file, weights, config.to_dict())
    return weights


def _stored(file: Path) -> dict[str, np.ndarray]:
    return {one.name: np.array(one.data) for one in gguf.GGUFReader(file).tensors}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_changes_the_tensors_of_a_file_as_those_of_the_model(
    kind: str, tmp_path: Path
) -> None:
    model = tiny(kind)
    before = _stored(file := write_gguf(model, tmp_path / "tiny.gguf"))
    weights = _changed(
        HostKernel.from_pretrained(file, slots=1, rank=RANK),
        tmp_path / "adapter.gguf",
        model.config,
    )
    with torch.no_grad():
        for module, _, _ in weights.factors():
            delta = torch.from_numpy(weights.delta(module))
            weight = model.get_submodule(module).weight
            weight.add_(delta if kind != "GPT2" else delta.T)
    after = _stored(write_gguf(model, tmp_path / "merged.gguf"))
    reader = gguf.GGUFReader(tmp_path / "adapter.gguf")
    said = {name: field.contents() for name, field in reader.fields.items()}
    assert (said["general.type"], said["adapter.type"]) == ("adapter", "lora")
    factors = {one.name: np.array(one.data) for one in reader.tensors}
    for name in before:
        expected = after[name] - before[name]
        if (a := factors.pop(f"{name}.lora_a", None)) is not None:
            b = factors.pop(f"{name}.lora_b")
            expected -= said["adapter.lora.alpha"] / len(a) * (b @ a)
        assert np.abs(expected).max() < 1e-5, name
    assert not factors


def _llama_cpp(model: Any, folder: Path, ids: list[int]) -> tuple[list[int], list[float]]:
    """Return what llama.cpp writes with the adapter in a folder, and the log-probabilities."""
    llama = pytest.importorskip("xllamacpp", reason="llama.cpp is not installed")
    tokens = [f"<{number}>" for number in range(model.config.vocab_size)]  # each is whole text
    words = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * len(tokens)}
    file = write_gguf(model, folder / "named.gguf", words)
    params, lora = llama.CommonParams(), llama.CommonAdapterLoraInfo()
    params.model.path, lora.path, lora.scale = str(file), str(folder / "adapter.gguf"), 1.0
    params.lora_adapters = [lora]
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 256, 1, 0, False
    params.cpuparams.n_threads = 1
    params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    asked = {"prompt": ids, "n_predict": MAX_TOKENS, "n_probs": 1, "temperature": 0}
    answer = llama.Server(params).handle_completions(asked)
    written = answer["choices"][0]["logprobs"]["content"]
    return [token["id"] for token in written], [token["logprob"] for token in written]


def _check(kernel: HostKernel, model: Any, folder: Path) -> None:
    weights = _changed(kernel, folder / "adapter.gguf", model.config)
    (ids,) = (prompt.tolist() for prompt in kernel.encode([PROMPT]))
    written, found = _llama_cpp(model, folder, ids)
    kernel.place(0, weights)
    own, bare = (kernel.score([ids], [written], slot)[0].numpy() for slot in (0, -1))
    error = np.abs(own - found).max()
    assert error < 0.02  # nats; some activations are tables of half floats there
    assert error < np.abs(bare - found).max() / 100


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_answers_with_an_adapter_as_the_kernel_does(kind: str, tmp_path: Path) -> None:
    model = tiny(kind)
    file = write_gguf(model, tmp_path / "tiny.gguf")
    _check(HostKernel.from_pretrained(file, slots=1, rank=RANK), model, tmp_path)


def test_llama_cpp_answers_with_an_adapter_of_a_real_model_as_the_kernel_does(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed")
    if (folder := held().get("smollm2")) is None:
        pytest.skip("symbiont host get smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    _check(HostKernel.from_pretrained(folder, slots=1, rank=RANK), model, tmp_path)


def test_an_export_says_how_ollama_and_llama_cpp_ask_an_adapter(
    copied: Path, host: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    said = symbiont("export", copied, "--for", "ollama", "--to", tmp_path / "out")
    assert said.code == 0, said.err
    *_, words = map(shlex.split, said.out.splitlines())
    file = Path(words[-1])
    assert words[:2] == ["ollama", "create"]
    lines = file.read_text().splitlines()
    assert f"FROM {host}" in lines
    assert 'TEMPLATE """{{ .Prompt }}{{ "\\n" }}"""' in lines
    assert (file.parent / "adapter.gguf").is_file()
    said = symbiont("export", copied, "--for", "llama.cpp", "--to", tmp_path / "out")
    *_, words = map(shlex.split, said.out.splitlines())
    assert str(file.parent / "adapter.gguf") in words
    run = Run.open(copied)
    weights = replace(run.loaded.pool.weights[run.best.id], phrase='say """{{x}}": ')
    Ollama().add(run, tmp_path, weights, "behind a phrase")
    said_of_it = (tmp_path / "Modelfile").read_text()
    template = 'TEMPLATE """{{ "say \\"\\"\\"{{x}}\\": " }}{{ .Prompt }}{{ "\\n" }}"""'
    assert template in said_of_it.splitlines()
    assert "# Asked behind a phrase." in said_of_it


def test_an_architecture_without_a_name_in_gguf_is_one_line(tmp_path: Path) -> None:
    layout = AdapterLayout((("model.layers.0.self_attn.q_proj", 8, 8),))
    weights = AdapterWeights.random(layout, 1, 1.0, np.random.default_rng(0))
    file = tmp_path / "adapter.gguf"
    with pytest.raises(AdapterError, match=r"one of the architectures llama, .* got 'olmo2'"):
        write_gguf_adapter(file, weights, {"model_type": "olmo2"})
    odd = AdapterWeights.random(
        AdapterLayout((("model.layers.0.odd", 8, 8),)), 1, 1.0, np.random.default_rng(0)
    )
    with pytest.raises(AdapterError, match=r"got 'model\.layers\.0\.odd'"):
        write_gguf_adapter(file, odd, {"model_type": "qwen3", "num_hidden_layers": 1})
    assert not file.exists()
