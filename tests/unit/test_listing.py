"""``symbiont list`` and ``symbiont --help`` answer fast, because they load no heavy package."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "tasks"], ["list", "mechanisms"]])
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
