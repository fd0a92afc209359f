from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.events import Acted, Event, Quarantined, Retired

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    bool: st.booleans(),
    float: NUMBER,
    float | None: st.none() | NUMBER,
    str: st.text(),
    tuple[str, ...]: st.lists(st.text(), max_size=3).map(tuple),
    tuple[float, ...]: st.lists(NUMBER, max_size=3).map(tuple),
    dict[str, float]: st.dictionaries(st.text(), NUMBER, max_size=3),
    dict[str, str]: st.dictionaries(st.text(), st.text(), max_size=3),
}


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind)
    return st.builds(
        kind, **{field.name: VALUES[hints[field.name]] for field in dataclasses.fields(kind)}
    )


library_kinds = [kind for kind in Event.kinds.values() if kind.__module__ == Event.__module__]
histories = st.lists(st.sampled_from(library_kinds).flatmap(events_of), max_size=6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "events.jsonl"


def empty(path: Path) -> EventLog:
    path.unlink(missing_ok=True)
    return EventLog(path)


@quick
@given(histories)
def test_what_is_emitted_is_read_back(path: Path, history: list[Event]) -> None:
    assert empty(path).emit(0, *history) == len(history)
    assert list(read_events(path)) == history


@quick
@given(histories, st.data())
def test_rewinding_equals_never_having_emitted(
    path: Path, history: list[Event], data: st.DataObject
) -> None:
    log = empty(path)
    cut = data.draw(st.integers(0, len(history)))
    log.emit(0, *history[:cut])
    before = path.read_bytes()
    log.emit(cut, *history[cut:])
    after = path.read_bytes()
    torn = data.draw(st.integers(len(before), len(after)))
    path.write_bytes(after[:torn])
    EventLog(path).rewind(cut)
    assert path.read_bytes() == before


@quick
@given(histories, st.integers(1, 200))
def test_a_torn_last_line_hides_nothing_but_itself(
    path: Path, history: list[Event], torn: int
) -> None:
    empty(path).emit(0, *history)
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    lines = path.read_bytes().count(b"\n")
    assert list(read_events(path)) == history[: max(lines - 1, 0)]


def test_a_log_killed_in_its_header_starts_again(path: Path) -> None:
    EventLog(path)
    path.write_bytes(path.read_bytes()[:4])
    log = EventLog(path)
    log.rewind(0)
    log.emit(0, Quarantined(0, "o1", "NaN"))
    log.sync()
    assert list(read_events(path)) == [Quarantined(0, "o1", "NaN")]


@pytest.mark.parametrize("bad", [math.nan, math.inf, object()])
def test_a_value_that_json_cannot_hold_writes_nothing(path: Path, bad: Any) -> None:
    log = EventLog(path)
    before = path.read_bytes()
    acted = Acted(0, "host", "math.add/short", ("a",), (bad,), 1, 3, 2, 10, "practice")
    with pytest.raises(ValueError, match="Acted"):
        log.emit(0, Quarantined(0, "o1", "NaN"), acted)
    assert path.read_bytes() == before


def test_a_log_that_is_too_short_for_the_state_is_refused(path: Path) -> None:
    log = EventLog(path)
    log.emit(0, Retired(3, "o1", "bankrupt", 3, -10))
    with pytest.raises(RunError, match="holds 1 events, expected at least 2"):
        log.rewind(2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            {"seq": 0, "kind": "Bron", "generation": 0},
            "line 2: unknown event kind 'Bron', known: Born",
        ),
        ({"seq": 1, "kind": "Born", "generation": 0}, "line 2: expected event 0, got 1"),
        (
            {"seq": 0, "kind": "Quarantined", "generation": 0, "id": "o1"},
            "Quarantined.reason: Field required",
        ),
        ("{", "line 2: not JSON"),
    ],
)
def test_a_damaged_log_names_the_line(path: Path, line: object, said: str) -> None:
    EventLog(path)
    with path.open("a") as file:
        file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    with pytest.raises(RunError) as caught:
        list(read_events(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_schema_and_a_missing_log_are_refused(path: Path) -> None:
    with pytest.raises(RunError, match="cannot read events"):
        list(read_events(path))
    path.parent.mkdir()
    path.write_text('{"schema":99}\n')
    with pytest.raises(RunError, match="expected a log of schema 1"):
        list(read_events(path))
    with pytest.raises(RunError, match="expected a log of schema 1"):
        EventLog(path)


def test_a_new_kind_is_one_dataclass(path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Sang(Event):
        id: str
        notes: tuple[int, ...]

    EventLog(path).emit(0, Sang(1, "o1", (1, 2)))
    assert list(read_events(path)) == [Sang(1, "o1", (1, 2))]
    with pytest.raises(TypeError, match="event kind 'Born' is already"):
        type("Born", (Event,), {})
    del Event.kinds["Sang"]
