"""Requests and answers in the form of OpenAI's API; everything in a request is bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from symbiont_ecology.extensions.serve.scheduler import AnswerJob

MAX_PROMPT_CHARS, MAX_MESSAGES, MAX_PARTS, MAX_CHOICES, MAX_STOPS = 65_536, 64, 64, 8, 4
MAX_USER_CHARS = 128

PromptText = Annotated[str, StringConstraints(max_length=MAX_PROMPT_CHARS)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=64)]


def _plain(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"expected letters that can be printed, got {name!r}")
    return name


UserName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_USER_CHARS), AfterValidator(_plain)
]


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: PromptText


class ChatMessage(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: PromptText | Annotated[list[TextPart], Field(max_length=MAX_PARTS)]

    @property
    def text(self) -> str:
        """The whole text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """``POST /v1/chat/completions``. Other fields are ignored."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    model: str = "ecology"
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: UserName | None = None
    metadata: (
        Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)] | None
    ) = None
    tools: Annotated[list[object], Field(max_length=0)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class FeedbackRequest(BaseModel):
    """``POST /v1/feedback``: a verdict on a reply, one of ``accepted`` and ``score``."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    choice: int = Field(0, ge=0, lt=MAX_CHOICES)
    accepted: bool | None = None
    score: float | None = Field(None, ge=0, le=1)
    comment: Annotated[str, StringConstraints(max_length=2000)] = ""
    user: UserName | None = None


def error_body(status: int, message: str) -> bytes:
    """Return an error as JSON."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def chat_answer(job: AnswerJob, model: str) -> dict[str, object]:
    """Return a ``chat.completion``."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None,
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _head(job, model, "chat.completion") | {"choices": choices, "usage": job.usage}


def chat_chunk(
    job: AnswerJob, model: str, choice: int, delta: Mapping[str, str], reason: str = ""
) -> dict[str, object]:
    """Return a ``chat.completion.chunk``; the last one of a reply says why it ends."""
    told = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason or None}
    return _head(job, model, "chat.completion.chunk") | {"choices": [told]}


def usage_chunk(job: AnswerJob, model: str) -> dict[str, object]:
    """Return the chunk behind all others, with the tokens of the answer."""
    return _head(job, model, "chat.completion.chunk") | {"choices": [], "usage": job.usage}


def _head(job: AnswerJob, model: str, kind: str) -> dict[str, object]:
    head = {"id": job.ask.id, "object": kind, "created": job.created, "model": model}
    # A stream begins before anybody is chosen.
    return head | {"system_fingerprint": None, "organelle": job.organelle or None}
