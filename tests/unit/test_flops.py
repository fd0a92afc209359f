from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from symbiont_ecology.economics.flops import forward_flops, learning_flops, rollout_flops, scoring_flops
from symbiont_ecology.host.shape import HostShape

QWEN3 = HostShape(
    layers=3,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    feed_forward=160,
    vocab=500,
    max_positions=1024,
    linear_parameters=64 * 32 * (4 + 2 + 2) + 128 * 64 + 3 * 64 * 160,
    parameters=0,  # costs nothing: only weights that are multiplied count
)
GPT2 = replace(QWEN3, kv_heads=4, head_dim=16, feed_forward=256, linear_parameters=12 * 64 * 64)


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            vocab_size=500,
            attn_implementation="sdpa",
        )
    )


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=500, attn_implementation="sdpa")
    )


HOSTS = {"qwen3": (qwen3, QWEN3), "gpt2": (gpt2, GPT2)}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, HostShape]:
    build, shape = HOSTS[request.param]
    return build(), shape


def tokens(count: int) -> torch.Tensor:
    return torch.randint(0, 500, (1, count))


def counted(model: PreTrainedModel, prompt: int, completion: int, *, backward: bool = False) -> int:
    """FLOPs that torch counts, with the LM head on the completion alone."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = model(tokens(prompt + completion), logits_to_keep=completion, use_cache=False).logits
        if backward:
            logits.logsumexp(-1).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("prompt", "completion"), [(40, 8), (200, 1)])
def test_a_forward_pass_costs_what_torch_counts(
    host: tuple[PreTrainedModel, HostShape], prompt: int, completion: int
) -> None:
    model, shape = host
    with torch.no_grad():
        assert scoring_flops(shape, 0, prompt, completion) == pytest.approx(
            counted(model, prompt, completion), rel=0.01
        )


def test_an_update_through_lora_costs_what_torch_counts(host: tuple[PreTrainedModel, HostShape]) -> None:
    model, shape = host
    modules = "all-linear" if shape is QWEN3 else ["c_attn", "c_proj", "c_fc"]
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=modules, exclude_modules=["lm_head"]))
    lora = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert scoring_flops(shape, lora, 40, 8) == pytest.approx(counted(adapted, 40, 8), rel=0.01)
    assert learning_flops(shape, lora, 40, 8) == pytest.approx(
        counted(adapted, 40, 8, backward=True), rel=0.01
    )


def test_a_rollout_with_a_cache_costs_what_torch_counts(host: tuple[PreTrainedModel, HostShape]) -> None:
    model, shape = host
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        cache = model(tokens(30), logits_to_keep=1, use_cache=True).past_key_values
        for _ in range(5):
            cache = model(tokens(1), past_key_values=cache, use_cache=True).past_key_values
    assert rollout_flops(shape, 0, 30, 6) == pytest.approx(counter.get_total_flops(), rel=0.01)


COUNT = st.integers(0, 300)


@given(COUNT, st.integers(1, 50), COUNT)
def test_a_rollout_is_its_passes_one_by_one(prompt: int, new: int, lora: int) -> None:
    passes = [forward_flops(QWEN3, lora, prompt, head_positions=1)]
    passes += [
        forward_flops(QWEN3, lora, 1, context=prompt + done, head_positions=1) for done in range(new - 1)
    ]
    assert rollout_flops(QWEN3, lora, prompt, new) == sum(passes)
    assert rollout_flops(QWEN3, lora, prompt, 0) == forward_flops(QWEN3, lora, prompt)
