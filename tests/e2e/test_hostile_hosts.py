"""A host that somebody damaged, or that no machine can hold: one line of error, and soon."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

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
