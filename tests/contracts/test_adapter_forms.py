"""Adapters in the forms in which they are published, each against PEFT on the same host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hosts import PROMPTS, make_host
from symbiont_ecology.adapters.peft_files import MLX_WEIGHTS_FILE, PEFT_CONFIG_FILE, WEIGHTS_FILE
from symbiont_ecology.model.kernel import HostKernel

Tensors = dict[str, torch.Tensor]
SAID = [(70, 71, 72)] * len(PROMPTS)
WHOLE: dict[str, Any] = {"r": 4, "lora_alpha": 6, "target_modules": "all-linear"}
STEM = "base_model.model."


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> HostKernel:
    folder = make_host(tmp_path_factory.mktemp("forms"), layers=3)
    return HostKernel.from_pretrained(folder, slots=1, rank=8)


def scores_of_peft(
    kernel: HostKernel, config: Mapping[str, Any], folder: Path
) -> list[torch.Tensor]:
    """Write a random adapter with PEFT, and return the log-probabilities that it gives there."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(kernel.name_or_path, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(init_lora_weights=False, **config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:  # bfloat16 and float16 hold them, too
                parameter.copy_((parameter * 0.3).to(torch.bfloat16).clamp(-2, 2))
    model.save_pretrained(folder)
    scores = []
    for head, tail in zip(kernel.encode(PROMPTS), SAID, strict=True):
        ids = torch.tensor([[*map(int, head), *tail]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, len(head) - 1 : -1]
        scores.append(logits.log_softmax(-1).gather(1, ids[0, len(head) :, None])[:, 0])
    return scores


def named(tensors: Tensors) -> Tensors:
    return {key.replace(".weight", ".default.weight"): one for key, one in tensors.items()}


def without_stem(tensors: Tensors) -> Tensors:
    return {key.removeprefix(STEM): one for key, one in tensors.items()}


def compiled(tensors: Tensors) -> Tensors:
    return {f"_orig_mod.{key}".replace(".mlp.", "._fsdp_wrapped_module.mlp."): one
            for key, one in tensors.items()}  # fmt: skip


def of_a_model_that_sees(tensors: Tensors) -> Tensors:
    return {key.replace("model.layers", "model.language_model.layers"): one
            for key, one in tensors.items()}  # fmt: skip


def of_a_text_model_alone(tensors: Tensors) -> Tensors:
    return {key.replace("model.model.layers", "model.layers"): one for key, one in tensors.items()}


def in_bfloat16(tensors: Tensors) -> Tensors:
    return {key: one.to(torch.bfloat16) for key, one in tensors.items()}


def in_float16(tensors: Tensors) -> Tensors:
    return {key: one.to(torch.float16) for key, one in tensors.items()}


@pytest.mark.parametrize(
    ("config", "form"),
    [
        (WHOLE, dict),
        (WHOLE, named),
        (WHOLE, without_stem),
        (WHOLE, lambda tensors: named(without_stem(tensors))),
        (WHOLE, compiled),
        (WHOLE, of_a_model_that_sees),
        (WHOLE, of_a_text_model_alone),
        (WHOLE, in_bfloat16),
        (WHOLE, in_float16),
        (WHOLE | {"use_rslora": True}, dict),
        (WHOLE | {"lora_alpha": 5.5, "target_modules": ["q_proj", "down_proj"]}, dict),
        (WHOLE | {"target_modules": r".*\.[02]\..*(q|v)_proj"}, dict),
        (WHOLE | {"target_modules": ["k_proj"], "layers_to_transform": [1]}, dict),
        (
            WHOLE
            | {
                "rank_pattern": {r"layers\.1\..*_proj": 8, "^model.layers.0.mlp.up_proj": 2},
                "alpha_pattern": {"down_proj": 1, r".*\.[qk]_proj": 9},
                "use_rslora": True,
            },
            named,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_adapter_of_any_form_answers_as_on_peft(
    kernel: HostKernel, config: dict[str, Any], form: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    expected = scores_of_peft(kernel, config, tmp_path)
    path = tmp_path / WEIGHTS_FILE
    save_file(form(load_file(path)), path, metadata={"format": "pt", "made_by": "somebody"})
    config_file = tmp_path / PEFT_CONFIG_FILE
    more = {"peft_version": "9.9", "a_field_to_come": {"x": None}, "qalora_group_size": 16}
    config_file.write_text(json.dumps(json.loads(config_file.read_text()) | more))
    assert_equal(kernel, tmp_path, expected)


@pytest.mark.parametrize("words", [{"fine_tune_type": "lora"}, {}], ids=["new", "old"])
def test_an_adapter_of_mlx_answers_as_its_twin_on_peft(
    kernel: HostKernel, words: dict[str, Any], tmp_path: Path
) -> None:
    chosen = {**WHOLE, "target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1, 2]}
    expected = scores_of_peft(kernel, chosen, tmp_path / "peft")
    tensors = {
        key.removeprefix(STEM).replace(".weight", "").replace("_A", "_a").replace("_B", "_b"): one
        for key, one in load_file(tmp_path / "peft" / WEIGHTS_FILE).items()
    }
    folder = tmp_path / "mlx"
    folder.mkdir()
    save_file({key: one.T.contiguous() for key, one in tensors.items()}, folder / MLX_WEIGHTS_FILE)
    # mlx-lm has paid no heed to alpha since it writes fine_tune_type
    alpha = {"alpha": 16} if words else {}
    parameters = {"rank": 4, "scale": 1.5, "dropout": 0.0, "keys": ["mlp.down_proj"], **alpha}
    usual = {"model": "mlx-community/a-model", "num_layers": 2, "lora_parameters": parameters}
    (folder / PEFT_CONFIG_FILE).write_text(json.dumps(usual | words))
    assert_equal(kernel, folder, expected)


def assert_equal(kernel: HostKernel, folder: Path, expected: list[torch.Tensor]) -> None:
    bare = kernel.score(PROMPTS, SAID, -1)
    slot = kernel.attach(folder)
    found = kernel.score(PROMPTS, SAID, slot)
    kernel.detach(slot)
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=0, atol=1e-5)
    assert (torch.cat(found) - torch.cat(bare)).abs().max() > 0.01
