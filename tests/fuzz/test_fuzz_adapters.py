"""PEFT folders by mutation: the config as values and as text, the weights as bytes and by their
header."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mutations import Count, mutated, torn
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters import peft_files as peft

LAYOUT = AdapterLayout(
    (("model.layers.0.self_attn.q_proj", 4, 6), ("model.layers.1.mlp.down_proj", 8, 4))
)


@pytest.mark.filterwarnings("ignore::symbiont_ecology.base.errors.EcologyWarning")
@pytest.mark.parametrize("is_of_mlx", [False, True], ids=["PEFT", "mlx"])
def test_an_adapter_of_any_kind_is_read_or_refused_in_one_line(
    is_of_mlx: bool, cases: int, tmp_path: Path
) -> None:
    weights = AdapterWeights.random(LAYOUT, 2, 1.5, np.random.default_rng(0), b_std=1.0)
    peft.write_peft(tmp_path, weights, base_model="host")
    config_file, weights_file = tmp_path / peft.PEFT_CONFIG_FILE, tmp_path / peft.WEIGHTS_FILE
    config: Any = json.loads(config_file.read_text())
    config |= {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {r"layers\.1.*": 3.0}}
    if is_of_mlx:
        config = {"model": "a/b", "lora_parameters": {"rank": 2, "scale": 1.5, "alpha": 2}}
        tensors = {f"{name}.lora_a": a.T.copy() for name, a, _ in weights.factors()}
        tensors |= {f"{name}.lora_b": b.T.copy() for name, _, b in weights.factors()}
        weights_file = tmp_path / peft.MLX_WEIGHTS_FILE
        save_file(tensors, weights_file)
    data = weights_file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header: Any = json.loads(data[8 : 8 + size])

    def case(generator: np.random.Generator) -> None:
        text, tensors = json.dumps(config).encode(), data
        match int(generator.integers(4)):
            case 0:
                text = json.dumps(mutated(config, generator)).encode()
            case 1:
                text = torn(text, generator)
            case 2:
                tensors = torn(data, generator)
            case _:
                changed = json.dumps(mutated(header, generator)).encode()
                tensors = len(changed).to_bytes(8, "little") + changed + data[8 + size :]
        config_file.write_bytes(text)
        weights_file.write_bytes(tensors)
        read = peft.read_peft(tmp_path, LAYOUT)
        assert np.isfinite(read.vector).all()
        assert np.isfinite(read.scaling)
        for module, _, _ in LAYOUT.modules:
            assert np.isfinite(read.delta(module)).all()
        assert peft.adapter_modules(tmp_path)
        assert 1 <= peft.stated_rank(tmp_path) <= 4096
        peft.warn_of_base(tmp_path, f"org/{generator.random()}-1B")

    Count("adapters").run(cases, case)


def test_any_pattern_is_matched_or_refused_at_once(cases: int, tmp_path: Path) -> None:
    weights = AdapterWeights.random(LAYOUT, 2, 1.5, np.random.default_rng(0), b_std=1.0)
    peft.write_peft(tmp_path, weights, base_model="host")
    config_file = tmp_path / peft.PEFT_CONFIG_FILE
    config: Any = json.loads(config_file.read_text())
    pieces = re.findall(r"\S+", r"(a+)+ .? (.*)* x{1,1000} [a-z]* q_proj \d (?=x) ( ^ |")

    def case(generator: np.random.Generator) -> None:
        drawn = generator.choice(pieces, size=int(generator.geometric(0.2)))
        config["rank_pattern"] = {"".join(drawn): 2}
        config_file.write_text(json.dumps(config))
        peft.read_peft(tmp_path, LAYOUT)

    Count("patterns").run(cases, case)
