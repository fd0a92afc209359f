"""Two runs side by side: their configs, where their histories part, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.analysis.page import NO_VALUE, spread
from symbiont_ecology.analysis.run_report import RunReport
from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.living import EVENTS_FILE
from symbiont_ecology.event_log import read_events
from symbiont_ecology.statistics import adjusted_rand


@dataclass(frozen=True)
class Parting:
    """The first event in which two logs differ: its number, generation, and both kinds."""

    number: int
    generation: int
    kinds: tuple[str, str]


@dataclass(frozen=True)
class ComparedValue:
    """A value of both runs, as text."""

    name: str
    one: str
    other: str


@dataclass(frozen=True)
class RunDiff:
    """How two runs differ; ``parting`` is None where their logs are equal."""

    names: tuple[str, str]
    config: tuple[ComparedValue, ...]
    parting: Parting | None
    outcome: tuple[ComparedValue, ...]
    solved: tuple[ComparedValue, ...]
    agreement: float | None
    """Adjusted Rand index of who shares a server at the end, over users of both."""

    @classmethod
    def of(cls, one: Path, other: Path) -> RunDiff:
        """Reads both runs.

        Raises:
            RunError: one is no run, or no generation of it is over.
        """
        reports = RunReport.of(one), RunReport.of(other)
        return cls(
            (str(one), str(other)),
            tuple(_config(reports[0].config, reports[1].config)),
            _parting(one, other),
            tuple(_outcome(*reports)),
            tuple(_solved(*reports)),
            _agreement(*reports),
        )


def _parting(first: Path, second: Path) -> Parting | None:
    logs = (read_events(folder / EVENTS_FILE) for folder in (first, second))
    first_log, second_log = logs
    number = 0
    while True:
        pair = next(first_log, None), next(second_log, None)
        if pair == (None, None):
            return None
        if pair[0] != pair[1]:
            kinds = tuple("the end" if event is None else type(event).__name__ for event in pair)
            generation = min(event.generation for event in pair if event is not None)
            return Parting(number, generation, (kinds[0], kinds[1]))
        number += 1


def _config(first: RunConfig, second: RunConfig) -> list[ComparedValue]:
    """Keys that differ. A component that is its name in one config may have fields in the other."""
    values = [_flat(config.model_dump(mode="json")) for config in (first, second)]
    for named, described in (values, values[::-1]):
        for key in [key for key in named if f"{key}.kind" in described]:
            named[f"{key}.kind"] = named.pop(key)
    keys = list(dict.fromkeys([*values[0], *values[1]]))
    return [
        ComparedValue(key, values[0].get(key, NO_VALUE), values[1].get(key, NO_VALUE))
        for key in keys
        if values[0].get(key) != values[1].get(key)
    ]


def _outcome(first: RunReport, second: RunReport) -> list[ComparedValue]:
    shares = [
        ComparedValue(name, spread(getattr(first, field)), spread(getattr(second, field)))
        for name, field in (("right, %", "right"), ("right in the last quarter, %", "late"))
    ]
    numbers = [
        {number.name: number.text for number in report.numbers} for report in (first, second)
    ]
    names = dict.fromkeys([*numbers[0], *numbers[1]])
    counts = [
        Counter(news.kind for news in report.history.chronicle.news) for report in (first, second)
    ]
    kinds = [kind for kind in ("change", "fault", "body") if counts[0][kind] or counts[1][kind]]
    return [
        *shares,
        *(
            ComparedValue(name, numbers[0].get(name, NO_VALUE), numbers[1].get(name, NO_VALUE))
            for name in names
        ),
        *(
            ComparedValue(f"news: {kind}", *(str(count[kind]) for count in counts))
            for kind in kinds
        ),
    ]


def _solved(first: RunReport, second: RunReport) -> list[ComparedValue]:
    """Since which generation each family is solved."""
    families = [
        {name: NO_VALUE if since is None else str(since) for name, _, since in report.families}
        for report in (first, second)
    ]
    return [
        ComparedValue(name, families[0].get(name, NO_VALUE), families[1].get(name, NO_VALUE))
        for name in dict.fromkeys([*families[0], *families[1]])
    ]


def _agreement(first: RunReport, second: RunReport) -> float | None:
    servers = [
        {user: served.id for served in report.serving for user in served.users}
        for report in (first, second)
    ]
    shared = sorted(servers[0].keys() & servers[1].keys())
    if len(shared) < 2:
        return None
    return adjusted_rand(*([by_user[user] for user in shared] for by_user in servers))


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value)
    return flat
