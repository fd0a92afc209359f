"""A host that somebody damaged, or that no machine can hold: one line of error, and soon."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from damage import WEIGHTS
from said import Symbiont
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

SOON = 5.0
"""Seconds of a command in this process, on a busy machine."""


@pytest.fixture
def copied_host(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "m"))


def refused(symbiont: Symbiont, *words: object) -> str:
    """The one line with which a command ends, soon and with status 2."""
    began = time.monotonic()
    said = symbiont(*words)
    assert said.code == 2
    assert time.monotonic() - began < SOON
    assert len(said.error) < 1000
    return said.error


@pytest.mark.parametrize("key", ["num_key_value_heads", "num_hidden_layers", "head_dim"])
@pytest.mark.parametrize("number", [0, 1, 10**9])
def test_a_config_of_other_sizes_is_one_line(
    symbiont: Symbiont, copied_host: Path, tmp_path: Path, key: str, number: int
) -> None:
    path = copied_host / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: number, "layer_types": None}))
    run = ("run", "demo", f"host.model={copied_host}", "--out", tmp_path / "run")
    if (key, number) == ("num_hidden_layers", 1):  # the first layer of the same host
        assert symbiont(*run, "run.generations=1", "--quiet").code == 0
    else:
        assert "expected" in refused(symbiont, *run)
    if number != 1:
        assert symbiont("doctor", "--host", copied_host).code == 1


@pytest.mark.parametrize("length", [0, 1, 64])
def test_a_norm_of_another_length_is_one_line(
    symbiont: Symbiont, copied_host: Path, tmp_path: Path, length: int
) -> None:
    tensors = load_file(copied_host / WEIGHTS)
    tensors["model.norm.weight"] = np.ones(length, dtype=np.float32)
    save_file(tensors, copied_host / WEIGHTS)
    run = ("run", "demo", f"host.model={copied_host}", "--out", tmp_path / "run")
    assert "model.norm.weight" in refused(symbiont, *run)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("host.device=meta", "device"),
        ("host.slots=1000000000", "host.slots"),
        ("host.slots=18446744073709551616", "host.slots"),
        ("host.threads=1000000", "host.threads"),
        ("host.threads=9223372036854775808", "host.threads"),
        ("host.model=" + "m" * 10_000, "host model folder"),
        ("host.model=m/" + "m" * 10_000, "Hugging Face hub"),
    ],
    ids=lambda text: text[:24],
)
def test_what_no_machine_has_is_one_line(
    symbiont: Symbiont, tmp_path: Path, override: str, says: str
) -> None:
    assert says in refused(symbiont, "run", "demo", override, "--out", tmp_path / "run")
