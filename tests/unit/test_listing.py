"""``symbiont list`` and ``symbiont --help`` answer fast, because they load no heavy package; and so
do the version, completion and the first line of a demo."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from symbiont_ecology import __version__
from symbiont_ecology.cli.explain import FILES, REGISTRIES, list_names, registry

HEAVY = {"torch", "transformers", "scipy", "pandas", "matplotlib", "jinja2"}
TYPED = """
import sys, time
began = time.process_time()
from symbiont_ecology.cli import app
app(sys.argv[1:], standalone_mode=False)
loaded = {name.partition(".")[0] for name in sys.modules}
print(time.process_time() - began, *sorted(loaded), file=sys.stderr)
"""


COMPLETED = """
import sys
sys.argv = ["symbiont"]
from symbiont_ecology.cli import main
main()
"""
FIRST_LINE = """
import sys, time
began = time.process_time()
from symbiont_ecology.cli import app
class Seen:
    def write(self, text):
        loaded = sorted({name.partition(".")[0] for name in sys.modules})
        print(time.process_time() - began, text.strip(), *loaded, sep="|")
        raise SystemExit
    def flush(self):
        pass
sys.stderr = Seen()
app(["demo"], standalone_mode=False)
"""


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["list"], ["list", "tasks"], ["list", "mechanisms"]]
)
def test_listing_takes_less_than_a_second_and_loads_nothing_heavy(words: list[str]) -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", TYPED, *words], capture_output=True, text=True, check=True
        )
        for _ in range(3)
    ]
    seconds, *loaded = zip(*(run.stderr.split() for run in runs), strict=True)
    assert not HEAVY & {name for name, *_ in loaded}
    assert min(map(float, seconds)) < 1  # of CPU time; the least, as others may work here too


def test_everything_that_a_config_can_name_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    list_names()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        f"{k}:" for k in (*REGISTRIES, *FILES)
    ]
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    for kind in REGISTRIES:
        assert listed >= set(registry(kind).names())


def test_a_list_reads_no_source_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("slow: a list needs docstrings alone")

    monkeypatch.setattr("inspect.getsource", refuse)
    list_names("strategies")


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


def test_the_version_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "symbiont_ecology.cli", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"symbiont {__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script_for_completion(shell: str) -> None:
    assert "symbiont" in run_code(COMPLETED, _SYMBIONT_COMPLETE=f"source_{shell}")


def test_commands_are_completed() -> None:
    asked = {"COMP_WORDS": "symbiont de", "COMP_CWORD": "1"}
    completed = run_code(COMPLETED, _SYMBIONT_COMPLETE="complete_bash", **asked)
    assert completed.split() == ["demo", "demo-real"]


def test_the_first_line_of_a_demo_comes_within_a_second_and_before_anything_heavy() -> None:
    runs = [run_code(FIRST_LINE).strip().split("|") for _ in range(3)]
    seconds, lines, *_ = zip(*runs, strict=True)
    assert set(lines) == {f"symbiont {__version__}: loading …"}
    assert min(map(float, seconds)) < 1  # of CPU time; the least, as others may work here too
    assert not HEAVY & {name for run in runs for name in run}


def test_the_lines_of_help_end_where_the_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from symbiont_ecology.cli import app

    monkeypatch.setenv("COLUMNS", "400")
    app(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "with the model and with one adapter." in shown
    assert "one by one; q ends it, nothing is lost." in shown


def test_ctrl_c_before_a_command_begins_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from symbiont_ecology import cli

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
