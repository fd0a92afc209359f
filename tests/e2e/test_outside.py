"""What comes from outside, as somebody types it: one short line, whatever it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from said import Symbiont

LONG = 10_000 * "n"
LONGEST_LINE = 520
"""Characters of an error, and of what stands where its middle was."""
PLUGIN = '''
import sys
from dataclasses import dataclass

from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.ecology.routing.allocators import Allocator, allocators


@reward_rules.register("odd_reward")
@dataclass(frozen=True)
class OddReward(RewardRule):
    """Fails at every reply."""

    def __call__(self, rollout):
        raise LookupError("no idea")


@allocators.register("odd_allocator")
@dataclass(frozen=True)
class OddAllocator(Allocator):
    """Leaves."""

    fade: float = 0.8

    def pick(self, known, generator):
        sys.exit(0)
'''


@pytest.mark.parametrize(
    "words",
    [
        ["run", LONG],
        ["run", "steady", f"strategy={LONG}"],
        ["run", "steady", f"seed={5000 * '1'}"],
        ["resume", LONG],
        ["evaluate", "--adapter", "x", "--holdout", LONG],
        ["evaluate", "--adapter", "x", "--holdout", "/dev/zero"],
        ["list", LONG],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_long_or_special_name_is_one_short_line(
    symbiont: Symbiont, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont(*words)
    assert said.code in (1, 2)
    assert len(said.error) <= LONGEST_LINE
    assert not list(tmp_path.iterdir())


def test_a_prompt_of_megabytes_is_refused(symbiont: Symbiont, lived: Path, tmp_path: Path) -> None:
    row = {"prompt": 20_000_000 * "x", "target": "4", "family": "own", "depth": "short"}
    (tmp_path / "long.jsonl").write_text(json.dumps(row))
    said = symbiont("evaluate", lived, "--holdout", tmp_path / "long.jsonl")
    assert "line 1: a text of 20000000 characters" in said.error
    assert "a text of 2000000 characters" in symbiont("infer", lived, 2_000_000 * "x").error


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("reward=odd_reward", "reward rule 'odd_reward' (mine.py) failed at each of its "),
        ("allocator=odd_allocator", "a plug-in raised SystemExit: 0 (mine.py line 26): mend it"),
    ],
)
def test_a_plug_in_that_fails_ends_a_run_in_one_line(
    symbiont: Symbiont,
    small: list[str],
    change: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_parts: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    words = [*small, "learning_rule=policy_gradient", change, "plugins=[mine.py]"]
    said = symbiont("run", "steady", *words, "--out", "run", "-q")
    assert said.code == 1
    assert expected in said.error
    assert "LookupError: no idea" in said.error or "SystemExit" in said.error
    assert (tmp_path / "run/state.json").exists()
    shutil.rmtree(tmp_path / "run")
