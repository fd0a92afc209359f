"""Questions of reasoning-gym: every data set that is offered, and whatever a reply may say."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import ConfigError, MissingExtraError, RunError
from symbiont_ecology.extensions.data import reasoning
from symbiont_ecology.extensions.data.reasoning import LEFT_OUT, GymTask, offers
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig, compose
from symbiont_ecology.run.provenance import PROVENANCE_FILE
from symbiont_ecology.tasks import judge, task_sources, verification
from toy import ToyHost

factory = pytest.importorskip("reasoning_gym.factory")

OFFERED = sorted(factory.DATASETS.keys() - LEFT_OUT)
SLOW = ("futoshiki", "sokoban", "zebra_puzzles")
every_data_set = pytest.mark.parametrize("dataset", OFFERED)
HOSTILE = (
    "__import__('os').system('touch {mark}')",
    "exec(\"open('{mark}', 'w')\")",
    "9**9**9**9",
    "9" * 10**6,
    "1e999999999",
    "-1e-999999999",
    "nan",
    "inf",
    "(" * 10**6,
    "[" * 10**6,
    "¬" * 10**6,
    '{"a":' * 10**5,
    "<answer>" * 10**5,
    "<answer>" + "[" * 5000 + "</answer>",
    "×".join("9" * 5000),
    ("A+999999999 " * 1000),
    "R999999999",
    "\x00\x1b[31m\u202e\ud83d\U0001f600",
    "\n" * 10**6,
    "a,b=" * 10**5,
)


def gym(dataset: str, **knobs: Any) -> GymTask:
    """Questions of a data set as a task, as a config would name them."""
    spec = {"kind": "reasoning_gym", "name": dataset, "dataset": dataset, **knobs}
    task = task_sources.build(spec).task()
    assert isinstance(task, GymTask)
    return task


@every_data_set
def test_every_question_gives_full_marks_to_its_own_answer_and_none_to_silence(
    dataset: str,
) -> None:
    task = gym(dataset, size=6)
    assert 1 <= len(task.lines) <= 6
    for line in task.lines:
        (answer,) = line.answers
        dataset, drawn = task.entries[line.question]
        item, before = task.item(line.question, line.depth), repr(drawn)
        assert dataset.score_answer(answer, drawn) == 1
        for reply in (answer, f"<answer>{answer}</answer>", f"Hm.\n<answer> {answer}\n</answer>."):
            assert item.verifier(reply) is True, (line.question, reply)
        for reply in ("", " \n", "<answer></answer>", "I do not know.", "nan", "```\n```"):
            assert item.verifier(reply) is False, (line.question, reply)
        assert repr(drawn) == before  # a scorer leaves the question as it was


@every_data_set
def test_no_reply_runs_takes_long_or_is_right(dataset: str, tmp_path: Path) -> None:
    task, mark = gym(dataset, size=3), tmp_path / "ran"
    item = task.item(task.lines[0].question, task.lines[0].depth)
    for hostile in HOSTILE:
        reply, began = hostile.replace("{mark}", str(mark)), time.process_time()
        assert [judgement.verdict for judgement in judge([(item, reply)])] == [0.0], hostile[:40]
        assert time.process_time() - began < verification.SECONDS / 2, hostile[:40]
    assert not mark.exists()


def test_every_data_set_that_is_left_out_exists_and_is_refused() -> None:
    assert set(LEFT_OUT) <= set(factory.DATASETS)
    for name in LEFT_OUT:
        with pytest.raises(ConfigError, match=f"{name} is not offered: docs/data.md says why"):
            gym(name)


def test_no_scorer_that_is_offered_evaluates_a_reply() -> None:
    words = ("eval(", "exec(", "parse_expr(", "sympify(", "literal_eval", "pickle", "Fraction(")
    for name in OFFERED:
        source = inspect.getsource(factory.DATASETS[name][0].score_answer)
        found = [word for word in words if word in source]
        # This one evaluates the reference answer where that is no JSON.
        assert found == (["eval("] if name == "number_sorting" else []), name


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "READ_VERSION", "0.1.24")
    with pytest.raises(ConfigError, match=r"expected reasoning-gym 0\.1\.24, whose scorers were"):
        gym("chain_sum", seed=98)


def test_questions_are_the_same_in_every_process() -> None:
    code = (
        "import sys; from symbiont_ecology.tasks import task_sources\n"
        "for name in sys.argv[1:]:\n"
        "    spec = {'kind': 'reasoning_gym', 'name': name, 'dataset': name, 'size': 2}\n"
        "    print(name, task_sources.build(spec).task().digest)\n"
    )
    quick = [name for name in OFFERED if name not in SLOW]
    said = [
        subprocess.run(
            [sys.executable, "-c", code, *quick],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == len(quick)


def test_equal_questions_are_asked_once_and_fall_into_one_split() -> None:
    task = gym("chain_sum", size=400)
    prompts = [line.prompt for line in task.lines]
    assert len(prompts) == len(set(prompts)) < 400
    parts = [set(task.part("short", split)) for split in ("train", "selection", "holdout")]  # type: ignore[arg-type]
    assert sum(map(len, parts)) == len(prompts)
    assert gym("chain_sum", size=400) is task
    assert gym("chain_sum", size=400, seed=1).digest != task.digest
    assert task.digest.startswith("reasoning-gym 0.1.")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<answer>4</answer>", ("4",)),
        ("<answer>3</answer> no: <answer>\n4 </answer> done", ("4",)),
        ("4", ("4",)),
        ("So:\nThe answer is 4.", ("So:\nThe answer is 4.", "4")),
        ("</answer> 4", ("</answer> 4",)),
        ("<answer>4", ("<answer>4",)),
        ("", ("",)),
    ],
)
def test_an_answer_stands_between_tags_or_is_the_reply_or_its_end(
    reply: str, expected: tuple[str, ...]
) -> None:
    assert offers(reply) == expected


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"dataset": "chain_sm"}, "no such data set; did you mean 'chain_sum'?"),
        ({"dataset": "zzz"}, "no such data set; choose among ab, acre,"),
        ({"config": {"min_terms": 9, "max_terms": 3}}, "config: max_terms must be >= min_terms"),
        ({"config": {"seed": 3}}, "config.seed: expected numbers, words or lists of them"),
        ({"config": {"min_terms": "__import__('os')"}}, "config.min_terms: expected numbers"),
        ({"dataset": "spell_backward", "config": {"data_file": "x"}}, "config: [Errno 2] No such"),
        ({"name": "a/b"}, "name: expected letters"),
        ({"levels": [0]}, "unknown key 'levels'"),
    ],
)
def test_wrong_knobs_are_one_clear_line(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gym(knobs.pop("dataset", "chain_sum"), **knobs)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_package_is_said_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'symbiont-ecology\[reasoning-gym\]'"
    ) as refused:
        gym("chain_sum", seed=99)
    assert refused.value.exit_code == 3


# Living on them.


def config(**knobs: object) -> RunConfig:
    """A toy run on sums, as if it had been read from a file."""
    family = {"kind": "reasoning_gym", "name": "sums", "dataset": "chain_sum", **knobs}
    return compose(
        (),
        (f"tasks.families=[{json.dumps(family)}]", "strategy=single", "run.generations=4"),
        "test",
    )


def test_a_run_lives_on_them_and_goes_on_with_the_same_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = config(size=80)
    start(plan, tmp_path / "run", host=ToyHost())
    record = json.loads((tmp_path / "run" / PROVENANCE_FILE).read_text())
    assert record["data"] == {"sums": mixture(plan).families["sums"].digest}  # type: ignore[attr-defined]
    resume(tmp_path / "run", overrides=["run.generations=5"], host=ToyHost())
    monkeypatch.setattr(GymTask, "digest", property(lambda task: "of other versions"))
    with pytest.raises(RunError, match="is not what the run in"):
        resume(tmp_path / "run", overrides=["run.generations=6"], host=ToyHost())
