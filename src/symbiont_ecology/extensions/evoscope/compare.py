"""Two runs beside each other: differences of their configs, where they part, what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.extensions.evoscope.report import NO_VALUE, RunReport, spread
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import EVENTS_FILE


@dataclass(frozen=True)
class FirstDifference:
    """The first event in which two logs differ: its number, generation, and both kinds; of events
    of one kind also the fields that differ."""

    number: int
    generation: int
    kinds: tuple[str, str]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparedValue:
    """A value of both runs, as text."""

    name: str
    one: str
    other: str


@dataclass(frozen=True)
class RunDiff:
    """Differences of two runs; ``first_difference`` is None where their logs are equal."""

    names: tuple[str, str]
    config: tuple[ComparedValue, ...]
    first_difference: FirstDifference | None
    outcome: tuple[ComparedValue, ...]
    solved: tuple[ComparedValue, ...]

    @classmethod
    def of(cls, one: Path, other: Path) -> RunDiff:
        """Read both runs.

        Raises:
            RunError: one is no run, or no generation of it is over.
        """
        reports = RunReport.of(one), RunReport.of(other)
        outcomes, solved = map(_outcome, reports), map(_solved, reports)
        return cls(
            (str(one), str(other)),
            tuple(_config_differences(*(report.config for report in reports))),
            _first_difference(one, other),
            tuple(_beside(*outcomes)),
            tuple(_beside(*solved)),
        )


def _beside(one: Mapping[str, str], other: Mapping[str, str]) -> list[ComparedValue]:
    names = dict.fromkeys([*one, *other])
    return [
        ComparedValue(name, one.get(name, NO_VALUE), other.get(name, NO_VALUE)) for name in names
    ]


def _first_difference(one: Path, other: Path) -> FirstDifference | None:
    logs = (read_events(folder / EVENTS_FILE) for folder in (one, other))
    for number, pair in enumerate(zip_longest(*logs)):
        if pair[0] != pair[1]:
            kinds = ["the end" if event is None else type(event).__name__ for event in pair]
            generation = min(event.generation for event in pair if event is not None)
            values = [{} if event is None else vars(event) for event in pair]
            differing = [name for name, value in values[0].items() if value != values[1].get(name)]
            fields = tuple(differing) if kinds[0] == kinds[1] else ()
            return FirstDifference(number, generation, (kinds[0], kinds[1]), fields)
    return None


def _config_differences(one: RunConfig, other: RunConfig) -> list[ComparedValue]:
    """Return keys that differ. A component that is its name in one config may have fields in the
    other."""
    values = [_flat(config.model_dump(mode="json")) for config in (one, other)]
    for named, described in (values, values[::-1]):
        for key in [key for key in named if f"{key}.kind" in described]:
            named[f"{key}.kind"] = named.pop(key)
    return [value for value in _beside(*values) if value.one != value.other]


def _outcome(report: RunReport) -> dict[str, str]:
    news = Counter(news.kind for news in report.history.chronicle.news)
    return {
        "right, %": spread(report.right),
        "right in the last quarter, %": spread(report.late),
        **{number.name: number.text for number in report.numbers},
        **{f"news: {kind}": str(news[kind]) for kind in ("change", "fault", "body") if news[kind]},
    }


def _solved(report: RunReport) -> dict[str, str]:
    """Return the generation since which each family is solved."""
    return {name: NO_VALUE if since is None else str(since) for name, _, since in report.families}


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value)
    return flat
