from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, PreTrainedModel

from hosts import KINDS, make_host
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

ARCHITECTURES = (*KINDS, "embedded")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, HostShape]:
    """A model as transformers runs it, and the shape that our kernel reads from its folder."""
    folder = EMBEDDED_FOLDER
    if request.param != "embedded":
        folder = make_host(tmp_path_factory.mktemp("flops") / "host", request.param)
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="sdpa", dtype=torch.float32
    )
    return model, HostKernel.from_pretrained(folder, slots=1, rank=1).shape


def tokens(count: int) -> torch.Tensor:
    return torch.randint(3, 250, (1, count))


def counted(model: PreTrainedModel, prompt: int, completion: int, *, backward: bool = False) -> int:
    """FLOPs that torch counts, with the LM head on the completion alone, whose last token is not
    read."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = model(
            tokens(prompt + completion - 1), logits_to_keep=completion, use_cache=False
        ).logits
        if backward:
            logits.logsumexp(-1).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("prompt", "completion"), [(40, 8), (200, 1)])
def test_a_forward_pass_costs_what_torch_counts(
    host: tuple[PreTrainedModel, HostShape], prompt: int, completion: int
) -> None:
    model, shape = host
    with torch.no_grad():
        assert shape.scoring_flops(0, prompt, completion) == pytest.approx(
            counted(model, prompt, completion), rel=0.01
        )


def test_an_update_through_lora_costs_what_torch_counts(
    host: tuple[PreTrainedModel, HostShape],
) -> None:
    model, shape = host
    modules = ["c_attn", "c_proj", "c_fc"] if model.config.model_type == "gpt2" else "all-linear"
    lora_config = LoraConfig(r=4, target_modules=modules, exclude_modules=["lm_head"])
    adapted = get_peft_model(deepcopy(model), lora_config)
    lora = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert shape.scoring_flops(lora, 40, 8) == pytest.approx(counted(adapted, 40, 8), rel=0.01)
    assert shape.learning_flops(lora, 40, 8) == pytest.approx(
        counted(adapted, 40, 8, backward=True), rel=0.01
    )


def test_a_rollout_with_a_cache_costs_what_torch_counts(
    host: tuple[PreTrainedModel, HostShape],
) -> None:
    model, shape = host
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        cache = model(tokens(30), logits_to_keep=1, use_cache=True).past_key_values
        for _ in range(5):
            cache = model(tokens(1), past_key_values=cache, use_cache=True).past_key_values
    assert shape.rollout_flops(0, 30, 6) == pytest.approx(counter.get_total_flops(), rel=0.01)
