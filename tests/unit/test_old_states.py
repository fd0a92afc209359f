"""States of an earlier format are read: fields that moved are found in their places of today."""

from __future__ import annotations

import json
from pathlib import Path

from foragers import answered, organelle, state_of
from symbiont_ecology.ecology.checkpoint_header import with_header
from symbiont_ecology.ecology.habitats import SketchSpace
from symbiont_ecology.ecology.state import load_state, save_state
from symbiont_ecology.extensions.methods.speciation import NOTE, PromptRange, range_of


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
