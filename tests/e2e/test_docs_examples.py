"""The examples in docs/extending.md are complete files: they are written to disk and live a run
together.

Other pages are checked for links that lead nowhere; for their commands see test_docs_commands.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hosts import random_weights
from symbiont_ecology.model.kernel import HostKernel
from typed import PAGES, ROOT, fenced

LIFE = """
import importlib, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:]
for path in sorted(Path(sys.argv[1]).glob("example_*.py")):
    importlib.import_module(path.stem)

from toy import ToyHost
from symbiont_ecology import Run, load_config
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.run.build import mixture
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.registry import knobs
from symbiont_ecology.ecology.strategies import strategies

folder = Path(sys.argv[1])
host = ToyHost()
finished = Run.start(folder / "all.yaml", folder=folder / "run", host=host).finish()
assert finished.is_complete and finished.state.ledger.total == 0
assert len(finished.state.population) == 4
assert any(one.operator == "forget" for one in finished.state.population.values())
run = LoadedRun.of_run(folder / "run")
rollouts = run.evaluate(run.items(20), host, "learned").rollouts
assert {one.organelle_id for one in rollouts} <= {"host", *run.pool.weights}
assert next(iter(knobs(operators["forget"]))).comment
assert any(item.prompt.startswith("math.add => ") for item in run.items(20))
config = load_config(folder / "all.yaml")
strategy, mix = strategies.build(config.strategy), mixture(config)
assert strategy.max_rows(mix) == 4 * 2 * 2 * 2
"""


def test_the_extension_examples_live_a_run_together(tmp_path: Path) -> None:
    page = ROOT / "docs" / "extending.md"
    examples = fenced(page, "python")
    assert len(examples) == 8
    for number, text in enumerate(examples):
        (tmp_path / f"example_{number}.py").write_text(text)
    (tmp_path / "all.yaml").write_text(fenced(page, "yaml")[0])
    done = subprocess.run(
        [sys.executable, "-c", LIFE, tmp_path, ROOT / "tests"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_library_examples_in_the_readme_run(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_example, suite_example, kernel_example = fenced(ROOT / "README.md", "python")
    monkeypatch.chdir(tmp_path)
    kernel = HostKernel.from_pretrained(host, slots=1, rank=2)
    kernel.place(0, random_weights(kernel.layout, seed=1, rank=2))
    kernel.export(0, "my-adapter")
    exec(kernel_example.replace('"embedded"', repr(str(host))), {})
    assert Path("copy/adapter_model.safetensors").is_file()
    Path("my-adapter/adapter_model.safetensors").unlink()
    short = f'run.generations=1", "host.model={host}", "host.rank=2'
    exec(run_example.replace("run.generations=40", short), {})
    assert Path("artifacts/demo-1/state.json").is_file()
    assert Path("my-adapter/adapter_model.safetensors").is_file()
    small = '"ci", "seeds=[0]", "per_cell=1", "unit_flops=4.0e+9", "tuning_seeds=[1]"'
    shorter = suite_example.replace("run.generations=40", short).replace('"ci"', small)
    exec(shorter, {})
    assert Path("my-pack/README.md").is_file()


def test_the_examples_of_the_python_reference_run(capsys: pytest.CaptureFixture[str]) -> None:
    for example in fenced(ROOT / "docs" / "api.md", "python"):
        exec(example, {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
