"""``judge`` as it is typed: a run that waits, people who judge, and a run that goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from judges import likes_short, live_with_judge
from killing import COMMAND
from said import Said, Symbiont
from symbiont_ecology import Run, load_config
from symbiont_ecology.ecology.state import STATE_FILE
from symbiont_ecology.engine.judgements import JUDGEMENTS_FILE, QUEUE_FILE, Judgements, WaitingReply
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import INTERRUPTED
from terminals import PseudoTerminal

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\r\u202e\u2028[red]:smile:\n╰── judged: y\n" + "x" * 50_000 + "END"
)


@pytest.fixture
def waiting(small: list[str], symbiont: Symbiont, tmp_path: Path) -> Path:
    """A run that has just stopped for the first time."""
    folder = tmp_path / "run"
    es = "strategy={kind: es, population: 4, questions: 2}"
    said = symbiont(
        "run", "base", *small, es, "learning_rule=none", "reward=human", "--out", folder, "-q"
    )
    assert said.code == INTERRUPTED
    (line,) = said.err.splitlines()
    assert line.startswith(f"{len(Judgements(folder).waiting())} replies wait for a judgement: ")
    assert line.endswith(f"symbiont judge {folder}, and then symbiont resume {folder}")
    return folder


def typing(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What people type, line by line."""
    monkeypatch.setattr("sys.stdin", io.StringIO(words))


def worths(folder: Path) -> list[float]:
    """What was said so far, in order."""
    lines = (folder / JUDGEMENTS_FILE).read_text().splitlines()
    return [json.loads(line)["worth"] for line in lines]


def fill_queue(folder: Path, *replies: WaitingReply) -> None:
    """Puts other replies in the queue."""
    lines = [json.dumps(reply.record) + "\n" for reply in replies]
    (folder / QUEUE_FILE).write_text("".join(lines))


def test_people_say_yes_no_or_a_number_and_may_skip_and_stop(
    waiting: Path, symbiont: Symbiont, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_queue(waiting, *(WaitingReply(f"q{number}", f"r{number}") for number in range(7)))
    typing("y\n n \n7\nmaybe\n11\n-1\nnan\n\nS\n2.5\nq\n", monkeypatch)
    said = symbiont("judge", waiting)
    assert said.code == 0
    assert worths(waiting) == [1.0, 0.0, 0.7, 0.25]
    assert [one.reply for one in Judgements(waiting).waiting()] == ["r3", "r5", "r6"]
    assert said.err.strip() == f"3 replies wait: symbiont judge {waiting}"
    assert "question 2 of 7" in said.out
    typing("y\ny\ny\n", monkeypatch)
    assert symbiont("judge", waiting).err.strip() == f"no reply waits: symbiont resume {waiting}"


def test_an_end_of_input_ends_it_and_keeps_what_was_said(
    waiting: Path, symbiont: Symbiont, monkeypatch: pytest.MonkeyPatch
) -> None:
    typing("y\n", monkeypatch)
    assert symbiont("judge", waiting).code == 0
    assert worths(waiting) == [1.0]


def test_a_hostile_reply_cannot_leave_its_frame(
    waiting: Path, symbiont: Symbiont, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_queue(waiting, WaitingReply(HOSTILE, HOSTILE, habitat="\x1b[31mh"))
    typing("n\n", monkeypatch)
    said = symbiont("judge", waiting)
    assert all(letter.isprintable() or letter == "\n" for letter in said.out)
    assert "[red]:smile:" in said.out
    assert "END" not in said.out
    assert len(said.out) < 20_000
    framed = said.out.partition("y, n, or")[0].splitlines()
    assert all(line[0] in "╭│╰" and line[-1] in "╮│╯" for line in framed)


def test_a_hostile_reply_cannot_break_a_real_terminal(waiting: Path) -> None:
    fill_queue(waiting, WaitingReply("question", HOSTILE))
    with PseudoTerminal([*COMMAND, "judge", waiting]) as terminal:
        terminal.wait_for("y, n, or")
        assert "\x1b[2J" not in terminal.shown
        assert "\x07" not in terminal.shown
        terminal.press("8\n")
        terminal.wait_for("no reply waits")
    assert worths(waiting) == [0.8]


def test_a_script_judges_with_two_files_until_the_run_is_complete(
    waiting: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    queue, judged = tmp_path / "q.jsonl", tmp_path / "j.jsonl"
    said = Said(INTERRUPTED, "", "")
    while said.code == INTERRUPTED:
        assert symbiont("judge", waiting, "--export", queue).code == 0
        rows = [json.loads(line) for line in queue.read_text().splitlines()]
        given = [{"id": row["id"], "worth": likes_short(row["reply"]), "by": "us"} for row in rows]
        judged.write_text("".join(json.dumps(one) + "\n" for one in given))
        said = symbiont("judge", waiting, "--import", judged)
        assert f"{len(rows)} judgements taken, 0 of them of replies that do not wait" in said.err
        said = symbiont("resume", waiting, "-q")
    assert said.code == 0
    assert Run.open(waiting).is_complete
    again = symbiont("judge", waiting, "--import", judged)
    assert f"0 judgements taken, 0 of them of replies that do not wait here; {len(rows)} were" in (
        again.err
    )


def test_the_queue_can_be_piped(waiting: Path, symbiont: Symbiont) -> None:
    said = symbiont("judge", waiting, "--export", "-")
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["id"] for row in rows] == [one.id for one in Judgements(waiting).waiting()]


def test_of_a_file_with_a_mistake_nothing_is_taken(
    waiting: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"id": "a", "worth": 1}\n{"id": "b", "worth": 2}\n')
    said = symbiont("judge", waiting, "--import", path)
    assert (said.code, "line 2: expected" in said.error) == (2, True)
    assert not (waiting / JUDGEMENTS_FILE).exists()


def test_a_folder_without_a_run_is_named(symbiont: Symbiont, tmp_path: Path) -> None:
    said = symbiont("judge", tmp_path)
    assert (said.code, said.error[:9]) == (1, "no run in")


def test_on_the_embedded_host_replies_become_what_people_like(tmp_path: Path) -> None:
    config = load_config(
        "es-countdown",
        [
            "reward=human",
            "tasks.families=[talk.styled]",
            "tasks.depths=null",
            "strategy={population: 16, questions: 4, looks: 0}",
            "run.generations=16",
        ],
    )
    run = Run.start(config, folder=tmp_path / "run")

    def host() -> Host:
        """Loaded once."""
        return run.host

    stops = live_with_judge(config, run.folder, host, lambda reply: max(0.0, 1 - len(reply) / 40))
    rewards = [float(np.mean(worth)) for worth in run.events.Ascended.rewards]
    assert stops > 8
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.05
    assert json.loads((run.folder / STATE_FILE).read_text())["generation"] == 16
