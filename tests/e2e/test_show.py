"""Replies of a run, as a user reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted
from symbiont_ecology.transcripts import Transcript, TranscriptLog, read_transcripts


def test_every_rollout_of_a_small_run_is_kept_and_can_be_shown(
    symbiont: Symbiont, lived: Path, tmp_path: Path
) -> None:
    acts = [event for event in read_events(lived / "events.jsonl") if isinstance(event, Acted)]
    asked = [act for act in acts if act.id != "host"]
    wanted = [(act.generation, act.id, verdict) for act in asked for verdict in act.verdicts]
    said = symbiont("show", lived, "--last", 0, "--json", tmp_path / "all.json")
    rows = json.loads((tmp_path / "all.json").read_text())
    assert [(row["generation"], row["id"], row["verdict"]) for row in rows] == wanted
    assert len(said.out.splitlines()) == len(wanted)
    assert f"{len(wanted)} of {len(wanted)} replies" in said.err


def test_one_organelle_one_cell_and_one_verdict_can_be_chosen(
    symbiont: Symbiont, lived: Path
) -> None:
    kept = read_transcripts(lived / "transcripts.jsonl").transcripts
    one = kept[0]
    words = ["--organelle", one.id, "--cell", one.cell, "--right" if one.is_right else "--wrong"]
    said = symbiont("show", lived, *words, "--last", 0, "--json", "-")
    rows = json.loads(said.out)
    assert rows == [
        vars(other)
        for other in kept
        if (other.id, other.cell, other.is_right) == (one.id, one.cell, one.is_right)
    ]


def test_text_of_a_model_cannot_steer_the_terminal(symbiont: Symbiont, copied: Path) -> None:
    (copied / "transcripts.jsonl").unlink()
    log = TranscriptLog(copied / "transcripts.jsonl", 1.0)
    log.rewind(0)
    one = Transcript(
        0, "o1", "practice", "a/b", "i", "p\x1b[2J", "r\u202e\ud800\n" + "x" * 99, 1, 0, -1
    )
    log.write([one, replace(one, confidence=None), replace(one, id="o\x1b[1m", habitat="a\x1b[3m")])
    said = symbiont("show", copied)
    assert "\\u001b[2J" in said.out
    assert "o\\u001b[1m a\\u001b[3m" in said.out
    assert "\x1b" not in said.out
    assert "\\u202e\\ud800\\nxxx" in said.out
    assert said.out.isascii() or "\u202e" not in said.out
    assert "  37%  " in said.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--habitat", "h1"], "no reply of 'h1'"),
        (["--organelle", "o999"], "there are o"),
        (["--wrong", "--right"], "leave one out"),
    ],
)
def test_what_is_not_there_is_one_line(
    words: list[str], error: str, symbiont: Symbiont, lived: Path
) -> None:
    said = symbiont("show", lived, *words)
    assert said.code == 2
    assert error in said.error


def test_a_run_without_replies_says_so(symbiont: Symbiont, copied: Path) -> None:
    (copied / "transcripts.jsonl").unlink()
    said = symbiont("show", copied)
    assert said.code == 1
    assert "run.transcripts=0" in said.error
