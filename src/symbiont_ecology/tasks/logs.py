"""A log of replies that users accepted or refused: ``{kind: log, name: thumbs, path: log.jsonl}``.

``log_rows`` reads it. Adapters learn from its rows without asking the model again
(``tasks.users``). The newest fifth of each user's rows is held out; where not all rows have a time,
one prompt in five is, by its hash.
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
from symbiont_ecology.base.types import Item, LoggedReply, as_line, in_turns, turns
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.data import (
    MIN_REPLY_TOKENS,
    DataLine,
    DataTask,
    DataUsers,
    TaskName,
    check_gradable,
)
from symbiont_ecology.tasks.grading import graders
from symbiont_ecology.tasks.log_rows import LOG_COLUMNS, LogRow, LogTable, Verdicts, read_log
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.tables import locate

DEPTH = "short"
"""Of every row: a log does not say how hard a question is."""
MAX_FAMILIES = 64
"""More of them are no families."""
MAX_REPLY_TOKENS = 256
"""Of a new reply, whatever was accepted: a report asks for hundreds."""
HELD_OUT = 5
"""One row in so many is held out, or one prompt."""


@dataclass(frozen=True, eq=False, repr=False)
class LogTask(DataTask):
    """The rows of a log. ``lines`` are its questions of which a reply was accepted, with these
    replies as answers: an evaluation asks for one of them. ``held_out`` are the questions that are
    kept for measuring."""

    log: tuple[LogRow, ...] = field(default=(), kw_only=True)
    held_out: frozenset[str] = field(default=frozenset(), kw_only=True)

    @classmethod
    def of(cls, name: str, about: str, rows: Sequence[LogRow]) -> LogTask:
        """Return the task of some rows; ``about`` says where they come from."""
        accepted: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        verdicts = [row for row in rows if not row.learner]
        for one in (one for row in verdicts for one in row.lessons):
            if one.is_accepted:
                accepted[one.user, one.prompt][one.reply] = None
        lines = tuple(
            DataLine(DEPTH, prompt, tuple(replies), user)
            for (user, prompt), replies in accepted.items()
        )
        log, grader = tuple(rows), graders.build("exact")
        return cls(name, lines, about, grader, log=log, held_out=held_out(verdicts))

    @cached_property
    def digest(self) -> str:
        rows = [[row.question, row.reply, row.is_accepted] for row in self.log]
        return sha256(json.dumps(rows).encode()).hexdigest()

    @cached_property
    def users(self) -> Sequence[str]:
        return list(dict.fromkeys(row.user for row in self.log))

    def split(self, line: DataLine) -> Split:
        return "holdout" if line.question in self.held_out else "train"

    def item(self, question: str, depth: str) -> Item:
        """Return the item of a question: a new reply may be as long as those accepted."""
        longest = max((len(reply.encode()) for reply in self._answers[question]), default=0)
        limit = min(max(longest + 1, MIN_REPLY_TOKENS), MAX_REPLY_TOKENS)
        return replace(super().item(question, depth), reply_limit=limit)

    def turns_before(self, question: str) -> tuple[str, ...]:
        """Return the turns in front of a prompt, but for the system's where it brings its own."""
        before, has_system = super().turns_before(question), len(turns(question)) % 2 == 0
        return before[1:] if has_system and len(before) % 2 else before

    def worded(self, question: str) -> str:
        *before, last = turns(super().worded(question))
        is_chat = self.style is not None and self.style.is_chat
        return in_turns(*(before if is_chat else map(as_line, before)), last)

    @cached_property
    def _answers(self) -> Mapping[str, tuple[str, ...]]:
        return {row.question: () for row in self.log} | dict(super()._answers)


@task_sources.register("log")
@dataclass(frozen=True)
class LogTasks:
    """Rows of a table, each with a user, a prompt, a reply and its verdict (``tasks.log_rows``).

    Columns are found by their usual names. A verdict is true or false, 1 or 0 (or -1), or a word
    such as yes, no, up or down. A row without one (null), or without something else that is needed,
    is left out. A column ``family``, if there is one, says what a row is about: then kinds of users
    are found with fewer rows. ``only`` takes the rows of one family.
    """

    name: TaskName  # of the task: letters, digits, dots, dashes
    path: str  # a JSON, JSONL, CSV, TSV, Excel or Parquet file, from the current folder
    columns: dict[str, str] = field(default_factory=dict)  # other names, such as {reply: text}
    only: str | None = None  # the family whose rows are taken; None takes all
    accepted_from: float | None = None  # verdicts are numbers: the least that is accepted
    accepted_as: tuple[str, ...] = ()  # verdicts are words: those that mean accepted

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", with_present_fields(self.columns))
        object.__setattr__(self, "accepted_as", tuple(self.accepted_as))
        if self.accepted_as and self.accepted_from is not None:
            raise ValueError("accepted_as: expected it or accepted_from, got both")
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

    def table(self) -> LogTable:
        """Return all rows with a verdict, and what was set aside.

        Raises:
            DataError: the file cannot be read, or a row breaks the schema; the message names it.
            MissingExtraError: the package that reads such a file is not installed.
        """
        verdicts = Verdicts(self.accepted_from, self.accepted_as)
        columns = tuple(self.columns.items())
        return _read(*locate(self.path, str(self)), columns, verdicts, str(self))

    def rows(self) -> tuple[LogRow, ...]:
        """Return all rows with a verdict, as ``table``."""
        return self.table().rows


