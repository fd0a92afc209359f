"""``symbiont list`` and ``symbiont --help`` answer fast, because they load no heavy package; and so
do the version and completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from symbiont_ecology.cli.explain import FILES, REGISTRIES, list_names, registry

HEAVY = {"torch", "transformers", "scipy", "pandas", "matplotlib", "jinja2"}
MAX_MODULES = 1000
"""Of a command that loads no model: with so many it takes less than a second on a usual machine."""
TYPED = """
import sys
from symbiont_ecology.cli import app
app(sys.argv[1:], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""
COMPLETED = """
import sys
sys.argv = ["symbiont"]
from symbiont_ecology.cli import main
main()
"""
INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "symbiont_ecology.extensions.serve.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from symbiont_ecology.__main__ import launch
launch()
"""


def check_light(loaded: list[str]) -> None:
    """Assert that a process that loaded these modules began fast."""
    assert not HEAVY & set(loaded)
    assert 0 < len(loaded) < MAX_MODULES


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "tasks"], ["list", "mechanisms"]])
def test_listing_loads_nothing_heavy(words: list[str]) -> None:
    typed = [sys.executable, "-c", TYPED, *words]
    done = subprocess.run(typed, capture_output=True, text=True, check=True)
    check_light(done.stderr.split())


def test_everything_that_a_config_can_name_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    list_names()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        f"{k}:" for k in (*REGISTRIES, *FILES)
    ]
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    for kind in REGISTRIES:
        assert listed >= set(registry(kind).names())


def run_code(code: str, **environment: str) -> str:
    """What a process prints on stdout."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def test_ctrl_c_while_python_imports_ends_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_commands_are_completed() -> None:
    assert "symbiont" in run_code(COMPLETED, _SYMBIONT_COMPLETE="source_zsh")
    asked = {"COMP_WORDS": "symbiont de", "COMP_CWORD": "1"}
    completed = run_code(COMPLETED, _SYMBIONT_COMPLETE="complete_bash", **asked)
    assert completed.split() == ["demo", "demo-real"]
