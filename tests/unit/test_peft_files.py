"""PEFT folders in and out, against files written by hand: what is read, and what is refused in one
line."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.peft_files import (
    MLX_WEIGHTS_FILE,
    read_peft,
    warn_of_base,
    write_peft,
)
from symbiont_ecology.base.errors import AdapterError, EcologyWarning

LAYOUT = AdapterLayout(
    (
        ("model.layers.0.attn.q_proj", 4, 6),
        ("model.layers.0.mlp.down_proj", 8, 4),
        ("model.layers.1.attn.q_proj", 4, 6),
    )
)
Q, WEIGHTS = "model.layers.0.attn.q_proj", "adapter_model.safetensors"
Factors = dict[str, tuple[np.ndarray, np.ndarray]]


def some_factors(ranks: dict[str, int], seed: int = 0) -> Factors:
    generator = np.random.default_rng(seed)
    sizes = {name: (d_in, d_out) for name, d_in, d_out in LAYOUT.modules}
    return {
        name: (
            generator.standard_normal((rank, sizes[name][0]), dtype=np.float32),
            generator.standard_normal((sizes[name][1], rank), dtype=np.float32),
        )
        for name, rank in ranks.items()
    }


def write_by_hand(folder: Path, factors: Factors, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    fields = usual | {"bias": "none"} | config
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    tensors = {}
    for name, (a, b) in factors.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    save_file(tensors, folder / WEIGHTS)
    return folder


def all_of_rank(rank: int) -> dict[str, int]:
    return {name: rank for name, _, _ in LAYOUT.modules}


def test_round_trip_keeps_every_bit(tmp_path: Path) -> None:
    weights = AdapterWeights.random(LAYOUT, 3, 1.7, np.random.default_rng(0), b_std=1.0)
    write_peft(tmp_path / "out", weights, base_model="some/host")
    back = read_peft(tmp_path / "out", LAYOUT)
    assert back.rank == 3
    assert back.scaling == pytest.approx(1.7)
    np.testing.assert_array_equal(back.vector, weights.vector)


@pytest.mark.parametrize("use_rslora", [False, True])
def test_every_delta_is_scaled_by_its_own_alpha_and_rank(tmp_path: Path, use_rslora: bool) -> None:
    ranks = {Q: 2, "model.layers.0.mlp.down_proj": 3, "model.layers.1.attn.q_proj": 1}
    for number, named in enumerate((ranks, all_of_rank(2), {Q: 2})):
        patterns: dict[str, Any] = {
            "rank_pattern": {"down_proj": 3, r"layers\.1\.attn\.q_proj": 1},
            "alpha_pattern": {"^model.layers.0.attn.q_proj": 7.0},
        }
        factors, config = some_factors(named), patterns if named is ranks else {}
        folder = write_by_hand(
            tmp_path / str(number), factors, use_rslora=use_rslora, lora_dropout=0.1, **config
        )
        weights = read_peft(folder, LAYOUT)
        assert weights.rank == max(named.values())
        for name, (a, b) in factors.items():
            alpha = 7.0 if config and name == Q else 4.0
            scaling = alpha / (named[name] ** 0.5 if use_rslora else named[name])
            np.testing.assert_allclose(weights.delta(name), scaling * b @ a, rtol=1e-5, atol=1e-6)
        assert not any(weights.delta(name).any() for name in ranks.keys() - factors.keys())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"lora_bias": True}, "lora_bias"),
        ({"bias": "all"}, "bias 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        *(({"r": rank}, "numbers from 1 to 4096") for rank in (None, 0.5, 10**400)),
        *(({"lora_alpha": alpha}, "lora_alpha") for alpha in ("many", 1e308, 10**400)),
        ({"rank_pattern": [1]}, "rank_pattern"),
        *(
            ({"alpha_pattern": {pattern: 1}}, "regular expressions")
            for pattern in ("(", "(?=q)q_proj", "(x{1,1000}){1,1000}")
        ),
        *(({"rank_pattern": {"q_proj": rank}}, "rank_pattern") for rank in (10**9, True)),
        ({"alpha_pattern": {"q_proj": 1e308}}, "alpha_pattern"),
        ({"alpha_pattern": {f"m{n}": 1 for n in range(10_001)}}, "at most 10000"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"lora_alpha": 1e-300, "alpha_pattern": {"q_proj": 4}}, "that float32 can hold"),
        ({"x": json.loads(200 * "[" + 200 * "]")}, "nested deeper than 100 levels"),
        ({"r": 5}, "rank that adapter_config.json states"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    assert says in refusal(write_by_hand(tmp_path, some_factors(all_of_rank(2)), **config))


PAIR = some_factors({Q: 2})[Q]
LARGE = tuple(np.full_like(one, 1e30) for one in PAIR)


@pytest.mark.parametrize(
    ("factors", "says"),
    [
        ({}, "found none"),
        ({"model.layers.9.attn.q_proj": PAIR}, "layers.9"),
        ({Q: (PAIR[0][:, :3].copy(), PAIR[1])}, "another size"),
        ({Q: LARGE}, "that float32 can hold"),
        *(({Q: (PAIR[0], PAIR[1] * np.float32(value))}, "finite") for value in (np.nan, np.inf)),
    ],
)
def test_weights_of_another_host_or_of_none_are_refused(
    tmp_path: Path, factors: Factors, says: str
) -> None:
    assert says in refusal(write_by_hand(tmp_path, factors))


MLX = {"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 2.0, "keys": None}}


def write_of_mlx(folder: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(MLX | config))
    save_file(tensors, folder / MLX_WEIGHTS_FILE)
    return folder


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"fine_tune_type": "dora"}, "fine_tune_type 'dora'"),
        ({"fine_tune_type": "full"}, "fine_tune_type 'full'"),
        ({"use_dora": True}, "dora"),
        ({"lora_parameters": None}, "rank"),
        ({"lora_parameters": {"rank": 2}}, "numbers from -1e+06 to 1e+06 in scale"),
        *(({"lora_parameters": {"rank": 2, "scale": one}}, "scale") for one in ("1", 10**400)),
        *(({"lora_parameters": {"rank": one, "scale": 2}}, "rank") for one in (0, 10**400, "2")),
        ({"lora_parameters": {"rank": 3, "scale": 2.0}}, "rank that adapter_config.json states"),
    ],
)
def test_what_mlx_trains_beside_lora_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    tensors = {f"{Q}.lora_{side}": one.T.copy() for side, one in zip("ab", PAIR, strict=True)}
    assert says in refusal(write_of_mlx(tmp_path, tensors, **config))


def test_an_alpha_of_mlx_counts_nothing_or_is_refused_where_nobody_can_tell(tmp_path: Path) -> None:
    tensors = {f"{Q}.lora_{side}": one.T.copy() for side, one in zip("ab", PAIR, strict=True)}
    parameters = {"rank": 2, "scale": 2.0, "alpha": 16}
    folder = write_of_mlx(tmp_path / "new", tensors, lora_parameters=parameters)
    np.testing.assert_allclose(
        read_peft(folder, LAYOUT).delta(Q), 2 * PAIR[1] @ PAIR[0], rtol=1e-5, atol=1e-6
    )
    old = write_of_mlx(tmp_path / "old", tensors)
    (old / "adapter_config.json").write_text(json.dumps({"lora_parameters": parameters}))
    assert "scale · alpha ÷ rank" in refusal(old)


@pytest.mark.parametrize(
    "key",
    [
        "base_model.model.lm_head.lora_A.weight",
        "base_model.model.lm_head.weight",
        "base_model.model.lm_head.base_layer.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A",
        "base_model.model.model.embed_tokens.weight",
        "model.embed_tokens.lora_a",
        "lm_head.lora_A.default.weight",
        "base_model.model.transformer.wte.lora_embedding_B",
    ],
)
def test_embeddings_and_heads_are_refused_by_name(tmp_path: Path, key: str) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    save_file(_tensors(folder) | {key: np.ones((2, 4), np.float32)}, folder / WEIGHTS)
    assert "train it without embeddings and heads" in refusal(folder)


def test_a_file_with_two_adapters_or_one_twice_is_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    whole = _tensors(folder)
    key = f"base_model.model.{Q}.lora_A.weight"
    for twin in (key.replace("A.weight", "A.other.weight"), f"_orig_mod.{key}"):
        save_file(whole | {twin: whole[key]}, folder / WEIGHTS)
        assert "one adapter in a file" in refusal(folder)


def test_weights_beside_the_adapter_and_unsaved_shards_are_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    (folder / "new_embeddings.safetensors").touch()
    assert "more weights in new_embeddings" in refusal(folder)
    (folder / "new_embeddings.safetensors").unlink()
    save_file({name: np.zeros(0, np.float32) for name in _tensors(folder)}, folder / WEIGHTS)
    assert "gather the shards" in refusal(folder)


def test_a_folder_of_folders_says_where_the_adapter_is(tmp_path: Path) -> None:
    inner = write_by_hand(tmp_path / "out" / "sft", some_factors(all_of_rank(2)))
    assert f"take {inner}" in refusal(inner.parent)


SMOL = "HuggingFaceTB/SmolLM2-135M-Instruct"
CACHE = "/home/a/.cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B/snapshots/12ab34cd56ef"


@pytest.mark.parametrize(
    ("base", "host", "is_told"),
    [
        (SMOL, "embedded", False),
        (SMOL, "smollm2", False),
        (SMOL, "/home/a/.cache/symbiont/hosts/smollm2", False),
        (SMOL, "/home/a/hosts/SmolLM2-135M-Instruct-Q8_0-0123456789ab", False),
        (SMOL, "models/SmolLM2-135M-Instruct-Q4_K_M.gguf", False),
        (SMOL, "/models/smollm2-135m", False),
        (SMOL, "/models/production", False),
        ("Qwen/Qwen3-0.6B", "/models/qwen3-0.6b-finetuned-mine", False),
        ("Qwen/Qwen3-0.6B", "/models/checkpoint-0.6B", False),
        (SMOL.lower(), SMOL, False),
        ("unsloth/SmolLM2-135M-Instruct-bnb-4bit", SMOL, False),
        ("mlx-community/SmolLM2-135M-Instruct-8bit", "/models/SmolLM2-135M-Instruct", False),
        ("google/gemma-3-270m-it", "gemma3-270m", False),
        ("Qwen/Qwen2.5-0.5B", CACHE, False),
        (CACHE, "/models/Qwen2___5-0___5B", False),
        ("unsloth/llama-3-8b-Instruct-bnb-4bit", "meta-llama/Meta-Llama-3-8B-Instruct", False),
        ("unsloth/mistral-7b-bnb-4bit", "mistralai/Mistral-7B-v0.1", False),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B-Instruct", False),
        ("unsloth/Qwen2.5-0.5B-unsloth-bnb-4bit", "Qwen/Qwen2.5-0.5B", False),
        ("TheBloke/Llama-2-7B-fp16", "NousResearch/Llama-2-7b-hf", False),
        *((base, SMOL, False) for base in ("", None, "gpt2", "./out/llama-7b", "/a/qwen-7b", "x")),
        (SMOL, "Qwen/Qwen2.5-0.5B", True),
        (SMOL, "/models/Qwen2.5-0.5B", True),
        (SMOL, CACHE, True),
        (SMOL, "models/Qwen2.5-0.5B-Q8_0.gguf", True),
        (SMOL, "HuggingFaceTB/SmolLM2-135M", True),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct", True),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", True),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3-8B", True),
        (CACHE, "/models/Qwen2.5-1.5B", True),
    ],
)
def test_an_adapter_of_another_model_is_told_once_and_other_names_of_one_are_not(
    tmp_path: Path, base: str | None, host: str, is_told: bool
) -> None:
    folder = write_by_hand(tmp_path, some_factors({Q: 2}), base_model_name_or_path=base)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_of_base(folder, host)
        warn_of_base(folder, host)
    assert len(told) == is_told
    assert all(issubclass(one.category, EcologyWarning) for one in told)


def test_half_a_pair_and_unknown_tensors_are_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    tensors = _tensors(folder)
    half = {
        name: one for name, one in tensors.items() if name != f"base_model.model.{Q}.lora_B.weight"
    }
    head = {"base_model.model.lm_head.weight": np.zeros(2, np.float32)}
    for wrong, says in ((half, "lora_A and lora_B"), (head, "lm_head")):
        save_file(wrong, folder / WEIGHTS)
        assert says in refusal(folder)


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    assert "none in" in refusal(tmp_path / "nowhere")
    folder = write_by_hand(tmp_path / "out", some_factors(all_of_rank(2)))
    whole = (folder / WEIGHTS).read_bytes()
    for kept in (0, 5, 60, -4):
        (folder / WEIGHTS).write_bytes(whole[:kept])
        assert "damaged" in refusal(folder)
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    assert "safe_serialization" in refusal(folder)
    (folder / "adapter_model.bin").unlink()
    assert " none" in refusal(folder)
    for name in (WEIGHTS, "adapter_config.json"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        assert " none" in refusal(folder)


def test_an_interrupted_export_leaves_no_half_of_a_file_and_does_not_look_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    weights = AdapterWeights.random(LAYOUT, 1, 1.0, np.random.default_rng(0))
    write_peft(tmp_path / "twice", weights, base_model="host")
    monkeypatch.setattr(os, "replace", full)
    for folder in (tmp_path / "twice", tmp_path / "once"):
        with pytest.raises(AdapterError, match="No space left"):
            write_peft(folder, weights, base_model="host")
        assert "adapter_config.json" in refusal(folder)
    assert not list((tmp_path / "once").iterdir())


def test_bfloat16_is_read_exactly(tmp_path: Path) -> None:
    factors = some_factors(all_of_rank(2))
    write_by_hand(tmp_path, factors)
    halves = {
        name: (array.view(np.uint32) >> 16).astype(np.uint16)
        for name, array in _tensors(tmp_path).items()
    }
    header = {}
    body = b""
    for name, array in halves.items():
        spot = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": spot}
        body += array.tobytes()
    text = json.dumps(header).encode()
    (tmp_path / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + body)
    for name, a, _ in read_peft(tmp_path, LAYOUT).factors():
        cut = (factors[name][0].view(np.uint32) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(a, cut)


def test_a_name_means_itself_and_what_ends_like_it(tmp_path: Path) -> None:
    alphas = {"1.attn.q_proj": 8.0, "proj": 40.0, "attn.q_proj": 6.0}
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)), alpha_pattern=alphas)
    deltas = {name: read_peft(folder, LAYOUT).delta(name) for name in all_of_rank(2)}
    for name, alpha in zip(all_of_rank(2), (6.0, 4.0, 8.0), strict=True):
        a, b = some_factors(all_of_rank(2))[name]
        np.testing.assert_allclose(deltas[name], alpha / 2 * b @ a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "content", ["{", "[]", "\udcff", "[" * 100_000], ids=["{", "[]", "bytes", "deep"]
)
def test_a_damaged_config_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    (folder / "adapter_config.json").write_bytes(content.encode(errors="surrogateescape"))
    refusal(folder)


def test_targets_are_bare_endings_unless_another_module_ends_alike(tmp_path: Path) -> None:
    weights = AdapterWeights.random(LAYOUT, 1, 1.0, np.random.default_rng(0))
    write_peft(tmp_path, weights, base_model="host")
    assert _config(tmp_path)["target_modules"] == ["down_proj", "q_proj"]
    write_peft(tmp_path, weights, base_model="host", unadapted=["model.layers.2.attn.q_proj"])
    assert _config(tmp_path)["target_modules"] == [name for name, _, _ in LAYOUT.modules]


def refusal(folder: Path) -> str:
    """The one line that reading this folder ends with."""
    with pytest.raises(AdapterError) as caught:
        read_peft(folder, LAYOUT)
    text = str(caught.value)
    assert text.startswith("expected")
    assert "\n" not in text
    return text


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return dict(load_file(folder / WEIGHTS))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    return config
