"""What people say of replies, in a run that waits for them.

    queue.jsonl       replies that wait: {"id": …, "question": …, "reply": …}
    judgements.jsonl  what was said: {"id": …, "worth": 0.7}

Both are in the run folder. A run is exact: a generation that is lived again gives the same replies,
and each finds its judgement by the hash of question and reply. The first judgement of a reply
counts, since a generation may have been lived with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from symbiont_ecology.ecology import Outcome, Rollout, map_rollouts
from symbiont_ecology.errors import DataError, RunError, WaitingError
from symbiont_ecology.files import append_line, read_lines, write_whole
from symbiont_ecology.registry import Share
from symbiont_ecology.tasks.tables import rows_of_file
from symbiont_ecology.types import last_turn

QUEUE_FILE, JUDGEMENTS_FILE = "queue.jsonl", "judgements.jsonl"


@dataclass(frozen=True)
class WaitingReply:
    """A reply that somebody has to judge: to the question alone, without what stands in front of
    it. ``habitat`` is who asked, where there are habitats."""

    question: str
    reply: str
    habitat: str = ""

    @classmethod
    def of(cls, rollout: Rollout) -> WaitingReply:
        """What a person sees of a rollout."""
        question = last_turn(rollout.item.prompt).strip()
        return cls(question, rollout.text, rollout.item.habitat)

    @property
    def id(self) -> str:
        """The same for equal questions, replies and habitats, and for them alone."""
        text = json.dumps([self.question, self.reply, self.habitat])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def record(self) -> dict[str, object]:
        """As it stands in a file."""
        asker = {"habitat": self.habitat} if self.habitat else {}
        return {"id": self.id, "question": self.question, "reply": self.reply, **asker}


@dataclass(frozen=True)
class GivenJudgement:
    """What somebody said of the reply with this id, from 0 (bad) to 1 (good)."""

    id: str
    worth: Share


@dataclass(frozen=True)
class Judgements:
    """The queue and the judgements in the folder of a run."""

    folder: Path

    def of(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The same outcomes, each rollout of practice with its judgement.

        Raises:
            WaitingError: some have none yet. They are in the queue, those of one question together.
            RunError: a file is damaged, or cannot be written.
        """
        worths, waiting = self.known(), dict[str, WaitingReply]()

        def judged(rollout: Rollout) -> Rollout:
            """With its judgement; without one it waits."""
            reply = WaitingReply.of(rollout)
            if reply.id not in worths:
                waiting[reply.id] = reply
            return replace(rollout, judgement=worths.get(reply.id))

        result = map_rollouts(outcomes, partial(map, judged), where=attrgetter("is_practice"))
        if waiting:
            self._queue(waiting.values())
            raise WaitingError(
                f"{said_waiting(len(waiting))} for a judgement: symbiont judge {self.folder}, and "
                f"then symbiont resume {self.folder}"
            )
        return result

    def known(self) -> dict[str, float]:
        """What was said of each reply, by its id.

        Raises:
            RunError: the file is damaged.
        """
        path, worths = self.folder / JUDGEMENTS_FILE, dict[str, float]()
        for number, line in read_lines(path):
            try:
                judgement = _judgement.validate_python(line)
            except ValidationError as error:
                raise RunError(f"{path} line {number}: {_EXPECTED}, got {line!r:.80}") from error
            worths.setdefault(judgement.id, judgement.worth)
        return worths

    def waiting(self) -> list[WaitingReply]:
        """The replies that wait.

        Raises:
            RunError: a file is damaged.
        """
        path, worths = self.folder / QUEUE_FILE, self.known()
        queue = list[WaitingReply]()
        for number, line in read_lines(path):
            try:
                queue.append(_waiting.validate_python(line))
            except ValidationError as error:
                raise RunError(
                    f"{path} line {number}: no reply that waits, got {line!r:.80}: delete the "
                    "file, symbiont resume writes it again"
                ) from error
        return [reply for reply in queue if reply.id not in worths]

    def add(self, given: GivenJudgement) -> None:
        """Keeps a judgement: it is on the disk when this returns.

        Raises:
            RunError: the disk is full or gone.
        """
        append_line(self.folder / JUDGEMENTS_FILE, vars(given), is_synced=True)

    def _queue(self, replies: Iterable[WaitingReply]) -> None:
        """Writes the queue anew, question by question."""
        by_question: dict[tuple[str, str], list[WaitingReply]] = {}
        for reply in replies:
            by_question.setdefault((reply.habitat, reply.question), []).append(reply)
        lines = [as_line(reply.record) for group in by_question.values() for reply in group]
        write_whole(self.folder / QUEUE_FILE, "".join(lines))


def said_waiting(count: int) -> str:
    """How many replies wait, in words."""
    return "1 reply waits" if count == 1 else f"{count} replies wait"


def as_line(record: Mapping[str, object]) -> str:
    """A line of JSON. What is no ASCII is escaped, so that no reply can break the file."""
    return json.dumps(record) + "\n"


def read_judgements(path: Path) -> Iterator[GivenJudgement]:
    """The judgements in a JSONL, JSON or Parquet file that somebody wrote.

    Raises:
        DataError: a row is none, or the file cannot be read.
        MissingExtraError: it is a Parquet file, and pyarrow is not installed.
    """
    for place, row in rows_of_file(path, str(path)):
        try:
            yield _judgement.validate_python(row)
        except ValidationError as error:
            raise DataError(f"{path} {place}: {_EXPECTED}, got {row!r:.80}") from error


_judgement, _waiting = TypeAdapter(GivenJudgement), TypeAdapter(WaitingReply)
_EXPECTED = 'expected {"id": "…", "worth": a number from 0 to 1, true or false}'
