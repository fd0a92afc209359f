"""The run of a log: the rows that a host can read, and the config that learns them."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from symbiont_ecology.base.config_layers import with_known_keys
from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.registry import MAX_RANK, kind_of
from symbiont_ecology.base.types import last_turn, without_turns
from symbiont_ecology.cli.run import lengths_of, reader_of
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.config import RunConfig, compose
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.log_rows import LogRow, LogTable, as_lines
from symbiont_ecology.tasks.logs import MAX_FAMILIES, LogTask, LogTasks, held_out
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

LOG_PRESET, LOG_FILE = "habitats/log", "log.jsonl"
"""The preset; and the rows that are learned, in the folder of the run: a log in its plain form."""
GROUPED = {role: role for role in ("group", "learner")}
"""Columns of such a log that no table of somebody else has."""
MAX_SLOTS, MAX_THREADS = 24, 8
"""Adapters in memory at once, and threads of a real model."""
EMBEDDED = "embedded"


def read_table(
    log: Path, columns: Mapping[str, str], accepted_from: float | None, accepted_as: str
) -> LogTable:
    """Return what a log says.

    Raises:
        ConfigError: what counts as accepted is told twice.
        DataError: the log cannot be read, or no reply was accepted.
    """
    knobs = {"name": "log", "path": str(log), "columns": columns, "accepted_from": accepted_from}
    words = accepted_as.split(",") if accepted_as else []
    source = task_sources.build({"kind": "log", **knobs, "accepted_as": words})
    assert isinstance(source, LogTasks)
    table = source.table()
    if not any(one.is_accepted for row in table.rows for one in row.lessons):
        raise DataError(
            f"log {log}: none of {len(table.rows)} replies counts as accepted, so nothing can be "
            f"learned: look at the column {table.columns['accepted']!r}, --accepted-as, "
            "--accepted-from"
        )
    return table


@contextmanager
def draft(rows: Sequence[LogRow]) -> Iterator[Path]:
    """Write rows into a file that is gone afterwards: a config names a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / LOG_FILE
        path.write_text(as_lines(rows), encoding="utf-8")
        yield path


def config_of(
    rows: Sequence[LogRow],
    path: Path,
    *,
    overrides: Sequence[str],
    about: Path,
    host: str,
    passes: float,
) -> RunConfig:
    """Return the config of the run that learns all rows, which are in a file, so many times.

    Raises:
        ConfigError: it does not fit together.
    """
    if not 0 < passes < math.inf:
        raise ConfigError(f"--passes: expected a number above 0, got {passes:g}")
    if "${" in f"{path}{host}":
        raise ConfigError("learn-from: '${' in a path cannot be written in a config")
    users, groups = {row.user for row in rows}, {row.group for row in rows if not row.learner}
    is_grouped = "" not in groups
    columns = {"columns": GROUPED} if is_grouped else {}
    source = {"kind": "log", "name": "log", "path": str(path), **columns}
    sources = [
        {**source, "name": _slug(family, number), "only": family}
        for number, family in enumerate(families_of(rows), 1)
    ] or [source]
    where = f"learn-from {about}"
    room = {"strategy.capacity": len(groups), "strategy.ranks": len(groups) * MAX_RANK}
    room["host.slots"] = min(len(users), MAX_SLOTS)
    if host != EMBEDDED:
        room["host.threads"] = min(os.cpu_count() or 1, MAX_THREADS)
    typed = {change.partition("=")[0].strip() for change in overrides}
    # Behind a host that was typed, whose preset has slots of its own.
    overrides = [*overrides, *(f"{key}={n}" for key, n in room.items() if key not in typed)]
    values = with_known_keys({"host": host, "tasks": {"families": sources}}, where)
    config = compose((LOG_PRESET, values), overrides, where)
    is_said = any(change.startswith("tasks.style") for change in overrides)
    if kind_of(config.tasks.style) == "few_shot" and not is_said:
        # The way to ask a base model, by its preset; here it would tell users what others want.
        overrides = [*overrides, "tasks.style=terse"]
        config = compose((LOG_PRESET, values), overrides, where)
    if any(change.startswith("run.generations=") for change in overrides) or not config.tasks.users:
        return config
    kept_back = held_out([row for row in rows if not row.learner])
    lessons = sum(bool(row.learner) for row in rows)
    learned = lessons or sum(row.question not in kept_back for row in rows)
    values["run"] = {"generations": math.ceil(passes * learned / config.tasks.users.questions)}
    return compose((LOG_PRESET, values), overrides, where)


def fitting(
    rows: Sequence[LogRow], config: RunConfig, is_cut: bool, may_fetch: bool
) -> tuple[Sequence[LogRow], dict[str, list[int]]]:
    """Return the rows that the host can read, and the places of those that are too long for it, by
    what became of them: set aside, or ``is_cut`` at the beginning of their prompts, if that is
    enough. Nothing is known of a host that is not here, unless it ``may_fetch`` it.

    Raises:
        DataError: no row fits.
        HostError: the host is not here, or its tokenizer cannot be read.
    """
    if (reader := reader_of(config, may_fetch=may_fetch)) is None:
        return rows, {}
    (codec, most), style = reader, prompt_styles.build(config.tasks.style)

    def too_long(some: Sequence[LogRow]) -> list[bool]:
        task = LogTask.of("log", "log", some).in_style(style)
        return [size > most for size in lengths_of(task, codec)]

    are_long = too_long(rows)
    fitting = [row for row, is_long in zip(rows, are_long, strict=True) if not is_long]
    long_rows = [row for row, is_long in zip(rows, are_long, strict=True) if is_long]
    done = defaultdict[str, list[int]](list)
    for row in long_rows:
        text = last_turn(row.prompt) if is_cut else ""
        while text and too_long([shorter := replace(row, prompt=text)])[0]:
            text = text[len(text) // 8 + 1 :]
        fitting += [shorter] if text else []
        what = "prompts cut at their beginning" if text else "set aside"
        done[f"too long for the model, {what}"].append(row.place)
    if not fitting:
        raise DataError(f"log: expected rows of at most {most} tokens, all are longer")
    return sorted(fitting, key=lambda row: row.place), done


def families_of(rows: Sequence[LogRow]) -> list[str]:
    """Return the families of which something can be learned; none if they are of no use, or a
    config cannot hold their names."""
    kept_back = held_out(rows)
    candidates = (row for row in rows if row.is_accepted and row.question not in kept_back)
    families = sorted({row.family for row in candidates})
    can_be_written = all(family.isprintable() and "${" not in family for family in families)
    return families if can_be_written and 1 < len(families) <= MAX_FAMILIES else []


def _slug(family: str, number: int) -> str:
    """Return a name of a task that no other has, since it begins with the family's number."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", family).strip("-.")[:48]
    return f"log{number}.{word}" if word else f"log{number}"


def sketcher_of(kernel: HostKernel) -> Callable[[Sequence[LogRow]], np.ndarray] | None:
    """Return what sketches replies to rows; None on large hosts, where it takes long, and replies
    are texts whose words tell enough."""
    if kernel.shape.is_large:
        return None

    def sketches(rows: Sequence[LogRow]) -> np.ndarray:
        answers = kernel.encode_answers([row.reply for row in rows])
        return kernel.sketch([without_turns(row.prompt) for row in rows], answers)

    return sketches
