"""What clients get: OpenAI's API, in whole and in parts, with its errors."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from in_service import NEVER_LEARNS, QUESTION, Serve, Served
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request, in_turns
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve import client
from symbiont_ecology.extensions.serve.messages import UNABLE
from symbiont_ecology.extensions.serve.world import prompt_of


def events(response: Any) -> Iterator[Any]:
    """The parts of a streamed answer."""
    for line in response.text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def test_the_bare_host_answers_as_the_kernel_does(served: Served, kernel: Any) -> None:
    expected = kernel.generate([f"{QUESTION}\n"], HOST_SLOT, max_new_tokens=20)[0]
    answer = served.ask(model=HOST, temperature=0, max_tokens=20).json()
    assert (answer["object"], answer["organelle"]) == ("chat.completion", HOST)
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_an_organelle_with_a_phrase_is_asked_behind_it(served: Served) -> None:
    snapshot = served.service.snapshot
    names = [one["id"] for one in served.client.get("/v1/models").json()["data"]]
    assert names == ["ecology", HOST, *sorted(snapshot.weights)]
    name, weights = next(iter(snapshot.weights.items()))
    bare = served.ask(model=name, temperature=0).json()["usage"]["prompt_tokens"]
    served.live_as(**{**snapshot.weights, name: replace(weights, phrase="Now. ")})
    asked = served.ask(model=name, temperature=0).json()["usage"]["prompt_tokens"]
    assert asked == bare + len("Now. ")


def test_a_stream_says_what_a_whole_answer_says(served: Served) -> None:
    how = {"seed": 3, "n": 2, "temperature": 1.0, "user": "ada"}
    whole = served.ask(**how).json()
    parts = list(events(served.ask(stream=True, stream_options={"include_usage": True}, **how)))
    assert {part["organelle"] for part in parts} - {None} == {whole["organelle"]}
    texts = ["", ""]
    reasons = [None, None]
    for part in parts:
        for choice in part["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
            reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    assert parts[-1]["usage"] == whole["usage"]


def test_the_journal_has_the_log_probability_of_a_whole_reply(served: Served, kernel: Any) -> None:
    name = served.ask(model=HOST, temperature=0).json()["id"]
    expected = kernel.rollout([Request(f"{QUESTION}\n", HOST_SLOT, 64)], None, Decoding())[0]
    kept = served.service.journal.answer(name)
    assert kept is not None
    assert kept.log_probabilities == pytest.approx([expected.log_probabilities.sum()], abs=1e-4)
    for cut in ({"stop": "9"}, {"max_tokens": 1}):  # learned, it would have another end
        name = served.ask(model=HOST, temperature=0, **cut).json()["id"]
        assert not served.service.journal.answer(name).log_probabilities


@pytest.mark.parametrize("end", ["", "\n"])
def test_each_turn_of_a_conversation_is_a_line_of_a_host_without_chat_template(
    served: Served, kernel: Any, end: str
) -> None:
    messages = [
        {"role": "system", "content": f"be brief{end}"},
        {"role": "user", "content": f"math.add: 1+1{end}"},
        {"role": "assistant", "content": f"2{end}"},
        {"role": "user", "content": [{"type": "text", "text": f"math.add: 2+2{end}"}]},
    ]
    body = {"messages": messages, "model": HOST, "temperature": 0, "max_tokens": 12}
    answer = served.client.post("/v1/chat/completions", json=body).json()
    prompt = "be brief\nmath.add: 1+1\n2\nmath.add: 2+2\n"
    assert answer["usage"]["prompt_tokens"] == len(kernel.encode([prompt])[0])
    expected = kernel.generate([prompt], HOST_SLOT, max_new_tokens=12)
    assert [answer["choices"][0]["message"]["content"]] == expected


def test_a_conversation_with_a_chat_template_is_asked_as_it_is(served: Served) -> None:
    tasks, said = served.service.run.runtime.tasks, ["be brief", "math.add: 1+1"]
    assert prompt_of(said, "math.add", tasks, is_chat=True) == in_turns(*said)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"messages": [{"role": "user", "content": " "}]}, 400, "expected a question"),
        ({"messages": [{"role": "user", "content": "a\x1db"}]}, 400, "U+001D"),
        ({"model": "gpt-4o"}, 404, "model: expected"),
        ({"metadata": {"family": "math.sub"}}, 400, "metadata.family: expected"),
        ({"messages": [{"role": "user", "content": "x " * 3000}]}, 400, "at most"),
        ({"messages": [{"role": "user", "content": [{}] * 10_000}]}, 400, "messages"),
    ],
)
def test_a_mistake_is_said_in_openais_form(
    served: Served, body: dict[str, Any], status: int, message: str
) -> None:
    asked = {"messages": [{"role": "user", "content": QUESTION}], **body}
    response = served.client.post("/v1/chat/completions", json=asked)
    assert response.status_code == status
    error = response.json()["error"]
    assert message in error["message"]
    if message == "at most":  # the engine found it
        streamed = served.client.post("/v1/chat/completions", json={**asked, "stream": True})
        assert json.loads(streamed.text.split("data: ")[-1])["error"] == error


def test_health_and_metrics_tell_how_it_stands(served: Served) -> None:
    served.ask()
    assert served.client.get("/healthz").json()["status"] == "ok"
    text = served.client.get("/metrics").text
    assert "symbiont_answers_total 1.0" in text
    assert "symbiont_waiting_verdicts 0.0" in text
    (seconds,) = re.findall(r"^symbiont_answer_seconds_total (.+)", text, re.MULTILINE)
    assert 0 < float(seconds) < 60


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_service_lacks_is_for_the_log_and_not_for_who_asks(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        response = served.ask(stream=stream)
    told = response.text.splitlines()
    error = json.loads(next(line for line in told if '"error"' in line).removeprefix("data: "))
    assert error["error"]["message"] == UNABLE
    assert str(served.folder) not in response.text
    (reason,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert f"cannot write {served.folder}" in reason
    assert stream or response.status_code == 503


def test_an_answer_that_takes_too_long_is_given_up(serve: Serve) -> None:
    served = serve(limits=replace(NEVER_LEARNS, seconds=1e-9))
    response = served.ask()
    assert response.status_code == 504
    assert "too long" in response.json()["error"]["message"]


def test_more_than_may_wait_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_WAITING", 0)
    response = served.ask()
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


def test_a_large_request_is_refused(served: Served) -> None:
    response = served.client.post("/v1/chat/completions", content=b"x" * 600_000)
    assert response.status_code == 413


def test_an_answer_has_at_most_the_room_that_is_left(served: Served, kernel: Any) -> None:
    most = kernel.shape.max_positions
    text = "1" * (most - 30)
    for limit in ({}, {"max_tokens": 200}):
        answer = served.ask(text, **limit)
        assert answer.status_code == 200
        assert answer.json()["usage"]["total_tokens"] <= most


def test_who_leaves_is_not_answered(serve: Serve) -> None:
    served = serve(limits=NEVER_LEARNS, lives=False)
    threading.Timer(0.5, served.thread.start).start()
    body = {"messages": [{"role": "user", "content": "1+1="}], "model": "host", "n": 8}
    messages = [{"type": "http.request", "body": json.dumps(body).encode()}]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }
    sent = list[Any]()

    async def receive() -> dict[str, Any]:
        """The request, and then nobody is there."""
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody hears it."""
        sent.append(message)

    asyncio.run(served.client.app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 504
    assert served.service.scheduler.tally["answers"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_event_loop_that_ends_takes_no_thread_of_the_service_with_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    call = asyncio.BaseEventLoop.call_soon_threadsafe

    def last(loop: Any, *arguments: Any, **options: Any) -> Any:
        """The last call of other threads: to them the loop has ended."""
        handle = call(loop, *arguments, **options)
        if threading.current_thread() in threads:
            raise RuntimeError("Event loop is closed")
        return handle

    threads = {one for one in threading.enumerate() if one.name == "journal"} | {served.thread}
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", last)
    for _ in range(2):
        assert served.ask(stream=stream).status_code == 200
    assert all(one.is_alive() for one in threads)
