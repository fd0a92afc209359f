"""Fixtures of tests that type commands: a whole host, real files, the real exit code."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from hosts import make_host
from killing import COMMAND
from said import Said, Symbiont
from seen import eventful_plan, lived_to_its_end, users_plan, with_hostile_replies
from symbiont_ecology import cli
from tiny import TINY

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random host: it answers rubbish, but everything runs."""
    return make_host(tmp_path_factory.mktemp("host"), layers=2)


@pytest.fixture(scope="session")
def small(host: Path) -> list[str]:
    """Overrides that make the demo a matter of a second."""
    return [
        f"host.model={host}",
        "host.rank=1",
        "host.targets=[q_proj,v_proj]",
        "tasks.families=[math.add,word.count]",
        "tasks.depths=[short]",
        "strategy.questions=2",
        "run.generations=4",
        "run.checkpoint_every=1",
    ]


@pytest.fixture(scope="session")
def lived(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of four generations; copy it before changing it."""
    folder = tmp_path_factory.mktemp("lived") / "run"
    subprocess.run([*COMMAND, "run", "steady", *small, "--out", folder, "-q"], check=True)
    return folder


@pytest.fixture
def copied(lived: Path, tmp_path: Path) -> Path:
    """The complete run, to be changed."""
    return Path(shutil.copytree(lived, tmp_path / "run"))


@pytest.fixture
def holdout(tmp_path: Path) -> Path:
    """Two questions in a file that somebody else wrote."""
    path = tmp_path / "holdout.jsonl"
    rows = [
        {
            "prompt": "math.add: 12+7\n",
            "target": "=19",
            "family": "math.add",
            "depth": "short",
            "task_id": "a",
        },
        {"prompt": "capital of France?\n", "target": "Paris", "family": "trivia", "depth": "short"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protocol") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def suite(protocol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete suite, run once, however many processes test."""
    mine = tmp_path_factory.getbasetemp()
    place = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    with FileLock(place / "suite.lock"):
        if not (place / "suite-is-complete").exists():
            words = ["suite", protocol, "--out", place / "suite", "--workers", "2"]
            subprocess.run([*COMMAND, *words], check=True)
            (place / "suite-is-complete").touch()
    return Path(shutil.copytree(place / "suite", mine / "whole-suite"))


@pytest.fixture
def symbiont(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Symbiont:
    """Types a command."""

    def type_in(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["symbiont", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return type_in


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Symbiont:
    """Runs a script in this process."""

    def type_in(name: str, *words: object) -> Said:
        monkeypatch.syspath_prepend(SCRIPTS)
        monkeypatch.setattr(sys, "argv", [f"scripts/{name}.py", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return type_in


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by what is to be seen in them."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "eventful": lived_to_its_end(folder / "eventful", eventful_plan()),
        "users": with_hostile_replies(lived_to_its_end(folder / "users", users_plan())),
        "single": lived_to_its_end(folder / "single", users_plan({"kind": "single"})),
        "begun": lived_to_its_end(folder / "begun", users_plan(generations=0)),
    }
