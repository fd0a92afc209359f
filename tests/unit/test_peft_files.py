"""PEFT folders in and out, against files written by hand: what is read, and what is refused in one
line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.peft_files import read_peft, write_peft
from symbiont_ecology.base.errors import AdapterError

LAYOUT = AdapterLayout(
    (
        ("model.layers.0.attn.q_proj", 4, 6),
        ("model.layers.0.mlp.down_proj", 8, 4),
        ("model.layers.1.attn.q_proj", 4, 6),
    )
)
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
    fields = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["q_proj"],
        "bias": "none",
    } | config
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    tensors = {}
    for name, (a, b) in factors.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    save_file(tensors, folder / "adapter_model.safetensors")
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


@pytest.mark.parametrize(("use_rslora", "scaling"), [(False, 4 / 2), (True, 4 / 2**0.5)])
def test_scaling_is_alpha_over_rank_or_over_its_root(
    tmp_path: Path, use_rslora: bool, scaling: float
) -> None:
    factors = some_factors(all_of_rank(2))
    weights = read_peft(write_by_hand(tmp_path, factors, use_rslora=use_rslora), LAYOUT)
    assert weights.scaling == pytest.approx(scaling)
    for name, (a, b) in factors.items():
        np.testing.assert_allclose(weights.delta(name), scaling * b @ a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_rslora", [False, True])
def test_rank_and_alpha_patterns_leave_every_delta_as_it_was(
    tmp_path: Path, use_rslora: bool
) -> None:
    ranks = all_of_rank(2) | {"model.layers.0.mlp.down_proj": 3, "model.layers.1.attn.q_proj": 1}
    alphas = dict.fromkeys(ranks, 4.0) | {"model.layers.0.attn.q_proj": 7.0}
    factors = some_factors(ranks)
    folder = write_by_hand(
        tmp_path,
        factors,
        use_rslora=use_rslora,
        rank_pattern={"down_proj": 3, r"layers\.1\.attn\.q_proj": 1},
        alpha_pattern={"^model.layers.0.attn.q_proj": 7.0},
    )
    weights = read_peft(folder, LAYOUT)
    assert weights.rank == 3
    for name, (a, b) in factors.items():
        scaling = alphas[name] / (ranks[name] ** 0.5 if use_rslora else ranks[name])
        np.testing.assert_allclose(weights.delta(name), scaling * b @ a, rtol=1e-5, atol=1e-6)


def test_modules_that_an_adapter_leaves_out_stay_zero(tmp_path: Path) -> None:
    folder = write_by_hand(
        tmp_path, some_factors({"model.layers.1.attn.q_proj": 2}), lora_dropout=0.1
    )
    weights = read_peft(folder, LAYOUT)
    assert weights.delta("model.layers.1.attn.q_proj").any()
    assert not weights.delta("model.layers.0.attn.q_proj").any()


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
    (tmp_path / "adapter_model.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + body
    )
    for name, a, _ in read_peft(tmp_path, LAYOUT).factors():
        cut = (factors[name][0].view(np.uint32) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(a, cut)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "bias 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"lora_bias": True}, "lora_bias"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"r": None}, "numbers from 1"),
        ({"lora_alpha": "many"}, "lora_alpha"),
        ({"rank_pattern": [1]}, "rank_pattern"),
        ({"alpha_pattern": {"(": 1}}, "regular expressions"),
        ({"alpha_pattern": {"(?=q)q_proj": 1}}, "regular expressions"),
        ({"alpha_pattern": {"(x{1,1000}){1,1000}": 1}}, "regular expressions"),
        ({"rank_pattern": {"q_proj": 10**9}}, "rank_pattern"),
        ({"rank_pattern": {"q_proj": True}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 1e308}}, "alpha_pattern"),
        ({"alpha_pattern": {f"m{n}": 1 for n in range(10_001)}}, "at most 10000"),
        ({"r": 10**400}, "numbers from 1 to 4096"),
        ({"r": 0.5}, "numbers from 1 to 4096"),
        ({"lora_alpha": 1e308}, "lora_alpha"),
        ({"lora_alpha": 10**400}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"lora_alpha": 1e-300, "alpha_pattern": {"q_proj": 4}}, "that float32 can hold"),
        ({"x": json.loads(200 * "[" + 200 * "]")}, "nested deeper than 100 levels"),
        ({"r": 5}, "rank that adapter_config.json states"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)), **config)
    assert says in refusal(folder)


def test_an_adapter_that_cannot_be_written_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    weights = AdapterWeights.random(LAYOUT, 2, 1.0, np.random.default_rng(0), b_std=1.0)
    with pytest.raises(AdapterError, match="No space left"):
        write_peft(tmp_path / "out", weights, base_model="some/host")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", ".*.*.*.*x", ".?" * 25 + "zzz", "(?:.*)*" * 20 + "z", "[a-z.]*" * 30 + "!"],
)
def test_no_pattern_keeps_the_matcher_busy(tmp_path: Path, pattern: str) -> None:
    began = time.process_time()
    factors = some_factors(all_of_rank(2))
    folder = write_by_hand(
        tmp_path, factors, rank_pattern={pattern: 4}, alpha_pattern={pattern: 9.0}
    )
    assert read_peft(folder, LAYOUT).scaling == 2.0
    assert time.process_time() - began < 5


def test_a_name_means_itself_and_what_ends_like_it(tmp_path: Path) -> None:
    alphas = {"1.attn.q_proj": 8.0, "proj": 40.0, "attn.q_proj": 6.0}
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)), alpha_pattern=alphas)
    deltas = {name: read_peft(folder, LAYOUT).delta(name) for name in all_of_rank(2)}
    for name, alpha in zip(all_of_rank(2), (6.0, 4.0, 8.0), strict=True):
        a, b = some_factors(all_of_rank(2))[name]
        np.testing.assert_allclose(deltas[name], alpha / 2 * b @ a, rtol=1e-5, atol=1e-6)


def test_weights_whose_product_overflows_are_refused(tmp_path: Path) -> None:
    factors = some_factors(all_of_rank(2))
    for side in factors["model.layers.0.attn.q_proj"]:
        side[0, 0] = 1e30
    assert "that float32 can hold" in refusal(write_by_hand(tmp_path, factors))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert "found none" in refusal(folder)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "no folder" in refusal(tmp_path / "nowhere")


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    assert "adapter_config.json" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "\udcff", "[" * 100_000], ids=["{", "[]", "bytes", "deep"]
)
def test_a_damaged_config_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    (folder / "adapter_config.json").write_bytes(content.encode(errors="surrogateescape"))
    refusal(folder)


@pytest.mark.parametrize("kept", [0, 5, 60, -4])
def test_truncated_weights_are_refused(tmp_path: Path, kept: int) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert "damaged" in refusal(folder)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "safe_serialization" in refusal(folder)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    (folder / "adapter_model.safetensors").unlink()
    assert "found none" in refusal(folder)


def test_a_module_that_the_host_lacks_is_refused(tmp_path: Path) -> None:
    pair = some_factors(all_of_rank(2))["model.layers.0.attn.q_proj"]
    assert "layers.9" in refusal(write_by_hand(tmp_path, {"model.layers.9.attn.q_proj": pair}))


def test_shapes_of_another_host_are_refused(tmp_path: Path) -> None:
    a, b = some_factors(all_of_rank(2))["model.layers.0.attn.q_proj"]
    assert "another size" in refusal(
        write_by_hand(tmp_path, {"model.layers.0.attn.q_proj": (a[:, :3].copy(), b)})
    )


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, some_factors(all_of_rank(2)))
    tensors = _tensors(folder)
    del tensors["base_model.model.model.layers.0.attn.q_proj.lora_B.weight"]
    save_file(tensors, folder / "adapter_model.safetensors")
    assert "lora_A and lora_B" in refusal(folder)


def test_unknown_tensors_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    folder = write_by_hand(tmp_path, {})
    assert "found none" in refusal(folder)
    save_file(
        {"base_model.model.lm_head.weight": np.zeros(2, np.float32)},
        folder / "adapter_model.safetensors",
    )
    assert "lm_head" in refusal(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    factors = some_factors(all_of_rank(2))
    factors["model.layers.0.attn.q_proj"][1][0, 0] = value
    assert "finite" in refusal(write_by_hand(tmp_path, factors))


def test_targets_are_bare_endings_unless_another_module_ends_alike(tmp_path: Path) -> None:
    weights = AdapterWeights.random(LAYOUT, 1, 1.0, np.random.default_rng(0))
    write_peft(tmp_path, weights, base_model="host")
    assert _config(tmp_path)["target_modules"] == ["down_proj", "q_proj"]
    write_peft(tmp_path, weights, base_model="host", unadapted=["model.layers.2.attn.q_proj"])
    assert _config(tmp_path)["target_modules"] == [name for name, _, _ in LAYOUT.modules]


def test_an_interrupted_export_does_not_look_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = AdapterWeights.random(LAYOUT, 1, 1.0, np.random.default_rng(0))
    write_peft(tmp_path, weights, base_model="host")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(AdapterError, match="No space left"):
        write_peft(tmp_path, weights, base_model="host")
    assert "adapter_config.json" in refusal(tmp_path)


def test_reading_and_writing_import_neither_torch_nor_peft() -> None:
    code = (
        "import sys, symbiont_ecology.adapters.peft_files\n"
        "print({'torch', 'peft', 'transformers'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def refusal(folder: Path) -> str:
    """The one line that reading this folder ends with."""
    with pytest.raises(AdapterError) as caught:
        read_peft(folder, LAYOUT)
    text = str(caught.value)
    assert text.startswith("expected")
    assert "\n" not in text
    return text


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return dict(load_file(folder / "adapter_model.safetensors"))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text())
    return config
