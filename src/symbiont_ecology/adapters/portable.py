"""Adapters as every server reads them: a PEFT folder that asks for nothing unusual.

Servers read less of PEFT than PEFT writes. SGLang takes alpha ÷ r alone for the scaling, bare
endings alone for targets, and q, k and v together, since it holds them as one matrix; vLLM refuses
patterns, biases and whole modules. So the folder has one rank, the scaling within ``lora_alpha``,
bare endings, the numbers of the layers, and zeros for modules that complete a group. None of it
changes ΔW. PEFT: https://huggingface.co/docs/peft; vLLM: https://docs.vllm.ai; SGLang:
https://docs.sglang.ai.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.peft_files import write_peft
from symbiont_ecology.base.errors import AdapterError

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Endings of modules that servers hold as one matrix."""
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def write_portable(
    folder: str | Path,
    weights: AdapterWeights,
    *,
    modules: Sequence[tuple[str, int, int]],
    base_model: str,
    model_card: str = "",
) -> None:
    """Write an adapter so that PEFT, vLLM and SGLang load it.

    Args:
        folder: made when missing; an adapter already in it is replaced.
        weights: the adapter.
        modules: all linear modules of the host, ``(name, d_in, d_out)``.
        base_model: name or folder of the host.
        model_card: text of the README.

    Raises:
        AdapterError: the folder cannot be written, or the host's modules are in no numbered layers.
    """
    layout = complete_layout(weights.layout, modules)
    factors = {name: (a, b) for name, a, b in weights.factors()}
    for name, d_in, d_out in layout.modules:
        zeros = np.zeros((0, d_in), np.float32), np.zeros((d_out, 0), np.float32)
        factors.setdefault(name, zeros)
    completed = AdapterWeights.from_factors(layout, weights.rank, weights.scaling, factors)
    layers = {_layer(name) for name, _, _ in layout.modules}
    write_peft(folder, completed, base_model=base_model, layers=layers, model_card=model_card)


def complete_layout(
    layout: AdapterLayout, modules: Sequence[tuple[str, int, int]]
) -> AdapterLayout:
    """Return the layout with all that endings and layers alone would name, groups being whole.

    Raises:
        AdapterError: a module is in no numbered layer.
    """
    endings = {ending_of(name) for name, _, _ in layout.modules}
    for group in GROUPS:
        if endings & set(group):
            endings |= set(group)
    layers = {_layer(name) for name, _, _ in layout.modules}
    matches = (module for module in modules if ending_of(module[0]) in endings)
    return AdapterLayout(tuple(module for module in matches if _layer(module[0]) in layers))


def ending_of(module: str) -> str:
    """Return the last part of a module's name."""
    return module.rpartition(".")[2]


def _layer(module: str) -> int:
    match = _LAYER.search(module)
    if match is None:
        raise AdapterError(
            f"expected modules such as model.layers.0.self_attn.q_proj, got {module!r}: servers "
            "take adapters of Llama-like hosts alone"
        )
    return int(match[1])
