"""What clients send, in the words of OpenAI's API, with bounds on all of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

LONGEST_PROMPT, MOST_MESSAGES, MOST_CHOICES, MOST_STOPS = 65_536, 64, 8, 4
MOST_ALTERNATIVES, LONGEST_USER_NAME = 20, 128

PromptText = Annotated[str, StringConstraints(max_length=LONGEST_PROMPT)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=64)]


def _plain(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"expected letters that can be printed, got {name!r}")
    return name


UserName = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_USER_NAME), AfterValidator(_plain)
]


MOST_PARTS = 64
"""Of a message. Each one that is wrong costs time to say so."""


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: PromptText


class ChatMessage(BaseModel):
    """What one side said."""

    role: Literal["system", "developer", "user", "assistant"]
    content: PromptText | Annotated[list[TextPart], Field(max_length=MOST_PARTS)]

    @property
    def text(self) -> str:
        """All of it."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(BaseModel):
    """How an answer is streamed."""

    include_usage: bool = False


class AnswerRequest(BaseModel):
    """What both kinds of requests have. What is not named here is not looked at."""

    model_config = ConfigDict(extra="ignore")

    model: str = "ecology"
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
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

    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_ALTERNATIVES)
    tools: Annotated[list[object], Field(max_length=0)] | None = None

    @property
    def most_tokens(self) -> int | None:
        """New tokens of a reply, if the client says it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Likeliest tokens that are told beside each one; None without log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(AnswerRequest):
    """``POST /v1/completions``."""

    prompt: PromptText | Annotated[list[PromptText], Field(min_length=1, max_length=1)]
    max_tokens: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0, le=MOST_ALTERNATIVES)
    echo: Literal[False] | None = None

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    @property
    def most_tokens(self) -> int | None:
        """New tokens of a reply, if the client says it."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Likeliest tokens that are told beside each one; None without log-probabilities."""
        return self.logprobs


class FeedbackRequest(BaseModel):
    """``POST /v1/feedback``: what the user says of a reply. One of ``accepted`` and ``score``."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    choice: int = Field(0, ge=0, lt=MOST_CHOICES)
    accepted: bool | None = None
    score: float | None = Field(None, ge=0, le=1)
    comment: Annotated[str, StringConstraints(max_length=2000)] = ""
    user: UserName | None = None
