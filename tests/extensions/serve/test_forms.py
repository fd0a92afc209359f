"""Answers in the form of a JSON schema: whatever a model would say, the text follows it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from hosts import make_host
from in_service import Served
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.streaming import NewToken, StreamedRequest
from symbiont_ecology.model.kernel import HostKernel

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "kind": {"enum": ["cat", "dog"]},
        "is_old": {"type": "boolean"},
    },
    "required": ["name", "kind", "is_old"],
    "additionalProperties": False,
}
AS_JSON = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> HostKernel:
    folder = make_host(tmp_path_factory.mktemp("host"), layers=2)
    return HostKernel.from_pretrained(folder, slots=1, rank=2)


def written(kernel: HostKernel, seeds: range, schema: str) -> list[list[NewToken]]:
    """What rows with a form say, each beside one without."""
    batch, decoding = ContinuousBatch(kernel, 1), Decoding(1.0)
    (prompt,) = kernel.encode(["12+7="])
    for seed in seeds:
        for form in (schema, ""):
            draw = Draw(seed)("row")
            row = StreamedRequest(prompt, None, 100, decoding, draw, None, form)
            batch.check(row)
            batch.join([row])
    rows: list[list[NewToken]] = [[] for _ in range(2 * len(seeds))]
    while len(batch):
        for one in batch.step():
            assert isinstance(one, NewToken)
            rows[one.row].append(one)
    return rows


def text_of(row: list[NewToken]) -> str:
    return "".join(token.text for token in row)


def test_a_random_model_follows_a_schema_and_rows_beside_it_say_what_they_would(
    tiny: HostKernel,
) -> None:
    rows = written(tiny, range(8), json.dumps(SCHEMA))
    plain = written(tiny, range(8), "")
    for place in range(0, 16, 2):
        said = json.loads(text_of(rows[place]))
        assert said.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        assert said["kind"] in ("cat", "dog")
        assert isinstance(said["is_old"], bool)
        assert rows[place][-1].end == "stop"
        ids = [[token.token_id for token in row[place + 1]] for row in (rows, plain)]
        assert ids[0] == ids[1]


@pytest.mark.parametrize(
    "schema",
    [{"type": "nothing"}, {"$ref": "http://example.org/x"}, {"pattern": "(", "type": "string"}],
)
def test_a_schema_that_cannot_be_followed_is_one_line(
    schema: dict[str, Any], tiny: HostKernel
) -> None:
    with pytest.raises(HostError, match=r"^response_format: expected a JSON schema") as error:
        written(tiny, range(1), json.dumps(schema))
    assert "\n" not in str(error.value)


def test_without_llguidance_the_parameter_is_named(
    tiny: HostKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(HostError, match=r"^response_format: this service has no llguidance"):
        written(tiny, range(1), json.dumps(SCHEMA))


def test_a_service_answers_in_a_form_and_refuses_what_it_cannot_follow(served: Served) -> None:
    said = served.ask(model=HOST, response_format=AS_JSON, max_tokens=100, n=2).json()
    for choice in said["choices"]:
        assert json.loads(choice["message"]["content"])["kind"] in ("cat", "dog")
    said = served.ask(model=HOST, response_format={"type": "json_object"}).json()
    assert said["choices"][0]["message"]["content"].startswith("{")
    odd = {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}
    refused = served.ask(model=HOST, response_format=odd)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "response_format"
