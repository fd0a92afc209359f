"""Data sets that ``symbiont data`` writes, and those that are shipped."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lines import Row, quiz, rows
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.shipped import config_folder, find_data
from symbiont_ecology.evaluate.items import draw_items, read_items
from symbiont_ecology.extensions.data.cli import SFT_FILE, data
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks.splits import split_of

# Data sets that are written.

MIX = ["math.add", "countdown"]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_data_sets_are_written_apart_and_the_same_for_a_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, seed in (("one", 3), ("two", 3), ("three", 4)):
        mix = [*MIX, "tasks.depths=[short, long]"]
        data(mix, tmp_path / folder, "30,5,12", seed, sft=True)
    said = capsys.readouterr()
    assert "selection: 20 lines of 4 cells" in said.out
    assert not said.err
    names = ("train.jsonl", "selection.jsonl", "holdout.jsonl", SFT_FILE)
    first, same, other = (
        {n: (tmp_path / f / n).read_bytes() for n in names} for f in ("one", "two", "three")
    )
    assert first == same
    assert all(first[name] != other[name] for name in names)
    prompts = {name: {row["prompt"] for row in read(tmp_path / "one" / name)} for name in names}
    assert [len(prompts[name]) for name in names] == [120, 20, 48, 120]
    assert prompts["train.jsonl"] == prompts[SFT_FILE]
    assert not prompts["train.jsonl"] & prompts["holdout.jsonl"]
    assert not prompts["selection.jsonl"] & (prompts["train.jsonl"] | prompts["holdout.jsonl"])
    for row, lesson in zip(
        read(tmp_path / "one/train.jsonl"), read(tmp_path / "one" / SFT_FILE), strict=True
    ):
        assert lesson == {"prompt": row["prompt"], "completion": row["target"]}
        assert {"family", "depth", "task_id"} <= set(row)


def test_a_cell_with_fewer_lines_than_asked_for_is_a_warning(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"tasks: {{families: [{json.dumps(quiz(file))}], depths: [short]}}\n")
    data([str(path)], tmp_path / "out", "40")
    said = capsys.readouterr()
    counts = Counter(split_of("quiz", row["prompt"]) for row in rows())
    for split in ("selection", "holdout"):
        assert (
            f"warning: quiz/short has {counts[split]} different lines for {split}, not 40"
            in said.err
        )
        written = read_items(tmp_path / "out" / f"{split}.jsonl")
        assert len(written) == counts[split]
        tasks = mixture(load_config(path))
        drawn = draw_items(tasks, 40, split=split)  # reply limits and all
        assert written == [replace(item, question=item.prompt) for item in drawn]


@pytest.mark.parametrize(
    ("config", "per_cell", "said"),
    [
        ("no.yaml", "5", "no config file 'no.yaml'"),
        ("math.sub", "5", "'math.sub' is kept for evaluation"),
        ("math.add", "0", "--per-cell: expected a number from 1, or three as in 20,4,10, got '0'"),
        ("math.add", "1,2", "--per-cell: expected"),
    ],
)
def test_wrong_words_are_one_clear_line(
    config: str, per_cell: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        data([config], tmp_path / "out", per_cell)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_what_was_written_is_not_written_over(tmp_path: Path) -> None:
    data(MIX, tmp_path, "2")
    data(MIX, tmp_path, "2")  # the same may come twice, as after a kill
    with pytest.raises(ConfigError, match=r"holdout.jsonl is there already"):
        data(MIX, tmp_path, "3")


# Data sets that are shipped.

TERSE = {
    "evaluation/paper_holdout.jsonl": "holdout.jsonl",
    "evaluation/paper_selection.jsonl": "selection.jsonl",
    "training/paper_sft.jsonl": SFT_FILE,
}
IN_WORDS = {
    "evaluation/words_holdout.jsonl": "holdout.jsonl",
    "evaluation/words_selection.jsonl": "selection.jsonl",
}
SHIPPED = TERSE | IN_WORDS


@pytest.mark.parametrize(
    ("preset", "files"), [("tasks/trained", TERSE), ("experiments/qwen3_ecology", IN_WORDS)]
)
def test_shipped_data_are_what_the_command_writes(
    preset: str, files: dict[str, str], tmp_path: Path
) -> None:
    data([preset], tmp_path, "20,4,10", sft=True)
    for name, written in files.items():
        shipped = config_folder() / name
        assert shipped.read_bytes() == (tmp_path / written).read_bytes(), name
        assert shipped.stat().st_size < 200_000
        assert find_data(Path(name)) == shipped


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith("evaluation")])
def test_every_shipped_question_is_won_by_its_target(name: str) -> None:
    questions = read_items(Path(name))
    assert {question.family for question in questions} == set(
        load_config("tasks/trained").tasks.families
    )
    for question in questions:
        replies = (question.answer, "", "what?")
        assert [question.verifier(reply) for reply in replies] == [1.0, 0.0, 0.0]
