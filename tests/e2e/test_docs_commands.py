"""Every command in README and docs is one that exists, with options and configs that exist; those
that take seconds are typed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hosts import random_weights
from killing import COMMAND
from said import Symbiont
from symbiont_ecology import load_config
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.cli import app
from symbiont_ecology.model.kernel import HostKernel
from typed import PAGES, ROOT, commands_in, fenced, shortened

COMMANDS: Any = typer.main.get_command(app)
HAVE_CONFIG = ("run", "calibrate", "look", "sft")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
TYPED = [page for page in PAGES if any(not one.reason for one in commands_in(page))]


def check(words: list[str]) -> None:
    """Raises where a command of ``symbiont`` could not be typed: no such command or option, or no
    such config."""
    command = COMMANDS
    while hasattr(command, "commands") and words:
        command, words = command.commands[words[0]], words[1:]
    if command.context_settings.get("ignore_unknown_options"):  # they are another program's
        return
    context = command.make_context(command.name, list(words))
    name, changes = context.params.get("config"), context.params.get("overrides") or ()
    if name and context.info_name in HAVE_CONFIG:
        load_config(name, changes, runs_plugins=False)


@every_page
def test_every_command_exists_with_its_options_and_its_config(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(page.parent if page.parent.name == "examples" else ROOT)
    for typed in commands_in(page):
        words = typed.words[1:]
        if typed.words[:1] == ["symbiont"] and words and words[0][0] != "-":
            check(words)


@pytest.fixture(scope="module")
def second(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that is ``lived``, with another seed."""
    folder = tmp_path_factory.mktemp("second") / "run"
    subprocess.run([*COMMAND, "run", "steady", *small, "seed=2", "--out", folder, "-q"], check=True)
    return folder


@pytest.fixture
def desk(
    host: Path, lived: Path, second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder where what pages call LOG.jsonl, FOLDER, path/to/model and so on is there."""
    for name in ("artifacts/comparison-1", "data", "path/to"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("DIR", "artifacts/a", "artifacts/steady-1", "artifacts/comparison-1/ecology"):
        shutil.copytree(lived, tmp_path / name)
    for name in ("artifacts/b", "artifacts/steady-2"):
        shutil.copytree(second, tmp_path / name)
    for name in ("MODEL", "path/to/model"):
        (tmp_path / name).symlink_to(host)
    (tmp_path / "path/to/config.json").symlink_to(host / "config.json")
    log = find_data(Path("logs/thumbs.jsonl")).read_text().splitlines()[:360]
    for name in ("LOG.jsonl", "log.jsonl"):
        (tmp_path / name).write_text("\n".join(log) + "\n")
    stars = (f"u{n % 6},math.add: {n}+1,{n + 1},{n % 5 + 1}" for n in range(120))
    (tmp_path / "stars.csv").write_text("\n".join(["user,prompt,reply,stars", *stars]) + "\n")
    capitals = [
        json.dumps(json.loads(line) | {"family": "trivia", "depth": "short"})
        for line in (ROOT / "examples" / "capitals.jsonl").read_text().splitlines()
    ]
    for name, lines in {"test": capitals[:9], "train": capitals[9:], "trivia": capitals}.items():
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=2)
    kernel.place(0, random_weights(kernel.layout, seed=1, rank=2))
    kernel.export(0, tmp_path / "FOLDER")
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_commands_of_a_page_that_take_seconds_are_typed(
    page: Path, symbiont: Symbiont, host: Path, lived: Path, desk: Path
) -> None:
    if page.stem != "README":  # whose own commands make it
        shutil.copytree(lived, desk / "artifacts" / "demo-1")
    wrong = []
    for typed in commands_in(page):
        if not typed.reason and typed.words:
            said = symbiont(*shortened(typed.words[1:], host))
            wrong += [f"{typed.line}: {said.err.strip()[-300:]}"] if said.code else []
    assert wrong == []


def test_the_snippets_of_other_pages_run(
    host: Path, lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = HostKernel.from_pretrained(host, slots=1, rank=2)
    for seed, name in enumerate(("first", "second", "my-adapter")):
        kernel.place(0, random_weights(kernel.layout, seed=seed, rank=2))
        kernel.export(0, name)
    swapped = {'"embedded"': repr(str(host)), '"artifacts/demo-1"': repr(str(lived))}
    for name in ("coming-from", "evoscope", "hosts", "methods"):
        for block in fenced(ROOT / "docs" / f"{name}.md", "python"):
            if "from trl" in block:  # no dependency; tests/extensions/bridges has it
                continue
            for before, after in swapped.items():
                block = block.replace(before, after)
            exec(block, {})
    assert Path("merged/adapter_model.safetensors").is_file()
    assert list(Path("figures").glob("*.png"))
