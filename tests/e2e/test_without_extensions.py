"""The core works alone: with the folder of extensions removed, replies and files are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import symbiont_ecology

PACKAGE = Path(symbiont_ecology.__file__).parent
RUN_FILES = ("events.jsonl", "transcripts.jsonl", "state.json")
COMMANDS = (
    ("run", "demo", "run.generations=3", "run.checkpoint_every=2", "--out", "run"),
    ("resume", "run", "run.generations=4"),
    ("infer", "run", "math.add: 47+8", "--user", "h03"),
    ("export", "run", "--to", "adapters"),
    ("evaluate", "run", "--per-cell", "2", "--json", "result.json"),
)


def product_path(home: Path, without: str) -> dict[str, bytes]:
    """Type the commands with a copy of the package, and return what they wrote and replied."""
    copy = home / "symbiont_ecology"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE.parents[1] / "config", copy / "presets")
    shutil.rmtree(copy / without)
    environment = {**os.environ, "PYTHONPATH": str(home)}
    found = {}
    for words in COMMANDS:
        call = [sys.executable, "-m", "symbiont_ecology", *words]
        done = subprocess.run(call, cwd=home, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        found[words[0]] = done.stdout if words[0] == "infer" else b""
    found |= {name: (home / "run" / name).read_bytes() for name in RUN_FILES}
    found["result.json"] = (home / "result.json").read_bytes()
    for path in sorted(home.glob("adapters/*/*.safetensors")):
        found[path.relative_to(home).as_posix()] = path.read_bytes()
    return found


def test_the_core_gives_the_same_replies_without_extensions(tmp_path: Path) -> None:
    if not (PACKAGE.parents[1] / "config").is_dir():
        pytest.skip("needs a source checkout")
    whole = product_path(tmp_path / "whole", "extensions/native")  # torch computes in both
    core = product_path(tmp_path / "core", "extensions")
    assert core.keys() == whole.keys()
    assert [name for name in core if core[name] != whole[name]] == []
    assert any(name.startswith("adapters/") for name in core)
