"""Requests as clients send them: each parameter is honoured, or is without effect, or is refused by
its name, in words of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from in_service import NEVER_LEARNS, QUESTION, Serve, Served
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve import client
from symbiont_ecology.extensions.serve.limits import ApiKeys, add_key
from symbiont_ecology.extensions.serve.messages import RequestRefusedError
from symbiont_ecology.extensions.serve.openai_api import (
    NEUTRAL,
    WITHOUT_EFFECT,
    ChatRequest,
    FeedbackRequest,
    error_body,
)

ASKED = [{"role": "user", "content": QUESTION}]
FIELDS = {*ChatRequest.model_fields, *NEUTRAL, *WITHOUT_EFFECT}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=99),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)


def read(**said: Any) -> ChatRequest:
    return ChatRequest.read(json.dumps({"messages": ASKED, **said}).encode())


def refusal(**said: Any) -> dict[str, Any]:
    """The error that a client gets."""
    with pytest.raises(RequestRefusedError) as caught:
        assert read(**said).turns
    assert caught.value.status == 400
    error: dict[str, Any] = json.loads(error_body(400, str(caught.value)))["error"]
    return error


def openai_of(served: Served, **options: Any) -> Any:
    """OpenAI's own client of a service."""
    openai = pytest.importorskip("openai")
    options = {"api_key": "none", "max_retries": 0, **options}
    return openai.OpenAI(base_url="http://localhost/v1", http_client=served.client, **options)


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logit_bias": {"5": 100}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "ash"}}, "audio"),
        ({"prediction": {"type": "content", "content": "55"}}, "prediction"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"guided_json": {}}, "guided_json"),
        ({"top_k": 40}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"foo": 1}, "foo"),
        ({"foo bar": 1}, "foo bar"),
        ({"temprature": 0}, "temprature"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 1000}, "n"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 9}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include": True}}, "stream_options.include"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a", 3]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"user": "two\nlines"}, "user"),
        ({"user": "a" * 201}, "user"),
        ({"user": 7}, "user"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(key): "" for key in range(17)}}, "metadata"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "content": "55"}, *ASKED]}, "messages[0]"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "5"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 65_537}]}, "messages"),
    ],
)
def test_what_is_not_honoured_is_refused_by_its_name(said: dict[str, Any], param: str) -> None:
    error = refusal(**said)
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert (error["type"], error["code"]) == ("invalid_request_error", None)


@given(st.sampled_from(sorted(FIELDS)) | st.text(min_size=1, max_size=6), VALUES)
def test_no_value_of_a_parameter_is_a_crash_or_told_in_the_words_of_a_validator(
    name: str, value: Any
) -> None:
    told = ""
    try:
        assert read(**{name: value}).turns
    except RequestRefusedError as refused:
        told = str(refused)
    assert (
        told.startswith(name if name.isprintable() else ascii(name))
        if told
        else value is None or name in FIELDS
    )
    assert len(told.splitlines()) <= 1
    assert "nput should" not in told


@given(st.sampled_from(sorted(NEUTRAL)), VALUES)
@example("top_k", 40)
def test_only_a_value_that_changes_nothing_is_taken_of_what_is_not_supported(
    name: str, value: Any
) -> None:
    try:
        read(**{name: value})
    except RequestRefusedError:
        assert value not in (None, *NEUTRAL[name])
    else:
        assert value in (None, *NEUTRAL[name])


OF_CLIENTS = {
    "LibreChat": """{"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0,
        "user": "66f0c1d2e3", "stream": true, "messages": [
            {"role": "system", "name": "instructions", "content": "Be brief."},
            {"role": "user", "content": "math.add: 1+1"}]}""",
    "langchain": """{"stream": true, "stream_options": {"include_usage": true}, "n": 1,
        "temperature": 0.7, "max_completion_tokens": 64, "parallel_tool_calls": false,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "math.add: 1+1"}]}]}""",
    "Open WebUI": """{"stream": true, "stream_options": {"include_usage": true}, "tools": [],
        "max_tokens": 1000, "logit_bias": {}, "tool_choice": "auto", "metadata": {"chat": "1"}}""",
    "continue": """{"max_tokens": 4096, "stream": true, "stop": ["a", "b", "c", "d", "e", "f"],
        "temperature": 0.01, "tools": null, "reasoning_effort": null, "top_k": -1}""",
    "litellm": """{"user": "ada", "store": true, "service_tier": "auto", "logprobs": false,
        "safety_identifier": "x", "response_format": {"type": "text"}, "modalities": ["text"]}""",
    "a language without whole numbers": '{"max_tokens": 16.0, "n": 1.0, "seed": 3.0}',
    "who leaves everything out": json.dumps(dict.fromkeys(FIELDS - {"messages"})),
    "who echoes a reply": """{"messages": [
        {"role": "user", "content": "math.add: 1+1"},
        {"role": "assistant", "content": "2", "refusal": null, "annotations": []},
        {"role": "assistant", "content": null},
        {"role": "user", "content": "math.add: 1+1"},
        {"role": "user", "content": "math.add: 1+1"},
        {"role": "developer", "content": "Be brief."}]}""",
}


@pytest.mark.parametrize("who", OF_CLIENTS)
def test_what_clients_send_unasked_is_taken(served: Served, who: str) -> None:
    body = {"messages": ASKED, **json.loads(OF_CLIENTS[who])}
    response = served.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200
    assert '"error"' not in response.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/feedback"])
