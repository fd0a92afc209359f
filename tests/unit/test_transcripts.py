"""Transcripts: all replies until a file is full, and nothing that a run needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.transcripts import MAX_CHARS, Transcript, TranscriptLog, read_transcripts

ONE = Transcript(0, "o1", "practice", "math.add/short", "i", "math.add: 1+1", "2", 1.0, 1500, -0.5)


def many(count: int, generation: int = 0) -> list[Transcript]:
    return [replace(ONE, generation=generation, reply=str(n)) for n in range(count)]


def log(folder: Path, megabytes: float = 1.0) -> TranscriptLog:
    made = TranscriptLog(folder / "transcripts.jsonl", megabytes)
    made.rewind(0)
    return made


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    odd = replace(ONE, prompt="a\nb\u2028\u202e</script>\x00", reply="\ud800 ☃", confidence=None)
    written = log(tmp_path)
    written.write([ONE, odd, replace(ONE, user="h3")])
    assert read_transcripts(written.path) == [ONE, odd, replace(ONE, user="h3")]


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    written = log(tmp_path)
    written.write([replace(ONE, reply="x" * MAX_CHARS), replace(ONE, reply="x" * (MAX_CHARS + 1))])
    whole, cut = read_transcripts(written.path)
    assert whole.reply == "x" * MAX_CHARS
    assert len(cut.reply) == MAX_CHARS
    assert cut.reply.endswith("[…]")


def test_a_run_does_without_the_file(tmp_path: Path) -> None:
    assert read_transcripts(tmp_path / "transcripts.jsonl") == []
    resumed = TranscriptLog(tmp_path / "transcripts.jsonl", 1.0)
    resumed.rewind(5)
    resumed.write(many(2, 5))
    assert len(read_transcripts(resumed.path)) == 2


def test_zero_megabytes_keep_nothing(tmp_path: Path) -> None:
    log(tmp_path, 0).write([ONE])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["{}\n", "no\n", "\n", '{"schema":2,"one_in":1}\n', '{"schema":1,"one_in":1}\n{"a":1}\n'],
)
def test_a_foreign_file_is_named_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "transcripts.jsonl"
    path.write_text(text)
    for reads in (lambda: read_transcripts(path), lambda: TranscriptLog(path, 1.0).rewind(1)):
        with pytest.raises(RunError, match=r"transcripts.jsonl: .*delete it"):
            reads()
