"""The core works alone: with the folder of extensions removed, replies and files are the same."""

from __future__ import annotations

import json
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


TYPED = """
import contextlib, io, json, sys
from symbiont_ecology.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv[1:], said = words, io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main()
    except SystemExit as end:
        if end.code:
            raise
    if words[0] == "infer":
        sys.stdout.write(said.getvalue())
"""
"""Types all commands in one process, and prints the reply of ``infer``."""


def product_path(home: Path, without: str) -> dict[str, bytes]:
    """Type the commands with a copy of the package, and return what they wrote and replied."""
    copy = home / "symbiont_ecology"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE.parents[1] / "config", copy / "presets")
    shutil.rmtree(copy / without)
    environment = {**os.environ, "PYTHONPATH": str(home)}
    call = [sys.executable, "-c", TYPED, json.dumps(COMMANDS)]
    done = subprocess.run(call, cwd=home, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
    found = {"infer": done.stdout}
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
