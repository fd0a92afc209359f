"""States of an earlier format are read: fields that moved are found in their places of today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foragers import answered, fed, organelle, state_of
from lines import jsonl
from symbiont_ecology.base.errors import EcologyWarning
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.transcripts import read_transcripts
from symbiont_ecology.ecology.checkpoint_header import with_header
from symbiont_ecology.ecology.state import load_state, save_state
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.ecology.users import SketchSpace
from symbiont_ecology.evaluate.routings import routings
from symbiont_ecology.evaluate.shifts import shifts
from symbiont_ecology.extensions.methods.speciation import NOTE, PromptRange, range_of
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks.logs import LogTasks


def test_a_state_of_format_2_is_read(tmp_path: Path) -> None:
    state = state_of([organelle("o1"), organelle("o2")])
    for name in state.population:
        state.ledger.open(name)
    save_state(state, tmp_path)
    body = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    known, example = PromptRange().after(["one", "two"]), answered("o1", 0)
    for name, one in body["population"].items():
        one["range"] = vars(known if name == "o1" else PromptRange()) | {}
        one["range"].pop("vector", None)
    space = {"common": {"math.add": "x"}, "bases": {}, "examples": [vars(example)]}
    del body["checkpoint"], body["sketch_space"]
    text = json.dumps(body | space, indent=1)
    (tmp_path / "state.json").write_bytes(with_header(text.encode(), None, version=2))
    read = load_state(tmp_path)
    assert read.sketch_space == SketchSpace({"math.add": "x"}, {}, (example,))
    assert range_of(read.population["o1"]) == known
    assert NOTE not in read.population["o2"].notes
    save_state(read, tmp_path)
    assert load_state(tmp_path) == read


def test_a_child_that_an_earlier_version_had_on_trial_is_forgotten(tmp_path: Path) -> None:
    state = state_of([organelle("o1")])
    for name in ("o1", "o2"):
        state.ledger.open(name)
        state.ledger.mint(name, 5)
    save_state(state, tmp_path)
    body = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    del body["checkpoint"]
    text = json.dumps(body | {"challengers": {"o2": {"id": "o2"}}}, indent=1)
    (tmp_path / "state.json").write_bytes(with_header(text.encode(), None))
    assert load_state(tmp_path).ledger.balances == {"o1": 5}


def test_what_earlier_files_call_habitats_are_users(tmp_path: Path) -> None:
    state = state_of([organelle("o1")], ann=fed(2))
    state.ledger.open("o1")
    save_state(state, tmp_path)
    body = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    del body["checkpoint"]
    text = json.dumps({"habitats": body.pop("users"), **body}, indent=1).encode()
    (tmp_path / "state.json").write_bytes(with_header(text, None, version=3))
    assert load_state(tmp_path) == state
    fields = {"generation": 0, "id": "o1", "purpose": "practice", "habitat": "ann"}
    answers = {"cell": "math.add/short", "items": ["x"], "verdicts": [1.0], "samples": 1}
    answers |= dict.fromkeys(("tokens_in", "tokens_out", "flops"), 1)
    reply = {"item": "x", "prompt": "1+1", "reply": "2", "verdict": 1.0, "price": 0}
    rows = {
        "events.jsonl": ({"schema": 1}, {"seq": 0, "kind": "Acted", **fields, **answers}),
        "transcripts.jsonl": (
            {"schema": 1, "one_in": 1},
            {**fields, "cell": "math.add/short", **reply, "confidence": None},
        ),
    }
    for name, lines in rows.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [event.user for event in read_events(tmp_path / "events.jsonl")] == ["ann"]
    assert [one.user for one in read_transcripts(tmp_path / "transcripts.jsonl")] == ["ann"]


@pytest.mark.filterwarnings("ignore::symbiont_ecology.base.errors.EcologyWarning")
@pytest.mark.parametrize(
    ("parts", "former", "present"),
    [
        (routings, "habitat", "user"),
        (shifts, "habitats", "users"),
        (strategies, "per_habitat", "per_user"),
    ],
)
def test_earlier_names_of_parts_are_read(
    parts: Registry[object], former: str, present: str
) -> None:
    assert parts.present_name(former) == present
    assert type(parts.build(former)) is parts[present]
    assert former not in parts.names()


def test_earlier_names_of_keys_and_columns_are_read_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(EcologyWarning, match="'habitats' is called 'users' now"):
        assert load_config("habitats/town", ["tasks.habitats.count=9"]).tasks.users.count == 9
    row = {"habitat": "ann", "prompt": "a", "reply": "b", "accepted": True}
    path = jsonl(tmp_path / "log.jsonl", [row])
    assert [one.user for one in LogTasks("log", str(path)).rows()] == ["ann"]
    who = jsonl(tmp_path / "who.jsonl", [{"who": "bob", **row}])
    assert [one.user for one in LogTasks("log", str(who), {"habitat": "who"}).rows()] == ["bob"]
