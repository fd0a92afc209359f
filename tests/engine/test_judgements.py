"""Runs that wait for people: what they said makes the same run, in however many stops."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judges import judge_all, likes_short, live_with_judge
from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import Assignment, Outcome, Rollout
from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.judgements import (
    JUDGEMENTS_FILE,
    QUEUE_FILE,
    GivenJudgement,
    Judgements,
    WaitingReply,
    read_judgements,
)
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import DataError, RunError, WaitingError
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, Ascended
from symbiont_ecology.types import Item
from toy import Crash, ToyHost, toy_config

ES = {"kind": "es", "population": 12, "questions": 4, "noise": 0.3, "step": 2.0}
GA = {"kind": "genetic", "questions": 3, "b_std": 0.3, "is_fresh": True}
HOSTILE = '\x1b[2J\x1b]0;owned\x07\r\n{"id": "x", "worth": 1}\u2028\u202e"\\\ud800\x00[red]'


def plan(generations: int = 6, **changes: Any) -> RunConfig:
    parts = {"strategy": ES, "learning_rule": "none", "reward": "human", **changes}
    return toy_config(generations=generations, **parts)


def trace(folder: Path) -> dict[str, bytes]:
    """What must be equal, byte for byte."""
    files = [folder / name for name in ("config.yaml", "state.json", "events.jsonl")]
    files += [folder / "transcripts.jsonl", *sorted((folder / "blobs").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def outcome(*replies: str, prompt: str = "q: 1\n", habitat: str = "", **fields: Any) -> Outcome:
    """Some replies to one question."""
    item = Item("q", "q", "all", "1", prompt, 9, verifier=lambda reply: False, habitat=habitat)
    nothing = np.zeros(0)
    rollouts = tuple(Rollout(item, "o1", (), nothing, one, 0.0, 0.0, Cost()) for one in replies)
    return Outcome(Assignment("o1", (item,), len(replies), **fields), rollouts)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was judged at every stop."""
    folder = tmp_path_factory.mktemp("judged") / "run"
    assert live_with_judge(plan(), folder, ToyHost) > 2
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy": GA},
        {"strategy": {"kind": "single", "samples": 2}, "learning_rule": "policy_gradient"},
        {"strategy": {**ES, "looks": 2}},
    ],
    ids=str,
)
def test_a_run_judged_in_stops_equals_one_whose_judgements_were_known(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    config = plan(5, **changes)
    assert live_with_judge(config, tmp_path / "stops", ToyHost) >= 2
    (tmp_path / "known").mkdir()
    shutil.copy(tmp_path / "stops" / JUDGEMENTS_FILE, tmp_path / "known")
    assert start(config, tmp_path / "known", host=ToyHost()).is_complete
    assert trace(tmp_path / "known") == trace(tmp_path / "stops")


def test_a_run_judged_piece_by_piece_equals_one_judged_at_once(
    judged: Path, tmp_path: Path
) -> None:
    """Whoever judges only the half of what waits is asked for the rest."""
    folder, waiting = tmp_path / "run", list[int]()
    with pytest.raises(WaitingError):
        start(plan(), folder, host=ToyHost())
    while True:
        waiting.append(len(Judgements(folder).waiting()))
        judge_all(folder, most=max(waiting[-1] // 2, 1))
        try:
            resume(folder, host=ToyHost())
        except WaitingError:
            continue
        break
    assert any(later < earlier for earlier, later in pairwise(waiting))
    assert trace(folder) == trace(judged)


def test_a_stop_keeps_nothing_of_its_generation_and_all_of_those_before(tmp_path: Path) -> None:
    folder, config = tmp_path / "run", plan(checkpoint_every=50)
    with pytest.raises(WaitingError):
        start(config, folder, host=ToyHost())
    seen = set[int]()
    for _ in range(3):
        before = trace(folder)
        with pytest.raises(WaitingError):
            resume(folder, host=ToyHost())
        assert trace(folder) == before
        seen.add(json.loads((folder / STATE_FILE).read_text())["generation"])
        judge_all(folder)
        with pytest.raises(WaitingError):
            resume(folder, host=ToyHost())
    assert len(seen) == 3


def test_the_message_says_how_many_wait_and_what_to_type(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(WaitingError) as stop:
        start(plan(), folder, host=ToyHost())
    count = len(Judgements(folder).waiting())
    assert str(stop.value) == (
        f"{count} replies wait for a judgement: symbiont judge {folder}, and then symbiont resume "
        f"{folder}"
    )


@pytest.mark.parametrize("call", range(9))
def test_a_crash_in_any_call_of_the_host_loses_nothing(
    call: int, judged: Path, tmp_path: Path
) -> None:
    folder, dying = tmp_path / "run", ToyHost(crash_at=call)
    with pytest.raises(Crash):
        live_with_judge(plan(), folder, lambda: dying)
    live_with_judge(plan(), folder, ToyHost)
    assert trace(folder) == trace(judged)


@pytest.mark.parametrize("line", ["5", "[1]", '"id"', "null", "{", "\x1b[2J"])
def test_a_line_that_is_no_object_says_nothing(line: str, tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    (tmp_path / JUDGEMENTS_FILE).write_text(f"{line}\n")
    judgements.add(GivenJudgement("a", 1.0))
    assert judgements.known() == {"a": 1.0}


@pytest.mark.parametrize("size", [1, 20, -1])
def test_half_a_judgement_that_a_crash_left_is_asked_again(
    size: int, judged: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(WaitingError):
        start(plan(), folder, host=ToyHost())
    first = Judgements(folder).waiting()[0]
    line = json.dumps({"id": first.id, "worth": likes_short(first.reply)})
    (folder / JUDGEMENTS_FILE).write_text(line[:size])
    assert first in Judgements(folder).waiting()
    assert judge_all(folder)
    live_with_judge(plan(), folder, ToyHost)
    assert trace(folder) == trace(judged)


def test_the_mean_judgement_rises(tmp_path: Path) -> None:
    live_with_judge(plan(30), tmp_path / "run", ToyHost)
    steps = [one for one in read_events(tmp_path / "run/events.jsonl") if isinstance(one, Ascended)]
    rewards = [float(np.mean(step.rewards)) for step in steps]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1


def test_verdicts_are_those_of_the_verifier(judged: Path) -> None:
    acts = [one for one in read_events(judged / "events.jsonl") if isinstance(one, Acted)]
    assert {verdict for act in acts for verdict in act.verdicts} == {0.0, 1.0}


def test_an_evaluation_asks_nobody(judged: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(judged, tmp_path / "run"))
    (folder / JUDGEMENTS_FILE).unlink()
    run = LoadedRun.of_run(folder)
    before = (folder / QUEUE_FILE).read_bytes()
    assert run.evaluate(run.items(4), ToyHost(), "single").rollouts
    assert (folder / QUEUE_FILE).read_bytes() == before
    assert not (folder / JUDGEMENTS_FILE).exists()


def test_equal_replies_to_one_question_wait_once_and_stand_together(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    with pytest.raises(WaitingError, match=r"^4 replies wait"):
        judgements.of(
            [
                outcome("a", "b", "a"),
                outcome("c", prompt="q: 2\n"),
                outcome("d", "a", prompt="an example\x1danswer\x1dq: 1\n"),
                outcome("e", purpose="probe"),
            ]
        )
    said = [(one.question, one.reply) for one in judgements.waiting()]
    assert said == [("q: 1", "a"), ("q: 1", "b"), ("q: 1", "d"), ("q: 2", "c")]


def test_what_one_user_says_is_not_said_for_another(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    judgements.add(GivenJudgement(WaitingReply("q: 1", "a", "h1").id, 1.0))
    with pytest.raises(WaitingError, match=r"^1 reply waits"):
        judgements.of([outcome("a", habitat="h1"), outcome("a", habitat="h2")])
    assert [one.habitat for one in judgements.waiting()] == ["h2"]


def test_every_rollout_of_practice_gets_its_judgement(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    for reply, worth in (("a", 0.25), ("b", 1.0)):
        judgements.add(GivenJudgement(WaitingReply("q: 1", reply).id, worth))
    practised, probed = judgements.of([outcome("a", "b", "a"), outcome("c", purpose="probe")])
    assert [one.judgement for one in practised.rollouts] == [0.25, 1.0, 0.25]
    assert [one.judgement for one in probed.rollouts] == [None]
    assert not (tmp_path / QUEUE_FILE).exists()


def test_the_first_judgement_counts(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    for worth in (0.25, 1.0):
        judgements.add(GivenJudgement("one", worth))
    assert judgements.known() == {"one": 0.25}


def test_a_hostile_reply_stays_one_line_of_each_file(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    with pytest.raises(WaitingError):
        judgements.of([outcome(HOSTILE, "fine", prompt=HOSTILE)])
    written = (tmp_path / QUEUE_FILE).read_bytes()
    assert written.count(b"\n") == 2
    assert all(32 <= byte < 127 or byte == 10 for byte in written)
    hostile, fine = judgements.waiting()
    assert (hostile.reply, fine.reply) == (HOSTILE, "fine")
    judgements.add(GivenJudgement(hostile.id, 1.0))
    assert judgements.waiting() == [fine]


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "a", "worth": 1.5}',
        '{"id": "a", "worth": NaN}',
        '{"id": "a", "worth": "good"}',
        '{"id": 3, "worth": 1}',
        '{"worth": 1}',
        "{}",
    ],
)
def test_a_damaged_judgement_is_named_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / JUDGEMENTS_FILE
    path.write_text(f'{{"id": "b", "worth": true}}\n{line}\n')
    with pytest.raises(RunError, match=r"judgements\.jsonl line 2: expected .* got") as error:
        Judgements(tmp_path).known()
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match=r"judgements\.jsonl line 2: expected .* got"):
        list(read_judgements(path))


def test_a_damaged_queue_is_written_anew(tmp_path: Path, judged: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(WaitingError):
        start(plan(), folder, host=ToyHost())
    (folder / QUEUE_FILE).write_text('{"id": "a"}\n')
    with pytest.raises(RunError, match=r"queue\.jsonl line 1: no reply that waits"):
        Judgements(folder).waiting()
    (folder / QUEUE_FILE).unlink()
    with pytest.raises(WaitingError):
        resume(folder, host=ToyHost())
    assert judge_all(folder)
    live_with_judge(plan(), folder, ToyHost)
    assert trace(folder) == trace(judged)
