"""Requests and answers in the form of OpenAI's API; everything in a request is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.streaming import NewToken

MAX_PROMPT_CHARS, MAX_MESSAGES, MAX_PARTS, MAX_CHOICES, MAX_STOPS = 65_536, 64, 64, 8, 4
MAX_ALTERNATIVES, MAX_USER_CHARS = 20, 128

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


class AnswerRequest(BaseModel):
    """The fields of both kinds of requests. Others are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = "ecology"
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: UserName | None = None
    metadata: (
        Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)] | None
    ) = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class ChatRequest(AnswerRequest):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    tools: Annotated[list[object], Field(max_length=0)] | None = None

    @property
    def max_new_tokens(self) -> int | None:
        """New tokens of a reply; None if the client does not say it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Number of likeliest tokens beside each one; None without log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(AnswerRequest):
    """``POST /v1/completions``."""

    prompt: PromptText | Annotated[list[PromptText], Field(min_length=1, max_length=1)]
    max_tokens: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    echo: Literal[False] | None = None

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    @property
    def max_new_tokens(self) -> int | None:
        """New tokens of a reply; None if the client does not say it."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Number of likeliest tokens beside each one; None without log-probabilities."""
        return self.logprobs


class FeedbackRequest(BaseModel):
    """``POST /v1/feedback``: a verdict on a reply, one of ``accepted`` and ``score``."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    choice: int = Field(0, ge=0, lt=MAX_CHOICES)
    accepted: bool | None = None
    score: float | None = Field(None, ge=0, le=1)
    comment: Annotated[str, StringConstraints(max_length=2000)] = ""
    user: UserName | None = None


TokenText = Callable[[int], str]
"""Returns the text of a token."""
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def error_body(status: int, message: str) -> bytes:
    """Return an error as JSON."""
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def now() -> int:
    """Return the seconds since 1970."""
    return int(datetime.now(UTC).timestamp())


def chat_answer(job: AnswerJob, model: str, text_of: TokenText) -> dict[str, object]:
    """Return a ``chat.completion``."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": chat_logprobs(reply, text_of) if job.ask.has_scores else None,
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _whole(job, model, "chat.completion", choices)


def text_answer(job: AnswerJob, model: str, text_of: TokenText) -> dict[str, object]:
    """Return a ``text_completion``."""
    choices = [
        {
            "index": index,
            "text": text,
            "logprobs": text_logprobs(reply, text_of) if job.ask.has_scores else None,
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _whole(job, model, "text_completion", choices)


def chat_chunk(
    job: AnswerJob, model: str, moment: int, choices: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Return a ``chat.completion.chunk``."""
    return _head(job, model, "chat.completion.chunk", moment) | {"choices": list(choices)}


def text_chunk(
    job: AnswerJob, model: str, moment: int, choices: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Return a chunk of a ``text_completion``."""
    return _head(job, model, "text_completion", moment) | {"choices": list(choices)}


def chat_logprobs(tokens: Sequence[NewToken], text_of: TokenText) -> dict[str, object]:
    """Return the log-probabilities of a chat reply."""

    def entry(token_id: int, score: float) -> dict[str, object]:
        text = text_of(token_id)
        return {"token": text, "logprob": score, "bytes": list(text.encode())}

    content = [
        entry(token.token_id, token.log_probability)
        | {"top_logprobs": [entry(*pair) for pair in token.alternatives.items()]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(
    tokens: Sequence[NewToken], text_of: TokenText, offset: int = 0
) -> dict[str, object]:
    """Return the log-probabilities of a completion, or of its part behind ``offset`` letters."""
    texts = [text_of(token.token_id) for token in tokens]
    *offsets, _ = accumulate(map(len, texts), initial=offset)
    return {
        "tokens": texts,
        "token_logprobs": [token.log_probability for token in tokens],
        "top_logprobs": [
            {text_of(name): score for name, score in token.alternatives.items()} for token in tokens
        ],
        "text_offset": offsets,
    }


def _whole(
    job: AnswerJob, model: str, kind: str, choices: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    return _head(job, model, kind, now()) | {"choices": list(choices), "usage": job.usage}


def _head(job: AnswerJob, model: str, kind: str, moment: int) -> dict[str, object]:
    head = {"id": job.ask.id, "object": kind, "created": moment, "model": model}
    # A stream begins before anybody is chosen.
    return head | {"system_fingerprint": None, "organelle": job.organelle or None}
