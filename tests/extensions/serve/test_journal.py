"""The journal: what was acknowledged is on the disk, whatever happens to process or disk."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def answer(name: str, user: str = "ada", prompt: str = "math.add: 1+1\n") -> GivenAnswer:
    return GivenAnswer(name, user, "math.add", prompt, ("2", "two"), "o1")


@contextmanager
def opened(folder: Path, generation: int = 0) -> Iterator[Journal]:
    journal = Journal(folder, generation)
    yield journal
    journal.close()


def failing(number: int) -> Callable[..., None]:
    """A call of the system that fails."""

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_what_was_written_is_read_back_and_the_first_verdict_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.write(answer("a"), answer("b", "bob"), GivenVerdict("nothing", True))
        journal.write(GivenVerdict("a", True), GivenVerdict("b", False, choice=1, score=0.2))
        journal.write(GivenVerdict("a", False), GenerationBegun(3, 1), GenerationBegun(4, 2))
    with opened(tmp_path) as again:
        assert again.answer("a") == answer("a")
        assert again.verdict("a", 0) == GivenVerdict("a", True)
        assert again.verdict("b", 1) == GivenVerdict("b", False, 1, 0.2)
        assert [one.verdict.id for one in again.judged_in(3)] == ["a"]
        assert [one.answer.user for one in again.judged_in(4)] == ["bob"]
        assert again.judged_in(5) == []
        assert (again.verdicts, again.learned, again.generations) == (2, 2, [3, 4])


def test_a_correction_reaches_who_learns_unless_a_generation_has_begun(tmp_path: Path) -> None:
    def corrected(name: str) -> GivenVerdict:
        return GivenVerdict(name, False, correction=f"better {name}")

    with opened(tmp_path) as journal:
        journal.write(*(answer(name) for name in "abcd"), corrected("a"))
        journal.write(*(GivenVerdict(name, False) for name in "bc"), GivenVerdict("d", True))
        journal.write(corrected("b"), corrected("d"), GenerationBegun(3, 3), corrected("c"))
        kept = [one.verdict.correction for one in journal.judged_in(3)]
        assert kept == ["better a", "better b", ""]
    with opened(tmp_path) as again:
        assert [one.verdict.correction for one in again.judged_in(3)] == kept
        assert again.verdict("c", 0) == corrected("c")
        assert again.verdict("d", 0) == GivenVerdict("d", True)  # which was judged otherwise
        assert again.verdicts == 4


def test_a_torn_line_is_cut_off_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.write(answer("a"))
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + b'{"answer": {"id": "b"')
    with opened(tmp_path) as again:
        again.write(answer("c"))
    with opened(tmp_path) as last:
        assert last.answer("a")
        assert last.answer("c")
    path.write_text('{"answer": {"id": 3}}\n')
    with pytest.raises(RunError, match="line 1 is damaged"):
        Journal(tmp_path)


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as journal:
        journal.write(answer("a"))
        size = (tmp_path / JOURNAL_FILE).stat().st_size
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing(errno.ENOSPC))
            with pytest.raises(RunError, match="No space left"):
                journal.write(answer("b"))
        assert (tmp_path / JOURNAL_FILE).stat().st_size == size
        assert journal.answer("b") is None
        journal.write(answer("c"))
    with opened(tmp_path) as again:
        assert again.answer("b") is None
        assert again.answer("c")


def test_a_disk_that_fails_for_good_is_told_to_everybody_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleQueue[RunError | None]()
    with opened(tmp_path) as journal:
        journal.write(answer("a"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing(errno.EROFS))
            patched.setattr(os, "truncate", failing(errno.EROFS))
            journal.append([answer("b")], told.put)
            assert "Read-only file system" in str(told.get(timeout=10))
        journal.append([answer("c")], told.put)  # what could not be taken back is in the file
        assert "start the service again" in str(told.get(timeout=10))
        assert journal.answer("a")
        assert journal.answer("c") is None


def test_many_threads_write_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        threads = [
            threading.Thread(target=journal.write, args=[answer(f"a{place}")])
            for place in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with opened(tmp_path) as again:
        assert all(again.answer(f"a{place}") for place in range(40))


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """A journal that keeps three answers for verdicts."""
    assert MAX_JUDGEABLE >= 10_000
    monkeypatch.setattr("symbiont_ecology.extensions.serve.journal.MAX_JUDGEABLE", 3)
    with opened(tmp_path) as journal:
        yield journal


def test_memory_does_not_grow_with_what_was_learned(short: Journal, tmp_path: Path) -> None:
    def taken() -> int:
        """Bytes that are held, once a generation has learned from a long reply."""
        said = answer(f"a{short.verdicts}", prompt="x" * LONG)
        short.write(said, GivenVerdict(said.id, True))
        short.write(GenerationBegun(short.verdicts, short.verdicts))
        assert [one.answer for one in short.judged_in(short.verdicts)] == [said]
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    sizes = [taken() for _ in range(30)]
    assert max(sizes[5:]) < sizes[4] + LONG
    assert (short.answer("a2"), short.verdict("a2", 0)) == (None, None)
    assert (short.verdicts, short.learned) == (30, 30)
    with opened(tmp_path) as again:  # what a killed service lives again
        assert again.verdicts == 30
        assert [one.answer.id for one in again.judged_in(7)] == ["a6"]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with opened(tmp_path, 28) as again:
        most = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert most < 15 * LONG
        ids = [[one.answer.id for one in again.judged_in(k)] for k in (29, 30)]
        assert ids == [["a28"], ["a29"]]
        assert (again.verdicts, again.learned) == (30, 30)


def test_verdicts_that_nobody_learns_from_are_counted_and_not_held(short: Journal) -> None:
    short.write(answer("a0"), GivenVerdict("a0", True))
    short.stop_learning()
    short.write(answer("a1"), GivenVerdict("a1", True), GenerationBegun(0, 2))
    assert short.verdicts == 2
    assert short.verdict("a1", 0) == GivenVerdict("a1", True)
    assert short.judged_in(0) == []


def test_what_a_service_acknowledged_is_counted_once_however_often_it_fails(tmp_path: Path) -> None:
    told = Told({"a": "ada", "b": "bob", "c": "cem"}, {"a": True, "b": True})
    with opened(tmp_path) as journal:
        journal.write(answer("a"), GivenVerdict("a", True))
        assert checked(tmp_path, Told({"a": "ada"}, {"a": True}), 1) == Count(1, 2, 0, 0)
        journal.write(answer("b"), GivenVerdict("b", False))
    assert checked(tmp_path, told, 2) == Count(2, 5, lost=1, wrong=2)
