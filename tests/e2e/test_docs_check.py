"""Pages that quote paper packs, and the check that they quote them rightly."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ablated import made_up
from said import Said
from symbiont_ecology.engine.build import build_host
from symbiont_ecology.extensions.study.ablation import (
    AblationResults,
    render_ablation,
    results_file,
)
from symbiont_ecology.extensions.study.jobs import JobContext, run_job
from symbiont_ecology.extensions.study.outcomes import Tuning
from symbiont_ecology.extensions.study.pack import write_index, write_pack
from symbiont_ecology.extensions.study.protocol import Arm, Protocol
from symbiont_ecology.extensions.study.suite import reported_jobs

SCRIPT = Path(__file__).parents[2] / "scripts" / "docs_check.py"
Check = Callable[..., Said]
RIGHT = "accuracy.0.5.in-distribution.single.estimate 100 .1f"


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packs with one of two small runs in it."""
    protocol = Protocol(
        name="tiny",
        question="does it hold?",
        base=("base",),
        set=("tasks.families=[math.add, logic.bool]", "tasks.depths=[short]", "strategy.samples=2"),
        unit_flops=2e9,
        budgets=(0.5, 1),
        seeds=(0,),
        arms={"single": Arm(about="one adapter", set=("strategy.kind=single",), routing="single")},
        main="single",
        per_cell=4,
    )
    place, host = tmp_path_factory.mktemp("suite"), build_host(protocol.config("single", 1, 0))
    jobs = reported_jobs(protocol, {"single": {"0.5": 0, "1": 0}})
    rows = [run_job(JobContext(job, protocol, place, lambda: False, host)) for job in jobs]
    home = tmp_path_factory.mktemp("packs")
    write_pack(home / "tiny", protocol, rows, Tuning(chosen={}))
    write_index(home)
    return home


@pytest.fixture
def root(packs: Path, tmp_path: Path) -> Path:
    """A checkout with a pack, and a page that says nothing yet."""
    shutil.copytree(packs, tmp_path / "docs" / "paper_packs")
    (tmp_path / "README.md").write_text("# It is\n")
    return tmp_path


def mark(words: str, value: str = "", pack: str = "tiny") -> str:
    return f"<!-- pack {pack}: {words} -->{value}<!-- /pack -->"


@pytest.fixture
def check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Check:
    """Runs the script in this process, on the checkout in ``tmp_path``."""

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--root", str(tmp_path), *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        said = capsys.readouterr()
        return Said(int(stop.value.code or 0), said.out, said.err)

    return run


def test_without_packs_there_is_nothing_to_make_again(tmp_path: Path, check: Check) -> None:
    (tmp_path / "README.md").write_text("Nothing is claimed.\n")
    said = check()
    assert said.code == 0
    assert "no packs in" in said.out


def test_a_wrong_figure_is_one_line_that_fill_mends(root: Path, check: Check) -> None:
    page = root / "docs" / "results.md"
    page.write_text(f"text\n\n| a | {mark('seeds.single', '4')} | {mark(RIGHT)} |\n")
    said = check()
    assert said.code == 1
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert f"{page}:3: expected 1, found 4 (tiny: seeds.single)" in lines
    assert all(line.startswith(f"{page}:3: expected ") for line in lines)
    assert check("--fill").code == 0
    text = page.read_text()
    assert f"| a | {mark('seeds.single', '1')} |" in text
    assert re.search(r"\.1f -->\d+\.\d<!-- /pack -->", text)
    assert check().code == 0
    assert page.read_text() == text


def test_an_excerpt_is_that_of_its_pack(root: Path, check: Check) -> None:
    page = root / "docs" / "results.md"
    blocks = [f"<!-- excerpt {name} -->\nold\n<!-- /excerpt -->\n" for name in ("tiny", "other")]
    page.write_text(f"text\n\n{blocks[0]}more\n{blocks[1]}")
    said = check()
    assert said.code == 1
    assert "results.md: expected the excerpt that is in " in said.err
    assert "results.md: expected an excerpt of other, found no " in said.err
    page.write_text(page.read_text().partition("more")[0])
    assert check("--fill").code == 0
    assert "| single |" in page.read_text()
    assert page.read_text().startswith("text\n\n<!-- excerpt tiny -->\n| percent right |")
    assert check().code == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<!-- excerpt tiny -->\nkeep\n", 3),
        ("<!-- excerpt tiny -->\nkeep\n<!-- excerpt tiny -->\nold\n<!-- /excerpt -->\n", 3),
        ("<!-- excerpt tiny -->\nold\n<!-- /excerpt -->\nkeep\n<!-- /excerpt -->\n", 7),
        ("<!-- excerpt tiny --> keep <!-- /excerpt -->\n", 3),
    ],
)
def test_an_excerpt_without_both_marks_is_named_and_fill_leaves_it_alone(
    root: Path, check: Check, text: str, line: int
) -> None:
    page = root / "docs" / "results.md"
    page.write_text(f"text\n\n{text}")
    said = check()
    assert said.code == 1
    assert f"{page}:{line}: expected <!-- excerpt NAME --> and <!-- /excerpt -->" in said.err
    said = check("--fill")
    assert said.code == 1
    assert len(said.err.splitlines()) == 1
    assert "keep" in page.read_text()
    assert "old" not in page.read_text()


