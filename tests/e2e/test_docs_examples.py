"""The examples in docs/extending.md are complete files: they are written to disk and live a run together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from symbiont_ecology.cli import app
from symbiont_ecology.config import presets

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

LIFE = """
import importlib, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:]
for path in sorted(Path(sys.argv[1]).glob("example_*.py")):
    importlib.import_module(path.stem)

from toy import ToyHost
from symbiont_ecology.config import load_config
from symbiont_ecology.engine.run import start
from symbiont_ecology.evaluation.measure import Candidates
from symbiont_ecology.operators import operators
from symbiont_ecology.tasks import task_families

folder = Path(sys.argv[1])
host = ToyHost()
finished = start(load_config(folder / "all.yaml"), folder / "run", host=host)
assert finished.is_complete and finished.state.ledger.total == 0 and len(finished.state.population) == 4
assert any(one.operator == "forget" for one in finished.state.population.values())
candidates = Candidates.of_run(folder / "run")
questions = candidates.questions(20)
choices = candidates.portfolio.choose(questions, "learned")
candidates.evaluate(questions, choices, host, "learned")
assert set(choices) <= {"host", *finished.state.population}
family = task_families.build("string.echo")
item = family.item("kqa", "short")
assert family.verify(item, "KQAKQA") == 1.0 and family.verify(item, "") == 0.0
assert operators.describe("forget").knobs[0].comment
"""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_extension_examples_live_a_run_together(tmp_path: Path) -> None:
    page = ROOT / "docs" / "extending.md"
    examples = blocks(page, "python")
    assert len(examples) == 6
    for number, text in enumerate(examples):
        (tmp_path / f"example_{number}.py").write_text(text)
    (tmp_path / "all.yaml").write_text(blocks(page, "yaml")[0])
    done = subprocess.run(
        [sys.executable, "-c", LIFE, tmp_path, ROOT / "tests"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_pages_exist(page: Path) -> None:
    commands = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    text = page.read_text(encoding="utf-8")
    for block in [*blocks(page, "sh"), *re.findall(r"`(symbiont [^`]+)`", text)]:
        for line in block.splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "symbiont" and not words[1].startswith("-"):
                assert words[1] in commands, line
                if words[1] == "run" and not words[2].isupper():
                    assert words[2] in presets() or words[2].endswith(".yaml"), line
