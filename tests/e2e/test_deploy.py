"""What a run has bred, put to use: exported, asked, and its phylogeny."""

from __future__ import annotations

import json
from pathlib import Path

from said import Symbiont


def test_export_writes_adapters_that_can_be_evaluated(
    symbiont: Symbiont, lived: Path, host: Path, holdout: Path, tmp_path: Path
) -> None:
    exported = symbiont("export", lived, "--to", tmp_path / "out")
    assert exported.code == 0
    assert exported.out.endswith(f" --holdout FILE --host {host}\n")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    first = index["organelles"][0]
    card = (tmp_path / "out" / first["folder"] / "README.md").read_text()
    assert index["best"] in {one["id"] for one in index["organelles"]}
    assert f'base_model: "{host}"' in card
    assert "- operator: `founder`" in card
    words = ["evaluate", "--adapter", tmp_path / "out" / first["folder"], "--holdout", holdout]
    said = symbiont(*words, "--host", host, "--json", tmp_path / "e.json")
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "e.json").read_text())["questions"] == 2


def test_phylogeny_writes_a_line_for_everyone_who_lived(
    symbiont: Symbiont, copied: Path, tmp_path: Path
) -> None:
    said = symbiont("phylogeny", copied)
    born = (copied / "events.jsonl").read_text().count('"kind":"Born"')
    assert said.out == f"{born} organelles in {copied / 'phylogeny.csv'}\n"
    assert symbiont("phylogeny", copied, "--out", tmp_path / "tree.csv", "--tree").code == 0
    assert len((tmp_path / "tree.csv").read_text().splitlines()) == born + 1


def test_the_phylogeny_of_a_run_that_somebody_sent_runs_no_plugin(
    symbiont: Symbiont, copied: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    (tmp_path / "x.py").write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\n")
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("plugins: []", f"plugins: [{tmp_path / 'x.py'}]"))
    assert "x.py" in config.read_text()
    assert symbiont("phylogeny", copied).code == 0
    assert not trace.exists()


def test_infer_answers_on_stdout_and_names_who_on_stderr(symbiont: Symbiont, lived: Path) -> None:
    said = symbiont("infer", lived, "math.add: 12+7", "--routing", "single", "--max-new-tokens", 4)
    assert said.code == 0
    assert said.err.startswith("answered by o")
    assert "answered" not in said.out