WRONG = {
    mark("seeds.singel", "1"): "no singel there, but single",
    mark("seeds", "1"): "more keys are wanted: single",
    mark("seeds.single .1q", "1"): "found none (",
    mark("seeds.single", "1", pack="other"): "there is no ",
    "<!-- pack tiny: seeds.single -->1": "expected <!-- pack NAME: KEYS",
    "1<!-- /pack -->": "expected <!-- pack NAME: KEYS",
}


def test_a_quotation_that_leads_nowhere_is_one_line(root: Path, check: Check) -> None:
    page, text = root / "docs" / "results.md", "".join(f"{line}\n" for line in WRONG)
    page.write_text(text)
    said = check("--fill")
    assert said.code == 1
    for number, (line, message) in enumerate(
        zip(said.err.splitlines(), WRONG.values(), strict=True), 1
    ):
        assert line.startswith(f"{page}:{number}: expected ")
        assert message in line
    assert page.read_text() == text


def test_marks_in_code_are_examples(root: Path, check: Check) -> None:
    excerpt = "<!-- excerpt other -->\nold\n<!-- /excerpt -->\n<!-- excerpt tiny -->"
    (root / "docs" / "results.md").write_text(
        f"```\n{mark('seeds.single', '72')}\n{excerpt}\n```\n"
    )
    assert check().code == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("tiny/README.md", "# tiny", "# teeny", "README.md:1: expected # tiny, found # teeny"),
        ("tiny/excerpt.md", "| single |", "| double |", "excerpt.md:4: expected | single |"),
        (
            "tiny/summary.json",
            '"level": 0.05',
            '"level": 0.5',
            'expected "level": 0.05, found "level": 0.5',
        ),
        ("tiny/tuned.json", '"sweep"', '"sweep" ', "for tuned.json, found "),
        ("tiny/protocol.json", "{", "", "found damage: no paper pack can be read"),
        ("README.md", "does it hold?", "it holds", "README.md:5: expected | [tiny]"),
    ],
)
def test_a_pack_that_is_not_what_its_outcomes_give_is_named(
    root: Path, check: Check, name: str, old: str, new: str, message: str
) -> None:
    path = root / "docs" / "paper_packs" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    said = check()
    assert said.code == 1
    assert message in said.err


def test_last_digits_of_another_processor_are_no_mismatch(root: Path, check: Check) -> None:
    path = root / "docs" / "paper_packs" / "tiny" / "summary.json"
    text = path.read_text()
    path.write_text(text.replace('"level": 0.05', '"level": 0.05000000000000001'))
    assert check().code == 0
    path.write_text(text.replace('"level": 0.05', '"level": 0.0500001'))
    assert check().code == 1


def test_a_figure_that_is_missing_is_named(root: Path, check: Check) -> None:
    (root / "docs" / "paper_packs" / "tiny" / "accuracy.png").unlink()
    said = check()
    assert said.code == 1
    (line,) = said.err.splitlines()
    assert "expected the figures accuracy.png" in line


def test_the_page_of_the_ablations_is_what_its_numbers_make(tmp_path: Path, check: Check) -> None:
    (tmp_path / "README.md").write_text("# It is\n")
    page, results = tmp_path / "docs" / "ablations.md", made_up({"helps": {"accuracy": 0.05}})
    results_file(page).parent.mkdir(parents=True)
    page.write_text(render_ablation(AblationResults.model_validate(results)))
    assert "expected its numbers in " in check().err
    results_file(page).write_text(json.dumps(results))
    assert check().code == 0
    results["measured"]["ecology"]["accuracy"][0] += 0.1
    results_file(page).write_text(json.dumps(results))
    said = check()
    assert said.code == 1
    assert f"{page}:" in said.err
    assert "found | *all of them* |" in said.err
