"""Every command that writes is killed: some here, all of them by ``benchmarks/kills.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from killed_commands import COMMANDS, NOT_KILLED, READERS
from symbiont_ecology.cli import app

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kills.py"
QUICK = (*("data", "datasets convert", "evaluate", "export", "infer", "phylogeny"), "verify")
"""Commands that no other test kills, and that are quick."""


def commands(group: TyperGroup, above: str = "") -> Iterator[str]:
    """The commands of the command line, such as ``host get``."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{name} ")
        else:
            yield above + name


def test_every_command_is_killed_or_writes_nothing_or_is_left_out_for_a_reason() -> None:
    killed = {name.partition(",")[0] for name in COMMANDS}
    tables = [killed, set(READERS), set(NOT_KILLED)]
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert set.union(*tables) == set(commands(group))
    assert sum(map(len, tables)) == len(set.union(*tables)), "a command is in two tables"
    assert all(NOT_KILLED.values())


def test_the_table_types_the_commands_that_it_names() -> None:
    for name, command in {**COMMANDS, **READERS}.items():
        for is_begun in (False, True):
            words = command.typed(is_begun=is_begun)
            going_on = "resume" if is_begun and command.again.startswith("resume") else name
            assert " ".join(words).startswith(going_on.partition(",")[0])


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """What came of a kill or two of each quick command, and of commands that only read."""
    file = tmp_path_factory.mktemp("kills") / "kills.json"
    command = [sys.executable, str(SCRIPT), "--kills", "1", "--only", *QUICK, "--readers"]
    done = subprocess.run([*command, "--json", file], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    counts: dict[str, dict[str, int]] = json.loads(file.read_text())["commands"]
    return counts


def test_who_is_killed_and_types_the_command_again_has_the_same_bytes(
    figures: dict[str, dict[str, int]],
) -> None:
    for name in QUICK:
        assert figures[name]["kills"] >= 1, name
        assert figures[name]["clean"] == figures[name]["kills"], name
        assert figures[name]["writes"] > 0, name


def test_commands_that_read_write_nothing(figures: dict[str, dict[str, int]]) -> None:
    assert {name: figures[name]["writes"] for name in READERS} == dict.fromkeys(READERS, 0)
