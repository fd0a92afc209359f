"""Rows of a log: who asked what, what was replied and what came of it, in any table that has them.

A row has a user, a prompt, a reply and a verdict. It may have a family, a group of users, a
correction (the reply that the user wanted), a score, a comment and a time; these are kept, whether
or not anything learns from them yet. The contract:

- *Columns* are found by their usual names (``ROLES``), whatever their case, blanks and marks, or
  named; ``user.id`` is a cell within a cell. What was taken is told.
- *Prompts* and replies are texts or conversations (``base.conversation``), also as JSON in a cell.
  A conversation that ends with the assistant has its reply in it. ``chosen`` and ``rejected`` are
  two rows.
- *Verdicts* are the words of ``YES`` and ``NO``, numbers of two kinds (1 and 0, 1 and -1), numbers
  from ``accepted_from`` on, or the words of ``accepted_as``.
- *Users* have one normal form (``base.names``); a float that has lost digits is refused.
- A row that lacks something is set aside and counted. What nobody can read, such as another word
  for a verdict, is an error that names the row.

Exports of other products whose rows have another shape are brought into this one by a ``LogForm``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from symbiont_ecology.base.conversation import (
    content_of,
    ends_with_reply,
    is_conversation,
    is_message,
    turns_of,
)
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.types import in_turns, is_text, messages
from symbiont_ecology.base.untrusted import parse_json
from symbiont_ecology.tasks.data import ASKER_END
from symbiont_ecology.tasks.tables import (
    MAX_TEXT_CHARS,
    Row,
    as_written,
    check_columns,
    named,
    rows_of_file,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROLES: Mapping[str, str] = {
    "user": """user userid username useruuid uid habitat habitats customer customerid account
        accountid member memberid author authorid person email useremail tagsuserid metadatauserid
        enduser enduserid fromenduserid fromaccountname""",
    "prompt": """prompt question query input inputs instruction request userinput userquery
        usermessage userprompt messages conversation conversations message inputtext""",
    "reply": """reply response completion answer output outputs generation botresponse airesponse
        assistantmessage modelresponse modeloutput outputtext""",
    "accepted": """accepted isaccepted accept label thumb thumbs verdict vote liked like feedback
        userfeedback feedbackrating rating userrating score stars value""",
    "family": "family",
    "group": "",
    "learner": "",
    "correction": """correction corrected correctedreply correctedresponse demonstration edited
        editedreply idealresponse idealanswer expectedoutput""",
    "score": "score stars rating userrating value",
    "comment": "comment comments feedbackcomment reason note",
    "time": """time ts timestamp createdat created date datetime starttime createtime inserttime
        insertedat loggedat sentat feedbackdate updatedat""",
}
"""Usual names of each column, in small letters without anything between; the first that is there is
taken. Those without a usual name are what we write ourselves: they are taken if they are named
and there."""
LOG_COLUMNS = tuple(ROLES)
NEEDED = ("user", "prompt", "reply", "accepted")
YES = _words(
    """true t yes y on accepted accept approved up thumbsup upvote upvoted like liked good great
    positive helpful correct right pass relevant chosen 1 👍 ✅ ✔ ❤ 🙂 😀"""
)
NO = _words(
    """false f no n off refused refuse rejected reject down thumbsdown downvote downvoted dislike
    disliked irrelevant notrelevant
    bad poor negative unhelpful nothelpful incorrect wrong fail denied 0 -1 👎 ❌ ✖ ✘ 🙁 ☹"""
)
NEITHER = frozenset(("", "none", "null", "nan", "na", "n/a", "-", "--", "neutral", "unrated"))
"""Words for a verdict, and for none, in small letters without blanks and marks between."""
NOBODY = frozenset(("", "none", "nan", "nat", "null", "<na>"))
"""Words that stand for no user where a column was made a text."""
_DRESS = re.compile("[\\s_:\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|(?<=\\w)-")
"""What does not count in a word for a verdict: blanks, colons, skin tones."""
_DEPTH = 3
"""Cells within cells."""
_SEPARATORS = re.compile(r"[\W_]")
_DECIMAL = re.compile(r"-?\d+,\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_PYTHON = re.compile(r"\[?\{'\w+': ")
"""How Python shows a message."""


_Value = TypeVar("_Value")


class LogForm(Protocol):
    """Rows of another product in the columns of a log; an extension registers it."""

    def rows(self, row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        """Return the rows of a log that one of the export has, None if it is of another form."""


log_forms: Registry[LogForm] = Registry("log form", __name__)


@dataclass(frozen=True, slots=True)
class LogRow:
    """A reply that a user accepted or refused. ``place`` is its line or row in the file, ``time``
    is in seconds since 1970, 0 where the table does not say it. A row with a ``learner``
    is no verdict of its user: the adapter of this group learns the reply."""

    place: int
    user: str
    family: str
    prompt: str
    reply: str
    is_accepted: bool
    correction: str = ""
    score: float | None = None
    comment: str = ""
    time: float = 0.0
    group: str = ""
    learner: str = ""

    @property
    def question(self) -> str:
        """The user who asked, and the prompt."""
        return f"{self.user}{ASKER_END}{self.prompt}"

    @property
    def lessons(self) -> tuple[LogRow, ...]:
        """The row, and a row with the reply that the user wanted, as if it had been accepted."""
        if self.correction in ("", self.reply):
            return (self,)
        return self, replace(self, reply=self.correction, is_accepted=True, correction="")


@dataclass(frozen=True)
class Verdicts:
    """The rule that says which verdicts are accepted: numbers from ``accepted_from`` on, or the
    words of ``accepted_as``, or the usual words."""

    accepted_from: float | None = None
    accepted_as: tuple[str, ...] = ()

    def read(self, cell: object) -> bool | None:
        """Return the verdict in a cell, None where there is none.

        Raises:
            ValueError: it is none of those that are known.
        """
        word = word_of(cell)
        if word in NEITHER:
            return None
        if self.accepted_as:
            return word in map(word_of, self.accepted_as)
        if self.accepted_from is not None:
            return _number(word) >= self.accepted_from
        if word not in YES and word not in NO:
            raise ValueError(
                f"expected verdicts of two kinds, such as true and false or 1 and 0, got "
                f"{cell!r:.40}: name the accepted ones, --accepted-as up,ja, or the least, "
                "--accepted-from 4"
            )
        return word in YES


def word_of(cell: object) -> str:
    """Return the word of a verdict, in the form in which words are compared."""
    if isinstance(cell, list) and len({str(one) for one in cell}) == 1:
        cell = cell[0]  # as Langfuse lists the scores of one name
    value = as_written(cell)
    word = "" if value is None else _DRESS.sub("", str(value).casefold())
    if word[:1] == "[" and word[-1:] == "]" and "," not in word:
        word = word[1:-1].strip("\"'")
    number = word.replace(",", ".") if _DECIMAL.fullmatch(word) else word
    try:
        return word if not word or word in YES | NO else f"{float(number):g}"
    except ValueError:
        return word


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(
            f"expected a number, since accepted_from is one, got {word!r:.40}"
        ) from None


@dataclass(frozen=True)
class LogTable:
    """The rows of a table, and what is to be told of it.

    ``columns`` are those that were taken, by their role. ``aside`` are the places of rows that were
    set aside, by the reason; ``told`` is what a user should know of the others, in sentences.
    Places are counted in ``unit``, lines or rows.
    """

    rows: tuple[LogRow, ...]
    columns: Mapping[str, str]
    aside: Mapping[str, Sequence[int]] = field(default_factory=dict)
    told: Sequence[str] = ()
    unit: str = "line"


def read_log(path: Path, about: str, columns: Mapping[str, str], verdicts: Verdicts) -> LogTable:
    """Return the rows of a log.

    Args:
        path: the file.
        about: words for messages.
        columns: names by role, of those that are not found by their usual names.
        verdicts: what counts as accepted.

    Raises:
        DataError: the file cannot be read, a column is missing, or a row cannot be understood; the
            message names it.
        MissingExtraError: a Parquet file or a sheet, and its package is not installed.
    """
    forms = [log_forms.build(name) for name in log_forms.names()]
    table = list[Row]()
    for where, row in rows_of_file(path, about):
        found = next((some for form in forms if (some := form.rows(row)) is not None), [row])
        table += [(where, part) for one in found for part in _unpaired(one)]
    try:
        taken = _columns(table, columns, verdicts, about)
    except ValueError as error:
        raise DataError(f"{about}: {error}") from error
    table = _decoded(table, [taken[role] for role in ("prompt", "reply") if role in taken])
    rows, aside = list[LogRow](), defaultdict[str, list[int]](list)
    words = set[str]()
    for where, row in table:
        place = int(where.rpartition(" ")[2])
        try:
            words.add(word_of(cell_of(row, taken["accepted"])))
            if {"0", "-1"} <= words and verdicts == Verdicts():
                raise ValueError(
                    "expected verdicts of two kinds, got 0 and -1, which may mean two things: "
                    "write null for none, or set --accepted-from 1"
                )
            read = _row(place, row, taken, verdicts)
        except ValueError as error:
            raise DataError(f"{about} {where}: {error}") from error
        if isinstance(read, str):
            aside[read].append(place)
        else:
            rows.append(read)
    if not rows:
        reasons = ", ".join(f"{len(places)} {reason}" for reason, places in aside.items())
        raise DataError(
            f"{about}: no row with user, prompt, reply and verdict: {reasons or 'empty'}"
        )
    return LogTable(tuple(rows), taken, dict(aside), _told(rows), table[0][0].split()[0])


def as_lines(rows: Iterable[LogRow]) -> str:
    """Return rows as JSON lines that ``read_log`` reads back as they are."""
    return "".join(json.dumps(_plain(row), ensure_ascii=False) + "\n" for row in rows)


def _plain(row: LogRow) -> dict[str, object]:
    fields = {
        "user": row.user,
        "prompt": messages(row.prompt),
        "reply": [{"role": "assistant", "content": row.reply}],
        "accepted": row.is_accepted,
    }
    others = {
        "family": row.family,
        "correction": row.correction and [{"role": "assistant", "content": row.correction}],
        "score": row.score,
        "comment": row.comment,
        "time": row.time or None,
        "group": row.group,
        "learner": row.learner,
    }
    return fields | {name: value for name, value in others.items() if value not in ("", None)}


def _row(
    place: int, row: Mapping[str, Any], columns: Mapping[str, str], verdicts: Verdicts
) -> LogRow | str:
    """Return a row, or why it is set aside.

    Raises:
        ValueError: it cannot be understood.
    """
    cells = {role: cell_of(row, columns[role]) if role in columns else None for role in ROLES}

    def read(role: str, reader: Callable[[object], _Value]) -> _Value:
        try:
            return reader(cells[role])
        except ValueError as error:
            raise ValueError(f"{role}, column {columns.get(role)!r}: {error}") from error

    is_accepted = read("accepted", verdicts.read)
    if is_accepted is None:
        return "without a verdict"
    if str(as_written(cells["user"])).strip().casefold() in NOBODY:
        return "without a user"
    turns, said = read("prompt", turns_in)
    reply = (read("reply", reply_in) if "reply" in columns else said).strip()
    if not turns[-1].strip():
        return "without a prompt"
    if not reply:
        return "without a reply"
    correction = read("correction", reply_in).strip()
    family, comment = _label(cells["family"]), _label(cells["comment"])
    if max(map(len, (*turns, reply, correction, family, comment))) > MAX_TEXT_CHARS:
        return f"with more than {MAX_TEXT_CHARS} characters"
    return LogRow(
        place,
        read("user", named),
        family,
        in_turns(*turns),
        reply,
        is_accepted,
        correction,
        _score_of(cells["score" if verdicts.accepted_from is None else "accepted"]),
        comment,
        seconds_of(cells["time"]),
        _label(cells["group"]),
        _label(cells["learner"]),
    )


def _score_of(cell: object) -> float | None:
    word = word_of(cell)
    return float(word) if _NUMBER.fullmatch(word) else None


def turns_in(cell: object) -> tuple[list[str], str]:
    """Return the turns of a prompt in a cell, and the reply if a conversation ends with one.

    Raises:
        ValueError: it holds something else than text.
    """
    value = _opened(cell)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        system = [{"role": "system", "content": value["system"]}] if value.get("system") else []
        value = [*system, *value["messages"]]
    if not is_conversation(value):
        return [reply_in(value)], ""
    if ends_with_reply(value):
        return turns_of(value[:-1], "messages"), reply_in(value)
    return turns_of(value), ""


def reply_in(cell: object) -> str:
    """Return the text of a cell: of messages, what the last one says.

    Raises:
        ValueError: it holds something else than text.
    """
    return _said(_opened(cell))


def _said(value: object) -> str:
    match value:
        case bool():
            pass
        case int() | float():
            return "" if value != value else str(as_written(value))
        case list() if is_conversation(value):
            return _said(value[-1])
        case {"role": _, "content": inner} | {"from": _, "value": inner}:
            return _said(inner)
        case {"choices": [inner, *_]} | {"message": inner}:  # an answer of OpenAI's API
            return _said(inner)
        case {"type": _}:  # a part of a message
            return content_of([value], "a text")
        case Mapping():
            texts = [one for one in value.values() if isinstance(one, str | list | Mapping) and one]
            if len(texts) != 1:
                raise ValueError(f"expected one text, got an object with {', '.join(value):.60}")
            return _said(texts[0])
    return content_of(value, "a text")


def _opened(cell: object) -> object:
    """Return what a text says that is JSON of messages; any other cell as it is.

    Raises:
        ValueError: Python wrote the messages, in a form that nothing else reads.
    """
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("[", "{"):
        return cell
    try:
        value = parse_json(cell)
    except ValueError:
        if _PYTHON.match(cell.lstrip()):
            raise ValueError(
                f"messages as Python shows them, {cell:.30}: write the table as JSON or Parquet"
            ) from None
        return cell
    inner = value.get("messages") if isinstance(value, dict) else value
    are_parts = isinstance(inner, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in inner
    )
    return value if is_message(value) or is_conversation(inner) or (inner and are_parts) else cell


def _label(cell: object) -> str:
    value = as_written(cell)
    return "" if value is None or not is_text(str(value)) else str(value).strip()


def seconds_of(cell: object) -> float:
    """Return a moment in seconds since 1970, 0 where there is none: of a date, of ISO text, or of a
    number of seconds, thousandths or smaller parts."""
    value = as_written(cell)
    if isinstance(value, str):
        text = value.strip().removesuffix(" UTC")
        try:
            value = float(text) if _NUMBER.fullmatch(text) else datetime.fromisoformat(text)
        except ValueError:
            return 0.0
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e19:
        return 0.0
    while value > 1e11:  # year 5138 in seconds, 1973 in thousandths
        value /= 1000
    return float(value)


def cell_of(row: Mapping[str, Any], column: str) -> object:
    """Return the cell of a column, or None; ``user.id`` is a cell within a cell."""
    if column in row:
        return row[column]
    head, dot, rest = column.partition(".")
    inner = row.get(head)
    if isinstance(inner, str) and inner[:1] == "{":
        try:
            inner = parse_json(inner)
        except ValueError:
            return None
    return cell_of(inner, rest) if dot and isinstance(inner, Mapping) else None


def _names(row: Mapping[str, Any], before: str = "", depth: int = _DEPTH) -> Iterable[str]:
    """Yield the columns of a row that have something in them, those within cells too."""
    for name, cell in row.items():
        if as_written(cell) not in (None, ""):
            yield f"{before}{name}"
            if isinstance(cell, Mapping) and depth > 1:
                yield from _names(cell, f"{before}{name}.", depth - 1)


def _columns(
    table: Sequence[Row], wanted: Mapping[str, str], verdicts: Verdicts, about: str
) -> dict[str, str]:
    """Return the column of each role that there is.

    Raises:
        DataError: one that is needed is missing, or one that was named.
    """
    filled = dict.fromkeys(name for _, row in table for name in _names(row))
    known = {**filled, **dict.fromkeys(name for _, row in table for name in row)}
    for role, name in wanted.items():
        if ROLES[role] and all(cell_of(row, name) is None for _, row in table):
            check_columns(known, [name], about, f"name yours, --{role} COLUMN")
    usual = defaultdict[str, list[str]](list)
    for name in known:
        usual[_SEPARATORS.sub("", name).casefold()].append(name)
    taken = dict(wanted)
    for role, aliases in ROLES.items():
        names = [name for alias in aliases.split() for name in usual[alias]]
        if role == "accepted" and len(names) > 1:  # one of them may be words of users
            names.sort(key=lambda name: not _reads(table, name, verdicts))
        if free := [name for name in names if name not in taken.values()]:
            taken.setdefault(role, free[0])
    missing = [role for role in NEEDED if role not in taken]
    if missing == ["reply"] and _has_replies(table, taken["prompt"]):
        return taken
    check_columns(known, missing, about, f"name yours, --{''.join(missing[:1])} COLUMN")
    return taken


def _decoded(table: list[Row], columns: Sequence[str]) -> list[Row]:
    """Return the table with texts in the place of JSON, if all prompts and replies are JSON:
    Langfuse writes a text in CSV with quotes around it."""
    places = [(place, name) for place, (_, row) in enumerate(table) for name in columns]
    cells = {place: table[place[0]][1].get(place[1]) for place in places}
    texts = {place: cell for place, cell in cells.items() if isinstance(cell, str) and cell}
    if not all(cell[0] + cell[-1] in ('""', "[]", "{}") for cell in texts.values()):
        return table
    rows = [dict(row) for _, row in table]
    for (place, name), cell in texts.items():
        if cell[0] == '"':
            try:
                rows[place][name] = parse_json(cell)
            except ValueError:
                return table
    return [(where, row) for (where, _), row in zip(table, rows, strict=True)]


def _has_replies(table: Sequence[Row], prompt: str) -> bool:
    """Return true if conversations in a column end with replies.

    Raises:
        ValueError: Python wrote them.
    """
    return any(ends_with_reply(_opened(cell_of(row, prompt))) for _, row in table)


def _reads(table: Sequence[Row], column: str, verdicts: Verdicts) -> bool:
    """Return true if all cells of a column are verdicts."""
    try:
        return {verdicts.read(cell_of(row, column)) for _, row in table} != {None}
    except ValueError:
        return False


def _unpaired(row: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the row, or the accepted and the refused one of a pair."""
    pair = {"chosen": True, "rejected": False}
    if not pair.keys() <= row.keys() or "accepted" in row:
        yield row
        return
    rest = {name: cell for name, cell in row.items() if name not in pair}
    said = "reply" if "prompt" in row else "prompt"  # else a conversation that ends with the reply
    for name, is_accepted in pair.items():
        yield {**rest, said: row[name], "accepted": is_accepted}


def _told(rows: Sequence[LogRow]) -> list[str]:
    """Return what a user should know of the rows, in sentences."""
    told = []
    if len(kinds := {row.is_accepted for row in rows}) == 1:
        told.append(f"all replies were {'accepted' if kinds == {True} else 'refused'}")
    verdicts = defaultdict[tuple[str, str, str], set[bool]](set)
    for row in rows:
        verdicts[row.user, row.prompt, row.reply].add(row.is_accepted)
    both = [key for key, found in verdicts.items() if len(found) == 2]
    if both:
        user, _, reply = both[0]
        told.append(
            f"{len(both)} replies were accepted and refused by the same user, such as "
            f"{reply!r:.40} by {user!r:.40}"
        )
    return told
