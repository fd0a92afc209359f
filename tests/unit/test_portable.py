"""The profile in which servers read adapters: nothing unusual asked, and ΔW as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.peft_files import complete_layout, read_peft, write_portable
from symbiont_ecology.base.errors import AdapterError

ENDINGS = {"q_proj": 6, "k_proj": 4, "v_proj": 4, "o_proj": 6, "gate_proj": 8, "up_proj": 8}
MODULES = tuple(
    (f"model.layers.{layer}.part.{ending}", 6, size)
    for layer in range(3)
    for ending, size in ENDINGS.items()
)


def adapter(*modules: tuple[str, int, int], rank: int = 3, scaling: float = 1.7) -> AdapterWeights:
    generator = np.random.default_rng(0)
    return AdapterWeights.random(AdapterLayout(modules), rank, scaling, generator, b_std=1.0)


def test_a_portable_folder_has_the_deltas_of_the_adapter_and_zeros_beside_them(
    tmp_path: Path,
) -> None:
    weights = adapter(MODULES[0], MODULES[3], MODULES[16])  # q and o of layer 0, gate of layer 2
    write_portable(tmp_path, weights, modules=MODULES, base_model="host")
    read = read_peft(tmp_path, AdapterLayout(MODULES))
    own = {name for name, _, _ in weights.layout.modules}
    for name, _, _ in MODULES:
        if name in own:
            np.testing.assert_allclose(read.delta(name), weights.delta(name), rtol=1e-6)
        else:
            assert not read.delta(name).any()


def test_a_portable_config_asks_for_nothing_that_servers_do_not_read(tmp_path: Path) -> None:
    weights = adapter(MODULES[0], rank=3, scaling=1.7)
    write_portable(tmp_path, weights, modules=MODULES, base_model="host")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["k_proj", "q_proj", "v_proj"]
    assert config["layers_to_transform"] == [0]
    assert config["lora_alpha"] == pytest.approx(3 * 1.7)
    assert config["use_rslora"] is False
    assert not config["rank_pattern"]
    assert not config["alpha_pattern"]
    assert config["bias"] == "none"


def test_groups_are_whole_in_every_layer_that_has_an_adapter() -> None:
    layout = complete_layout(AdapterLayout((MODULES[1], MODULES[10])), MODULES)
    names = [name for name, _, _ in layout.modules]
    wanted = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    assert names == [f"model.layers.{layer}.part.{one}" for layer in (0, 1) for one in wanted]


def test_a_host_without_numbered_layers_is_refused(tmp_path: Path) -> None:
    module = ("transformer.h.0.attn.c_attn", 6, 6)
    with pytest.raises(AdapterError, match="Llama-like hosts alone"):
        write_portable(tmp_path, adapter(module), modules=(module,), base_model="host")