@lru_cache(maxsize=2 * MAX_FAMILIES)
def _task(knobs: str, path: Path, stamp: Stamp) -> LogTask:
    """Return the task of a source, which is given as JSON; ``stamp`` changes with the file."""
    source = LogTasks(**json.loads(knobs))
    rows = tuple(row for row in source.rows() if source.only in (None, row.family))
    task = LogTask.of(source.name, str(source), rows)
    if not task.part(DEPTH, "train"):
        raise DataError(
            f"{source}: expected replies that were accepted, got none to learn; one row in "
            f"{HELD_OUT} is held out: add rows"
        )
    check_gradable((str(source), task.item(line.question, DEPTH)) for line in task.lines)
    return task


@lru_cache(maxsize=4)
def _read(
    path: Path, stamp: Stamp, columns: tuple[tuple[str, str], ...], verdicts: Verdicts, about: str
) -> LogTable:
    """Return the rows of a file; ``stamp`` changes with it."""
    return read_log(path, about, dict(columns), verdicts)


def held_out(rows: Sequence[LogRow]) -> frozenset[str]:
    """Return the questions whose rows are kept for measuring: those of each user's newest rows.
    Where a row has no time, the hash of the prompt decides, the same for all users."""
    if not all(row.time for row in rows):
        return frozenset(row.question for row in rows if _is_drawn(row.prompt))
    by_user = defaultdict[str, list[LogRow]](list)
    for row in sorted(rows, key=lambda row: (row.time, row.place)):
        by_user[row.user].append(row)
    return frozenset(
        row.question for own in by_user.values() for row in own[len(own) - len(own) // HELD_OUT :]
    )


def _is_drawn(prompt: str) -> bool:
    return zlib.crc32(prompt.rstrip("\r\n").encode()) % HELD_OUT == 0


@dataclass(frozen=True)
class LoggedUsers(DataUsers):
    """Users whose replies were logged: every row that is not held out, in turn; after the last one,
    from the beginning again.

    Each user's rows keep their order, that of time where all rows have one. Users are mixed evenly,
    whatever the order of the file: a table is often sorted by user.
    """

    @cached_property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The users of each group, by the newest row of each; none if a row has no group."""
        rows = [row for task in self._logs for row in task.log if not row.learner]
        of_user = {row.user: row.group for row in rows}
        groups = defaultdict[str, list[str]](list)
        for user, group in of_user.items():
            groups[group].append(user)
        return dict(sorted(groups.items())) if all(groups) else {}

    def questions(self, generation: int) -> tuple[Item, ...]:
        count, start = self.config.questions, generation * self.config.questions
        return tuple(self.rows[place % len(self.rows)] for place in range(start, start + count))

    @cached_property
    def rows(self) -> Sequence[Item]:
        """The rows that are learned from, each with its reply; behind it the same with the reply
        that the user wanted, if that is known. If some rows have learners, these rows alone."""
        lessons = [
            self._lesson(row, task) for task in self._logs for row in task.log if row.learner
        ]
        return lessons or self.verdicts

    @cached_property
    def verdicts(self) -> Sequence[Item]:
        """The verdicts of users that are not held out, each with its reply."""
        return self._items(is_held_out=False)

    @cached_property
    def held_out(self) -> Sequence[Item]:
        """The rows that are kept for measuring, each with its reply."""
        return self._items(is_held_out=True)

    def _lesson(self, row: LogRow, task: LogTask) -> Item:
        """Return a reply for the adapter of a group, which nobody will remember. Groups are founded
        in the order of their names, and are organelles of these numbers."""
        founder = f"o{list(self.groups).index(row.learner) + 1}"
        reply = LoggedReply(row.reply, row.is_accepted, founder)
        return replace(task.item(row.question, DEPTH), user="", logged=reply)

    @property
    def _logs(self) -> list[LogTask]:
        return [task for task in self.tasks if isinstance(task, LogTask)]

    def _items(self, *, is_held_out: bool) -> Sequence[Item]:
        pairs = [
            (one, task)
            for task in self._logs
            for row in task.log
            if (row.question in task.held_out) == is_held_out and not row.learner
            for one in ((row,) if is_held_out else row.lessons)
        ]
        is_timed = all(row.time for row, _ in pairs)
        pairs.sort(key=lambda pair: (pair[0].time if is_timed else 0.0, pair[0].place))
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
