"""Fixtures for words typed at the command line: a whole host, real files, the real exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hosts import make_host
from killing import COMMAND
from said import Said, Symbiont
from symbiont_ecology import cli


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
