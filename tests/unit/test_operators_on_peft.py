"""Operators against the merges of PEFT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hosts import make_host
from parents import deltas, is_close, merged, mixed, parent
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.peft_files import write_peft

Peft = tuple[list[AdapterWeights], Callable[..., dict[str, np.ndarray]]]


@pytest.fixture(scope="module")
def on_peft(tmp_path_factory: pytest.TempPathFactory) -> Peft:
    """Two adapters of unequal rank and scaling on a small Llama, and what PEFT makes of them."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("merging")
    make_host(folder / "host", "llama", layers=1, hidden_size=32, intermediate_size=48, head_dim=8)
    model = AutoModelForCausalLM.from_pretrained(folder / "host")
    layout = AdapterLayout(
        tuple(
            (name, module.in_features, module.out_features)
            for name, module in model.named_modules()
            if name.endswith(("q_proj", "down_proj"))
        )
    )
    parents = [parent(0, 2, 2.0, layout=layout), parent(1, 5, 0.5, layout=layout)]
    for name, one in zip("ab", parents, strict=True):
        write_peft(folder / name, one, base_model="host")
    hosted = PeftModel.from_pretrained(model, folder / "a", adapter_name="a")
    hosted.load_adapter(folder / "b", adapter_name="b")

    def add(
        kind: str, weights: list[float], adapters: str = "ab", **knobs: Any
    ) -> dict[str, np.ndarray]:
        torch.manual_seed(knobs.pop("seed", 0))
        hosted.add_weighted_adapter(
            list(adapters), weights, "merged", combination_type=kind, **knobs
        )
        made = {
            name: hosted.get_submodule(f"base_model.model.{name}").get_delta_weight("merged")
            for name, _, _ in layout.modules
        }
        hosted.delete_adapter("merged")
        return {name: delta.detach().double().numpy() for name, delta in made.items()}

    return parents, add


def test_peft_agrees_where_it_is_exact(on_peft: Peft) -> None:
    parents, add = on_peft
    assert is_close(merged("concatenation", parents, decay=1.0), add("cat", [0.5, 0.5]))
    assert is_close(merged("concatenation", parents, decay=0.0), add("cat", [1.0, 1.0]))
    assert is_close(merged("svd", parents), add("svd", [0.5, 0.5]))
    assert is_close(merged("ties", parents, density=0.3), add("ties_svd", [1.0, 1.0], density=0.3))
    assert is_close(
        merged("dare", parents, density=1.0), add("dare_linear_svd", [0.5, 0.5], density=1.0)
    )


def test_peft_drops_elements_as_often_as_dare_and_rescales_them_alike(on_peft: Peft) -> None:
    """Its draws are others: compared are means and spreads over many."""
    parents, add = on_peft
    rank = {"svd_rank": 32}  # nothing is cut
    theirs = [
        add("dare_linear_svd", [0.5, 0.5], density=0.5, seed=seed, **rank) for seed in range(60)
    ]
    ours = mixed(parents, (0.5, 0.5))
    for name in ours:
        drawn = np.stack([one[name] for one in theirs])
        spread = (
            np.sqrt(sum(deltas(one)[name] ** 2 for one in parents)) / 2
        )  # of kept / density, halved
        assert (drawn.mean(axis=0) - ours[name]).std() == pytest.approx(
            np.sqrt(np.mean(spread**2) / 60), rel=0.2
        )
        assert np.sqrt(drawn.var(axis=0).mean()) == pytest.approx(
            np.sqrt(np.mean(spread**2)), rel=0.1
        )


def test_peft_linear_averages_factors_and_so_is_far_from_a_mean(on_peft: Peft) -> None:
    """It needs equal ranks, and makes an adapter's double of two halves of it."""
    parents, add = on_peft
    with pytest.raises(ValueError, match="same r"):
        add("linear", [0.5, 0.5])
    one = parents[0]
    assert is_close(merged("concatenation", [one, one], decay=1.0), deltas(one))
    assert is_close(
        merged("concatenation", [one, one], decay=0.0), add("linear", [0.5, 0.5], adapters="aa")
    )