@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b'"hm"', b"3", b"\xff", b'{"seed": NaN}', b'{"seed": 1, "seed": 2}'),
        *(b'{"messages": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", b'{"n": ' + b"9" * 5000 + b"}"),
        b'{"metadata": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}",
    ],
    ids=lambda data: str(data[:20]),
)
def test_a_body_that_is_no_json_object_gets_one_line(
    served: Served, path: str, data: bytes
) -> None:
    sent = {"content": data, "headers": {"Content-Type": "application/json"}}
    response = served.client.post(path, **sent)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("expected a body that is a JSON object: ")
    assert len(message.splitlines()) == 1
    sent["headers"] = {"Content-Type": "text/plain"}  # as a strange page sends it unasked
    assert "Content-Type" in served.client.post(path, **sent).json()["error"]["message"]


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"like": 1}, "like"),
        ({"id": 3, "accepted": True}, "id"),
        ({"accepted": "yes"}, "accepted"),
        ({"score": 2}, "score"),
        ({}, "accepted"),
        ({"accepted": True, "score": 1.0}, "accepted"),
        ({"accepted": True, "user": ""}, "user"),
        ({"accepted": True, "comment": "x" * 2001}, "comment"),
    ],
)
def test_feedback_is_refused_in_the_same_words(said: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefusedError, match=f"^{param}: expected "):
        FeedbackRequest.read(json.dumps({"id": "chatcmpl-1", **said}).encode())


def test_a_top_p_of_zero_leaves_only_the_most_likely_token(served: Served) -> None:
    def text(**how: Any) -> str:
        return str(served.ask(model=HOST, **how).json()["choices"][0]["message"]["content"])

    best = text(temperature=0)
    assert [text(temperature=2, top_p=0, seed=seed) for seed in range(5)] == [best] * 5
    assert {text(temperature=2, seed=seed) for seed in range(5)} != {best}


def test_two_greedy_replies_are_the_same(served: Served) -> None:
    one, other = served.ask(temperature=0, n=2, stop=[], max_tokens=None).json()["choices"]
    assert one["message"] == other["message"]
    assert (one["index"], other["index"]) == (0, 1)


def test_a_conversation_of_any_form_is_asked_as_its_turns(served: Served, kernel: Any) -> None:
    messages = [
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "math.add: 1+1"},
        {"role": "user", "content": [{"type": "text", "text": "math.add: 2+2"}]},
    ]
    body = {"messages": messages, "model": HOST, "temperature": 0, "max_tokens": 4}
    answer = served.client.post("/v1/chat/completions", json=body).json()
    prompt = "\nHello!\nmath.add: 1+1\n\nmath.add: 2+2\n"
    assert answer["usage"]["prompt_tokens"] == len(kernel.encode([prompt])[0])


def test_a_user_has_one_name_in_requests_feedback_and_keys(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    rene, anybody = add_key(path, "Rene\u0301"), add_key(path, None)
    served = serve(limits=NEVER_LEARNS, keys=ApiKeys.read(path))
    served.client.headers = {"Authorization": f"Bearer {anybody}"}
    name = served.ask(user=" Ren\u00e9\u200b ").json()["id"]
    assert served.service.journal.answer(name).user == "Ren\u00e9"
    served.client.headers = {"Authorization": f"Bearer {rene}"}
    assert served.judge(name, accepted=True, user="Rene\u0301").status_code == 200


def test_errors_are_those_that_openais_client_knows(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = pytest.importorskip("openai")
    path = tmp_path / "keys.jsonl"
    key = add_key(path, "ada")
    served = serve(limits=NEVER_LEARNS, keys=ApiKeys.read(path))
    own = openai_of(served, api_key=key)
    asked = {"model": "ecology", "messages": ASKED}

    def error(kind: type[Exception], who: Any = own, **said: Any) -> tuple[str, str, str]:
        with pytest.raises(kind) as caught:
            list(who.chat.completions.create(**{**asked, **said}))
        return caught.value.type, caught.value.code, caught.value.param  # type: ignore[attr-defined]

    wrong = openai_of(served, api_key="sk-wrong")
    assert error(openai.AuthenticationError, wrong)[:2] == (
        "authentication_error",
        "invalid_api_key",
    )
    missing = "not_found_error", "model_not_found", "model"
    assert own.models.retrieve("host").id == "host"
    assert error(openai.NotFoundError, model="gpt-4o") == missing
    assert error(openai.PermissionDeniedError, user="bob") == ("permission_error", None, "user")
    bad = "invalid_request_error", None, "frequency_penalty"
    assert error(openai.BadRequestError, frequency_penalty=1) == bad
    family = error(openai.BadRequestError, metadata={"family": "math.sub"})
    assert family[2] == "metadata.family"
    long = [{"role": "user", "content": "x " * 3000}]
    assert error(openai.BadRequestError, messages=long)[2] == "messages"
    assert error(openai.APIError, messages=long, stream=True)[2] == "messages"
    name = own.chat.completions.create(**asked).id
    own.post("/feedback", body={"id": name, "accepted": True}, cast_to=object)
    with pytest.raises(openai.ConflictError):
        own.post("/feedback", body={"id": name, "accepted": False}, cast_to=object)
    with pytest.raises(openai.BadRequestError, match="choice: expected 0 to 0"):
        own.post("/feedback", body={"id": name, "accepted": True, "choice": 3}, cast_to=object)
    monkeypatch.setattr(client, "MAX_WAITING", 0)
    assert error(openai.InternalServerError)[0] == "server_error"
