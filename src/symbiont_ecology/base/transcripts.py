"""Transcripts of a run: what was asked and what was replied, beside its event log.

One JSON line per reply behind a header line::

    {"schema":1,"one_in":1}
    {"generation":3,"id":"o7","cell":"math.add/short","prompt":"math.add: 47+8","reply":"55",...}

The file has a bound: a generation that finds it reached writes nothing more. A run that is killed
and resumed keeps the same lines, as its generations are the same. The run does not need the file
while it lives: it can be deleted at any time. Files of earlier versions may hold one reply in
``one_in``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import MISSING, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from symbiont_ecology.base.errors import EcologyWarning, RunError
from symbiont_ecology.base.files import append_lines, write_whole
from symbiont_ecology.base.removed import with_present_fields
from symbiont_ecology.base.types import OrganelleId

TRANSCRIPTS_FILE = "transcripts.jsonl"
TRANSCRIPTS_SCHEMA = 1
MEGABYTE = 1_000_000
MAX_CHARS = 2_000
"""Characters of a prompt or a reply that are kept."""
CUT = " […]"
"""Stands at the end of a text that was longer."""


@dataclass(frozen=True)
class Transcript:
    """One reply. ``price`` is what a full reward paid, in mATP; 0 where nothing was paid.

    ``confidence`` is the mean log-probability per token of the reply, in nats; None if it is not
    finite. ``item`` and ``generation`` are those of the event ``Acted``. ``target`` is the
    reference answer, where there is one: no organelle that learns from verdicts sees it.
    ``prompt`` is the question alone; ``examples`` counts the solved ones that stood in front of it.
    """

    generation: int
    id: OrganelleId
    purpose: str
    cell: str
    item: str
    prompt: str
    reply: str
    verdict: float
    price: int
    confidence: float | None
    user: str = ""
    target: str = ""
    examples: int = 0

    @property
    def is_right(self) -> bool:
        """True if the verifier gave at least half of the full reward."""
        return self.verdict >= 0.5


class TranscriptLog:
    """The writing end. ``max_megabytes`` bounds the file; 0 keeps none."""

    def __init__(self, path: Path, max_megabytes: float) -> None:
        self.path, self._max_bytes = path, int(max_megabytes * MEGABYTE)
        self._is_full = False

    def rewind(self, generation: int) -> None:
        """Drop what a generation and later ones said, and a line that a crash tore. The file is
        begun if there is none.

        Raises:
            RunError: the file cannot be read or written, or is something else.
        """
        if not self._max_bytes:
            return
        lines = _lines(self.path)
        kept = [line for line in lines if _parsed(line, self.path).generation < generation]
        write_whole(self.path, b"".join([_HEADER, *kept]))

    def write(self, transcripts: Iterable[Transcript]) -> None:
        """Add the replies of a generation; once the file is full, warn instead, and then be quiet.

        Raises:
            RunError: the disk is full or gone.
        """
        if not self._max_bytes or self._is_full:
            return
        if not self.path.exists():  # new, or deleted meanwhile
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, _HEADER)
        if self.path.stat().st_size < self._max_bytes:
            append_lines(self.path, b"".join(map(_line, transcripts)))
            return
        self._is_full = True
        text = f"{self.path} is full, later replies are not kept: raise run.transcripts"
        warnings.warn(text, EcologyWarning, stacklevel=2)


def read_transcripts(path: Path) -> list[Transcript]:
    """Return what was kept of a run's replies; nothing where there is no file.

    Raises:
        RunError: the file is something else, or damaged.
    """
    return [_parsed(line, path) for line in _lines(path)]


def plain(text: str, widest: int) -> str:
    """Return a text of a model or of data in one line of about so many characters. What is no plain
    letter, such as a control character, is escaped: it would reach the terminal."""
    text = text.strip()
    return escaped(text if len(text) <= widest else text[: widest - 1] + "…")


def escaped(text: str) -> str:
    """Return the text with everything escaped that is no plain letter, ends of lines included.
    Joiners stay: they are part of words and of emoji."""
    return "".join(
        letter if letter.isprintable() or letter in "\u200c\u200d" else json.dumps(letter)[1:-1]
        for letter in text
    )


_DELETE = "delete it, the run does without"
_transcript = TypeAdapter(Transcript)
_HEADER = b'{"schema":1,"one_in":1}\n'
_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _line(transcript: Transcript) -> bytes:
    """Return one reply as JSON; surrogates that no file can hold are escaped."""
    fields = {
        name: _cut(value) if isinstance(value, str) else value
        for name, value in vars(transcript).items()
        if value != getattr(Transcript, name, MISSING)
    }
    return (_JSON.encode(fields) + "\n").encode(errors="backslashreplace")


def _parsed(line: bytes, path: Path) -> Transcript:
    try:
        return _transcript.validate_python(with_present_fields(json.loads(line)))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: {line!r:.60} is no transcript; {_DELETE}") from error


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - len(CUT)] + CUT


def _lines(path: Path) -> list[bytes]:
    """Return all whole lines but the header; nothing where there is no file."""
    try:
        header, *lines = path.read_bytes().splitlines(keepends=True) or [_HEADER]
        if dict(json.loads(header)).get("schema") != TRANSCRIPTS_SCHEMA:
            raise ValueError
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(
            f"{path}: expected transcripts of schema {TRANSCRIPTS_SCHEMA}; {_DELETE}"
        ) from error
    return [line for line in lines if line.endswith(b"\n")]
