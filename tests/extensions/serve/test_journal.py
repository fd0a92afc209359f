"""The journal: what was acknowledged is on the disk, whatever happens to process or disk."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from service_faults import Count, Told, checked
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.extensions.serve.journal import (
    MAX_JUDGEABLE,
    GenerationBegun,
    GivenAnswer,
    GivenVerdict,
    Journal,
)
from symbiont_ecology.run.open_run import JOURNAL_FILE

LONG = 200_000
"""Letters of a long prompt."""


def answer(name: str, user: str = "ada") -> GivenAnswer:
    return GivenAnswer(name, user, "math.add", "math.add: 1+1\n", ("2", "two"), "o1")


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(answer("a"), answer("b", "bob"))
    journal.write(GivenVerdict("a", True), GivenVerdict("b", False, choice=1, score=0.2))
    journal.write(GenerationBegun(3, 1), GenerationBegun(4, 2))
    journal.close()
    again = Journal(tmp_path)
    assert again.answer("a") == answer("a")
    assert again.verdict("b", 1) == GivenVerdict("b", False, 1, 0.2)
    assert [one.verdict.id for one in again.judged_in(3)] == ["a"]
    assert [one.answer.user for one in again.judged_in(4)] == ["bob"]
    assert again.judged_in(5) == []
    assert (again.verdicts, again.learned, again.generations) == (2, 2, [3, 4])
    again.close()


def test_the_first_verdict_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(answer("a"), GivenVerdict("a", True), GivenVerdict("a", False))
    assert journal.verdicts == 1
    kept = journal.verdict("a", 0)
    assert kept is not None
    assert kept.is_accepted
    journal.close()


def test_a_verdict_on_nothing_is_not_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(GivenVerdict("nothing", True))
    assert journal.verdicts == 0
    journal.close()


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(answer("a"))
    journal.close()
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + b'{"answer": {"id": "b"')
    again = Journal(tmp_path)
    again.write(answer("c"))
    again.close()
    last = Journal(tmp_path)
    assert last.answer("a")
    assert last.answer("c")
    last.close()


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_text('{"answer": {"id": 3}}\n')
    with pytest.raises(RunError, match="line 1 is damaged"):
        Journal(tmp_path)


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write(answer("a"))
    size = (tmp_path / JOURNAL_FILE).stat().st_size

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="No space left"):
            journal.write(answer("b"))
    assert (tmp_path / JOURNAL_FILE).stat().st_size == size
    assert journal.answer("b") is None
    journal.write(answer("c"))
    journal.close()
    again = Journal(tmp_path)
    assert again.answer("b") is None
    assert again.answer("c")
    again.close()


def test_a_disk_that_fails_for_good_is_told_to_everybody_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.write(answer("a"))

    def read_only(*arguments: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    told = SimpleQueue[RunError | None]()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", read_only)
        patched.setattr(os, "truncate", read_only)
        journal.append([answer("b")], told.put)
        assert "Read-only file system" in str(told.get(timeout=10))
    journal.append([answer("c")], told.put)  # what could not be taken back is still in the file
    assert "start the service again" in str(told.get(timeout=10))
    assert journal.answer("a")
    assert journal.answer("c") is None
    journal.close()


def test_many_threads_write_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    threads = [
        threading.Thread(target=lambda place=place: journal.write(answer(f"a{place}")))
        for place in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    again = Journal(tmp_path)
    assert all(again.answer(f"a{place}") for place in range(40))
    again.close()


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal that keeps three answers for verdicts."""
    assert MAX_JUDGEABLE >= 10_000
    monkeypatch.setattr("symbiont_ecology.extensions.serve.journal.MAX_JUDGEABLE", 3)
    return Journal(tmp_path)


def test_only_the_newest_answers_can_be_judged(short: Journal) -> None:
    short.write(*(answer(f"a{place}") for place in range(5)))
    assert short.answer("a1") is None
    assert short.answer("a2")
    short.close()


def test_memory_does_not_grow_with_what_was_learned(short: Journal, tmp_path: Path) -> None:

    def taken() -> int:
        """Bytes that are held, once a generation has learned from a long reply."""
        said = replace(answer(f"a{short.verdicts}"), prompt="x" * LONG)
        short.write(said, GivenVerdict(said.id, True))
        short.write(GenerationBegun(short.verdicts, short.verdicts))
        assert [one.answer for one in short.judged_in(short.verdicts)] == [said]
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        sizes = [taken() for _ in range(30)]
    finally:
        tracemalloc.stop()
    assert max(sizes[5:]) < sizes[4] + LONG
    assert short.verdict("a2", 0) is None
    assert (short.verdicts, short.learned) == (30, 30)
    short.close()
    again = Journal(tmp_path)  # what a killed service lives again
    assert again.verdicts == 30
    assert [one.answer.id for one in again.judged_in(7)] == ["a6"]
    again.close()


def test_a_start_holds_only_what_generations_behind_the_checkpoint_learn_from(
    short: Journal, tmp_path: Path
) -> None:
    for place in range(30):
        said = replace(answer(f"a{place}"), prompt="x" * LONG)
        short.write(said, GivenVerdict(said.id, True), GenerationBegun(place, place + 1))
    short.close()
    tracemalloc.start()
    try:
        again = Journal(tmp_path, 28)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 15 * LONG
    assert [[one.answer.id for one in again.judged_in(k)] for k in (28, 29)] == [["a28"], ["a29"]]
    assert (again.verdicts, again.learned) == (30, 30)
    again.close()


def test_verdicts_that_nobody_learns_from_are_counted_and_not_held(short: Journal) -> None:
    short.write(answer("a0"), GivenVerdict("a0", True))
    short.stop_learning()
    short.write(answer("a1"), GivenVerdict("a1", True), GenerationBegun(0, 2))
    assert short.verdicts == 2
    assert short.verdict("a1", 0) == GivenVerdict("a1", True)
    assert short.judged_in(0) == []
    short.close()


def test_a_long_journal_is_read_line_by_line(short: Journal, tmp_path: Path) -> None:
    for place in range(30):
        short.write(replace(answer(f"a{place}"), prompt="x" * LONG))
    short.close()
    tracemalloc.start()
    try:
        again = Journal(tmp_path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 15 * LONG
    assert again.answer("a29")
    again.close()


def test_what_a_service_acknowledged_is_counted_once_however_often_it_fails(tmp_path: Path) -> None:
    told = Told({"a": "ada", "b": "bob", "c": "cem"}, {"a": True, "b": True})
    journal = Journal(tmp_path)
    journal.write(answer("a"), GivenVerdict("a", True))
    assert checked(tmp_path, Told({"a": "ada"}, {"a": True}), 1) == Count(1, 2, 0, 0)
    journal.write(answer("b"), GivenVerdict("b", False))
    journal.close()
    assert checked(tmp_path, told, 2) == Count(2, 5, lost=1, wrong=2)
