"""Tiny hosts for the contract tests, made once per session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from company import RANKS, Company
from hosts import KINDS, make_host, random_weights
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER


@pytest.fixture(scope="session")
def host_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random host of every kind, and the one that ships: folder by kind."""
    torch.set_num_threads(1)
    made = {kind: make_host(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
    return made | {"embedded": EMBEDDED_FOLDER}


@pytest.fixture(scope="session", params=["qwen3", "qwen3 wrapped", "gpt2", "embedded"])
def company(
    request: pytest.FixtureRequest,
    host_folders: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Company:
    kind, is_wrapped = request.param.split()[0], "wrapped" in request.param
    folder = host_folders[kind]
    kernel = HostKernel.from_pretrained(folder, slots=6, rank=8, prefer_fused=not is_wrapped)
    adapters = tuple(random_weights(kernel.layout, slot, rank) for slot, rank in enumerate(RANKS))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    peft = None
    for slot, weights in enumerate(adapters):
        kernel.place(slot, weights)
        out = tmp_path_factory.mktemp("exported")
        kernel.export(slot, out)
        if peft is None:
            peft = PeftModel.from_pretrained(model, out, adapter_name=str(slot))
        else:
            peft.load_adapter(out, adapter_name=str(slot))
    assert peft is not None
    return Company(kernel, adapters, peft.eval(), AutoTokenizer.from_pretrained(folder))
