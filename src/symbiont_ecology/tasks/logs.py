"""A log of replies that users accepted or refused: ``{kind: log, name: thumbs, path: log.jsonl}``.

A row has a user, a prompt, a reply and a verdict. Adapters learn from them without asking the
model again (``tasks.users``). One prompt in ten, by its hash, is held out.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.files import Stamp
from symbiont_ecology.base.removed import with_present_fields
from symbiont_ecology.base.types import Item, LoggedReply
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.data import (
    ASKER_END,
    MIN_REPLY_TOKENS,
    DataLine,
    DataTask,
    DataUsers,
    TaskName,
    check_gradable,
)
from symbiont_ecology.tasks.grading import graders
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.tables import (
    as_written,
    check_columns,
    check_whole,
    locate,
    name_in,
    rows_of_file,
    text_in,
)

LOG_COLUMNS = ("user", "prompt", "reply", "accepted", "family")
"""Of a log; the last may be missing."""
DEPTH = "short"
"""Of every row: a log does not say how hard a question is."""
MAX_FAMILIES = 64
"""More of them are no families."""
MAX_REPLY_TOKENS = 256
"""Of a new reply, whatever was accepted: a report asks for hundreds."""
HELD_OUT = 10
"""One prompt in so many is held out."""
YES = ("true", "t", "yes", "y", "accepted", "up", "1")
NO = ("false", "f", "no", "n", "refused", "down", "0", "-1")
"""Words for a verdict, in small or capital letters; numbers and true or false are read as words.
One file that says both 0 and -1 may mean three things by them."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """A reply that a user accepted or refused; ``place`` is its row in the file, from 1."""

    place: int
    user: str
    family: str
    prompt: str
    reply: str
    is_accepted: bool

    @property
    def question(self) -> str:
        """The user who asked, and the prompt."""
        return f"{self.user}{ASKER_END}{self.prompt}"


@dataclass(frozen=True, eq=False, repr=False)
class LogTask(DataTask):
    """The rows of a log. ``lines`` are its questions of which a reply was accepted, with these
    replies as answers: an evaluation asks for one of them."""

    log: tuple[LogRow, ...] = field(default=(), kw_only=True)

    @cached_property
    def digest(self) -> str:
        rows = [[row.question, row.reply, row.is_accepted] for row in self.log]
        return sha256(json.dumps(rows).encode()).hexdigest()

    @cached_property
    def users(self) -> Sequence[str]:
        return list(dict.fromkeys(row.user for row in self.log))

    def split(self, line: DataLine) -> Split:
        return "holdout" if is_held_out(line.prompt) else "train"  # the same for all users

    def item(self, question: str, depth: str) -> Item:
        """Return the item of a question: a new reply may be as long as those accepted."""
        longest = max((len(reply.encode()) for reply in self._answers[question]), default=0)
        limit = min(max(longest + 1, MIN_REPLY_TOKENS), MAX_REPLY_TOKENS)
        return replace(super().item(question, depth), reply_limit=limit)

    @cached_property
    def _answers(self) -> Mapping[str, tuple[str, ...]]:
        return {row.question: () for row in self.log} | dict(super()._answers)


@task_sources.register("log")
@dataclass(frozen=True)
class LogTasks:
    """Rows of a table, each with a user, a prompt, a reply and its verdict. It is a JSON, JSONL,
    CSV, TSV or Parquet file.

    A verdict is true or false, 1 or 0 (or -1), or a word such as yes, no, up or down. A row without
    one (null), or with an empty reply, is left out. A column ``family``, if there is one, says what
    a row is about: then kinds of users are found with fewer rows. ``only`` takes the rows of one
    family.
    """

    name: TaskName  # of the task: letters, digits, dots, dashes
    path: str  # a JSON, JSONL, CSV, TSV or Parquet file, from the current folder
    columns: dict[str, str] = field(default_factory=dict)  # other names, such as {user: user}
    only: str | None = None  # the family whose rows are taken; None takes all

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", with_present_fields(self.columns))
        if unknown := set(self.columns) - set(LOG_COLUMNS):
            raise ValueError(
                f"columns: expected some of {', '.join(LOG_COLUMNS)}, got {sorted(unknown)[0]!r}"
            )

    def __str__(self) -> str:
        return f"log {self.path}"

    def task(self) -> LogTask:
        """Return the rows; read once, and again when the file has changed."""
        knobs = json.dumps(vars(self))  # text, since columns are a mapping, which has no hash
        return _task(knobs, *locate(self.path, str(self)))

    def rows(self) -> tuple[LogRow, ...]:
        """Return all rows with a verdict.

        Raises:
            DataError: the file cannot be read, or a row breaks the schema; the message names it.
            MissingExtraError: a Parquet file, and pyarrow is not installed.
        """
        columns = tuple(self.columns.get(name, name) for name in LOG_COLUMNS)
        return _read(*locate(self.path, str(self)), columns, str(self))


@lru_cache(maxsize=2 * MAX_FAMILIES)
def _task(knobs: str, path: Path, stamp: Stamp) -> LogTask:
    """Return the task of a source, which is given as JSON; ``stamp`` changes with the file."""
    source = LogTasks(**json.loads(knobs))
    rows = tuple(row for row in source.rows() if source.only in (None, row.family))
    accepted: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in rows:
        if row.is_accepted:
            accepted[row.user, row.prompt][row.reply] = None
    lines = tuple(
        DataLine(DEPTH, prompt, tuple(replies), user)
        for (user, prompt), replies in accepted.items()
    )
    if all(is_held_out(line.prompt) for line in lines):
        raise DataError(
            f"{source}: expected replies that were accepted, got none to learn; one prompt in "
            f"{HELD_OUT} is held out: add rows"
        )
    task = LogTask(source.name, lines, str(source), graders.build("exact"), log=rows)
    check_gradable((str(source), task.item(line.question, DEPTH)) for line in lines)
    return task


@lru_cache(maxsize=4)
def _read(path: Path, stamp: Stamp, columns: tuple[str, ...], about: str) -> tuple[LogRow, ...]:
    """Return the checked rows; ``stamp`` changes with the file."""
    user, prompt, reply, accepted, family = columns
    rows, words = list[LogRow](), set[str]()
    for place, (at, row) in enumerate(rows_of_file(path, about), 1):
        where = f"{about} {at}"
        row = row if user in row else with_present_fields(row)
        check_columns(row, columns[:4], where, "say what yours is called")
        words.add(word := _word(row[accepted]).lower())
        if word not in ("", *YES, *NO) or {"0", "-1"} <= words:
            raise DataError(
                f"{where}: expected verdicts of two kinds under {accepted!r}, such as true and "
                f"false, 1 and 0, yes and no, got {row[accepted]!r:.40}: write null for none"
            )
        if not word:
            continue
        asker, topic = name_in(row, user, where), _word(row.get(family))
        question = text_in(row, prompt, where)
        answer = text_in(row, reply, where, may_be_empty=True).strip()
        check_whole((asker, topic, question, answer), where)
        if answer:
            rows.append(LogRow(place, asker, topic, question, answer, word in YES))
    if not rows:
        raise DataError(f"{about}: no row with a reply and a verdict; expected one object per line")
    return tuple(rows)


def _word(cell: object) -> str:
    """Return the word of a verdict or of a family; empty if there is none."""
    value = as_written(cell)
    return "" if value is None else str(value).strip()


def is_held_out(prompt: str) -> bool:
    """Return true if the rows of a prompt are kept for measuring."""
    return zlib.crc32(prompt.rstrip("\r\n").encode()) % HELD_OUT == 0


@dataclass(frozen=True)
class LoggedUsers(DataUsers):
    """Users whose replies were logged: every row that is not held out, in turn; after the last one,
    from the beginning again.

    Each user's rows keep their order. Users are mixed evenly, whatever the order of the file:
    a table is often sorted by user.
    """

    def questions(self, generation: int) -> tuple[Item, ...]:
        count, start = self.config.questions, generation * self.config.questions
        return tuple(self.rows[place % len(self.rows)] for place in range(start, start + count))

    @cached_property
    def rows(self) -> Sequence[Item]:
        """The rows that are learned from, each with its reply."""
        logs = [task for task in self.tasks if isinstance(task, LogTask)]
        pairs = [(row, task) for task in logs for row in task.log if not is_held_out(row.prompt)]
        pairs.sort(key=lambda pair: pair[0].place)
        counts = Counter(row.user for row, _ in pairs)
        read = Counter[str]()
        parts = list[float]()  # of the rows of its user that come before each row
        items = list[Item]()
        for row, task in pairs:
            parts.append((read[row.user] + 0.5) / counts[row.user])
            read[row.user] += 1
            reply = LoggedReply(row.reply, row.is_accepted)
            items.append(replace(task.item(row.question, DEPTH), logged=reply))
        return [items[place] for place in sorted(range(len(items)), key=parts.__getitem__)]


def users_of(tasks: tuple[DataTask, ...], config: UsersConfig, seed: int) -> DataUsers:
    """Return the users that data bring.

    Raises:
        ConfigError: some data bring none, logs are mixed with other data, or the config describes
            users that it does not make.
    """
    if anonymous := [task for task in tasks if not task.users]:
        raise ConfigError(
            f"tasks.users: {anonymous[0].source} does not say who asks: name the column, user: user"
        )
    are_logs = {isinstance(task, LogTask) for task in tasks}
    if len(are_logs) > 1:
        raise ConfigError("tasks.families: a log cannot be mixed with other data: leave one out")
    if config != UsersConfig(questions=config.questions):
        raise ConfigError("tasks.users: the data say who asks what: set questions alone")
    return (LoggedUsers if are_logs == {True} else DataUsers)(config, tasks, seed)
