"""Transcripts of a run: what was asked and what was replied, beside its event log.

One JSON line per reply behind a header line::

    {"schema":1,"one_in":1}
    {"generation":3,"id":"o7","cell":"math.add/short","prompt":"math.add: 47+8","reply":"55",...}

The file has a bound. When it outgrows it, every second line goes, and of the later lines every
second one is not written: ``one_in`` doubles. Which lines stay follows from their own text, so what
is left is a fair sample. A run that is killed and resumed keeps the same lines, as its generations
are the same. The run does not need the file while it lives: it can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import append_lines, write_whole
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
    habitat: str = ""
    target: str = ""
    examples: int = 0

    @property
    def is_right(self) -> bool:
        """True if the verifier gave at least half of the full reward."""
        return self.verdict >= 0.5


@dataclass(frozen=True, repr=False)
class Transcripts:
    """The transcripts of a run: all of them, or one in ``one_in``, by draw."""

    one_in: int
    transcripts: Sequence[Transcript]

    def __repr__(self) -> str:
        share = f", one in {self.one_in}" if self.one_in > 1 else ""
        return f"<{len(self.transcripts)} replies{share}>"


class TranscriptLog:
    """The writing end. ``most_megabytes`` bounds the file; 0 keeps none."""

    def __init__(self, path: Path, most_megabytes: float) -> None:
        self.path, self._most_bytes = path, int(most_megabytes * MEGABYTE)
        self._one_in, self._bytes = 1, 0

    def rewind(self, generation: int) -> None:
        """Drop what a generation and later ones said, and a line that a crash tore. The file is
        begun if there is none.

        Raises:
            RunError: the file cannot be read or written, or is something else.
        """
        if not self._most_bytes:
            return
        one_in, lines = _lines(self.path)
        self._one_in = one_in if generation else 1
        self._rewrite(line for line in lines if _parsed(line, self.path).generation < generation)

    def write(self, transcripts: Iterable[Transcript]) -> None:
        """Add those that belong to the sample, and thin the file out if it is too large now.

        Raises:
            RunError: the disk is full or gone.
        """
        if not self._most_bytes:
            return
        lines = (_line(transcript) for transcript in transcripts)
        text = b"".join(line for line in lines if _is_sampled(line, self._one_in))
        if not self.path.exists():  # new, or deleted meanwhile
            self._rewrite(())
        append_lines(self.path, text)
        self._bytes += len(text)
        while self._bytes > self._most_bytes and self._one_in < _NEVER:
            self._one_in *= 2
            self._rewrite(_lines(self.path)[1])

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        sample = [line for line in lines if _is_sampled(line, self._one_in)]
        text = b"".join([_line_of_header(self._one_in), *sample])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, text)
        self._bytes = len(text)


def read_transcripts(path: Path) -> Transcripts:
    """Return what was kept of a run's replies; nothing where there is no file.

    Raises:
        RunError: the file is something else, or damaged.
    """
    one_in, lines = _lines(path)
    return Transcripts(one_in, [_parsed(line, path) for line in lines])


def plain(text: str, widest: int) -> str:
    """Return a text of a model or of data in one line of about so many characters. What is no plain
    letter, such as a control character, is escaped: it would reach the terminal."""
    text = text.strip()
    return escaped(text if len(text) <= widest else text[: widest - 1] + "…")


def escaped(text: str) -> str:
    """Return the text with everything escaped that is no plain letter, ends of lines included."""
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


_NEVER = 2**60
_DELETE = "delete it, the run does without"
_transcript = TypeAdapter(Transcript)
_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _line_of_header(one_in: int) -> bytes:
    return (_JSON.encode({"schema": TRANSCRIPTS_SCHEMA, "one_in": one_in}) + "\n").encode()


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
        return _transcript.validate_python(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: {line!r:.60} is no transcript; {_DELETE}") from error


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - len(CUT)] + CUT


def _is_sampled(line: bytes, one_in: int) -> bool:
    """Return true if a line is among the one in so many that stay: its hash says so."""
    if one_in == 1:
        return True
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big") % one_in == 0


def _lines(path: Path) -> tuple[int, list[bytes]]:
    """Return the share that is kept, and all whole lines but the header; nothing where there is no
    file."""
    try:
        header, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    except FileNotFoundError:
        return 1, []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    try:
        first = dict(json.loads(header or _line_of_header(1)))
        if first.get("schema") != TRANSCRIPTS_SCHEMA or int(first["one_in"]) < 1:
            raise ValueError
        return int(first["one_in"]), [line for line in lines if line.endswith(b"\n")]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(
            f"{path}: expected transcripts of schema {TRANSCRIPTS_SCHEMA}, got {header!r:.60}; "
            f"{_DELETE}"
        ) from error
