"""Every command in README and docs is one that exists, with options and configs that exist; those
that take seconds are typed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from hosts import random_weights
from killing import COMMAND
from said import Symbiont
from symbiont_ecology import load_config
from symbiont_ecology.base.shipped import find_data, presets
from symbiont_ecology.cli import app
from symbiont_ecology.extensions.study.protocol import load_protocol
from symbiont_ecology.model.kernel import HostKernel
from typed import PAGES, ROOT, Typed, commands_in, fenced, shortened

COMMANDS: Any = typer.main.get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ELSEWHERE = {"ray", "tensorboard", "vllm", "export", "grep", "mutmut"}
"""Programs that are not ours."""
HAVE_CONFIG = ("run", "calibrate", "look", "sft")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
TYPED = [
    page for page in PAGES if any(one.is_whole and not one.reason for one in commands_in(page))
]


def check(typed: Typed) -> None:
    """Raises, or fails, where a command could not be typed."""
    match typed.words:
        case ["symbiont"]:
            return
        case ["symbiont", option] if option.startswith("-"):
            assert option in {name for parameter in COMMANDS.params for name in parameter.opts}
        case ["symbiont", *words]:
            check_ours(words, is_whole=typed.is_whole)
        case ["make", *words]:
            for word in words:
                name, sign, _ = word.partition("=")
                assert re.search(rf"^{name}\b" if sign else rf"^{name}:", MAKEFILE, re.M), word
        case ["python", "-m", "pytest", place, *_]:
            assert (ROOT / place).exists()
        case ["python", "-m", *_]:
            return
        case ["python", "scripts/sanitize.py", place, *_]:  # and options of pytest
            assert (ROOT / place).exists()
        case ["python", script, *words]:
            files = script, "scripts/original.toml", "benchmarks/timing.py"
            known = "".join((ROOT / file).read_text() for file in files)
            assert all(f'"{word}"' in known for word in words if word.startswith("--")), words
        case ["pip", "install", "uv"] | ["uv", "pip", "install", *_, "symbiont-ecology"]:
            return
        case ["pip", "install", *words]:
            named = re.search(r"\[(.*)\]", words[-1])
            assert named
            assert set(named[1].split(",")) <= set(EXTRAS)
        case [program, *_]:
            assert program in ELSEWHERE


def check_ours(words: list[str], *, is_whole: bool) -> None:
    """Raises, or fails, where a command of ``symbiont`` could not be typed: no such command or
    option, or no such config."""
    command = COMMANDS
    while hasattr(command, "commands") and words and re.fullmatch(r"[a-z-]+", words[0]):
        assert words[0] in command.commands, f"symbiont {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    if command.context_settings.get("ignore_unknown_options"):  # they are another program's
        return
    if not is_whole:  # some words in a sentence
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if re.fullmatch(r"--[a-z-]+", word)} <= {*known, "--help"}
        if command.name == "run" and words and words[0].islower() and words[0][0] != "-":
            assert words[0] in presets() or words[0].endswith(".yaml")
        return
    context = command.make_context(command.name, list(words))
    name, changes = context.params.get("config"), context.params.get("overrides") or ()
    if context.info_name == "suite":
        names = [word for word in context.params["words"] or () if "=" not in word]
        for protocol in (name for name in names if not name.endswith("mine.yaml")):
            load_protocol(protocol)
    elif name and context.info_name in HAVE_CONFIG:
        load_config(name, changes, runs_plugins=False)


@every_page
def test_every_command_exists_with_its_options_and_its_config(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(page.parent if page.parent.name == "examples" else ROOT)
    for typed in commands_in(page):
        if typed.words:
            try:
                check(typed)
            except Exception as error:
                pytest.fail(f"{page.name}: {typed.line}: {type(error).__name__}: {error}")


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
        if typed.is_whole and not typed.reason and typed.words:
            said = symbiont(*shortened(typed.words[1:], host))
            wrong += [f"{typed.line}: {said.err.strip()[-300:]}"] if said.code else []
    assert wrong == []


@every_page
def test_every_block_of_data_or_code_can_be_read(page: Path) -> None:
    for block in fenced(page, "json"):
        assert all(json.loads(line) for line in block.splitlines())
    for block in fenced(page, "toml"):
        assert tomllib.loads(block)
    for block in fenced(page, "yaml"):
        assert yaml.safe_load(block)
    for block in fenced(page, "python"):
        compile(block, page.name, "exec")


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
