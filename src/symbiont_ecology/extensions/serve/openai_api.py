"""Requests and answers in the form of OpenAI's API; everything in a request is bounded.

No parameter is ignored in silence. One that is a field of ``ChatRequest`` is honoured; one of
``WITHOUT_EFFECT`` says nothing about an answer; one of ``NEUTRAL`` is taken with the value that
changes nothing. Any other is refused by its name. Null is as good as leaving a parameter out.

A refusal is one line, ``place: expected …, got …``, with the place as a path into the request.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from symbiont_ecology.base.conversation import content_of, turns_of
from symbiont_ecology.base.names import user_name
from symbiont_ecology.base.untrusted import check_depth
from symbiont_ecology.extensions.serve.messages import RequestRefusedError
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.streaming import NewToken, ScoredToken
from symbiont_ecology.tasks.log_rows import NO, YES, word_of

MAX_PROMPT_CHARS, MAX_CHOICES, MAX_ALTERNATIVES = 65_536, 8, 20
MAX_STOPS, MAX_STOP_CHARS = 16, 64
MAX_SCHEMA_CHARS = 16_384
MAX_PAIRS, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 512
"""Pairs of ``metadata``, as with OpenAI."""
MIN_TOP_P = 1e-9
"""Stands for 0, with which only the most likely token is left."""
MIN_LOG_PROBABILITY = -9999.0
"""Stands for minus infinity, which JSON has no word for."""
WITHOUT_EFFECT = frozenset(
    {
        *("store", "service_tier", "safety_identifier", "parallel_tool_calls"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("cache_prompt", "keep_alive", "priority", "request_id"),  # of other servers
    }
)
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "modalities": (["text"],),
    "logit_bias": ({},),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), (0,)),
    **dict.fromkeys(("audio", "moderation", "prediction", "web_search_options"), ()),
    # Of other servers.
    "top_k": (-1, 0),
    "stop_token_ids": ([],),
    "chat_template_kwargs": ({}, {"enable_thinking": False}),
    **dict.fromkeys(("min_p", "min_tokens"), (0,)),
    **dict.fromkeys(("repetition_penalty", "repeat_penalty", "length_penalty"), (1,)),
    **dict.fromkeys(("typical_p", "best_of"), (1,)),
    **dict.fromkeys(("add_generation_prompt", "skip_special_tokens"), (True,)),
    **dict.fromkeys(("continue_final_message", "include_stop_str_in_output", "echo"), (False,)),
    **dict.fromkeys(("enable_thinking", "ignore_eos", "use_beam_search"), (False,)),
    **dict.fromkeys(("chat_template", "grammar", "json_schema", "structured_outputs"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
}
_CODES = {(401, None): "invalid_api_key", (404, "model"): "model_not_found"}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


def json_object(data: bytes) -> dict[str, object]:
    """Return the object of a body.

    Raises:
        RequestRefusedError: it is no JSON object, has a key twice, or is nested too deep.
    """
    try:
        value = json.loads(data, parse_constant=_constant, object_pairs_hook=_once)
        check_depth(value)
        if not isinstance(value, dict):
            raise ValueError(f"got {value!r:.40}")
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "nested too deep"
        raise RequestRefusedError(400, f"expected a body that is a JSON object: {why}") from error
    return value


def _constant(name: str) -> object:
    raise ValueError(f"got the number {name}")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"got the key {twice!a:.40} twice")
    return found


class _Body(BaseModel):
    """A request. The description of a field is what an error says was expected."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the request in a body.

        Raises:
            RequestRefusedError: it is none.
        """
        said = {key: value for key, value in json_object(data).items() if value is not None}
        try:
            return cls.model_validate(said)
        except ValidationError as error:
            message = _message(error, {name: f.description for name, f in cls.model_fields.items()})
            raise RequestRefusedError(400, message) from error


def _message(error: ValidationError, expected: Mapping[str, str | None]) -> str:
    """Return what a client is told of a request that does not fit."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:  # the parts do not go together
        return str(first["ctx"]["error"])
    name = str(first["loc"][0])
    steps = [f"[{one}]" if isinstance(one, int) else f".{_key(one)}" for one in first["loc"][1:]]
    place = _key(name) + "".join(steps).removesuffix(".[key]")
    got = "none" if first["type"] == "missing" else f"{json.dumps(first['input']):.40}"
    if first["type"] == "value_error":
        return f"{place}: {first['ctx']['error']}"
    if name in expected:
        return f"{place}: expected {expected[name]}, got {got}"
    if name in NEUTRAL:
        values = " or ".join(map(json.dumps, NEUTRAL[name])) or "null"
        return f"{place}: expected {values}, got {got}: nothing else is supported, leave it out"
    return f"{place}: expected a parameter of this API, got an unknown one: leave it out"


def _key(name: str) -> str:
    """Return a key of a client as a place names it."""
    return f"{name if name.isprintable() else ascii(name):.80}"


def _integral(value: object) -> object:
    """Return a whole number as such: clients in some languages know no others than 16.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) and value else value


def _schema(value: object) -> object:
    """Return the JSON schema that a form of answers means: a text, empty for any form."""
    match value:
        case {"type": "text"}:
            return ""
        case {"type": "json_object"}:
            return json.dumps({"type": "object"})
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return json.dumps(schema)
    return [value] if isinstance(value, str) else value


def _within(kind: str, least: float, most: float, default: float | None = None) -> Any:
    return Field(default, ge=least, le=most, description=f"{kind} from {least:g} to {most:g}")


_YES_OR_NO = "true or false"
_NUMBER, _WHOLE = "a number", "a whole number"
_Whole = Annotated[int, BeforeValidator(_integral)]
_User = Annotated[str, AfterValidator(user_name)]
_Tokens = Annotated[_Whole | None, Field(ge=1, description="a whole number from 1 on")]
_Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


class ChatRequest(_Body):
    """``POST /v1/chat/completions``: the parameters that are honoured."""

    messages: Any = Field(
        description="a list of messages", json_schema_extra={"type": "array", "items": {}}
    )
    model: str = Field("ecology", description="the name of a model")
    temperature: float | None = _within(_NUMBER, 0, 2)
    top_p: float = _within(_NUMBER, 0, 1, default=1)
    n: _Whole = _within(_WHOLE, 1, MAX_CHOICES, default=1)
    stop: Annotated[list[_Stop], BeforeValidator(_as_list)] = Field(
        [],
        max_length=MAX_STOPS,
        description=f"up to {MAX_STOPS} texts of 1 to {MAX_STOP_CHARS} characters",
    )
    seed: _Whole | None = Field(
        None, ge=-(2**63), lt=2**63, description="a whole number of 64 bits"
    )
    max_tokens: _Tokens = None
    max_completion_tokens: _Tokens = None
    stream: bool = Field(False, description=_YES_OR_NO)
    stream_options: dict[Literal["include_usage", "include_obfuscation"], bool] = Field(
        {}, description="include_usage, true or false"
    )
    response_format: Annotated[str, BeforeValidator(_schema)] = Field(
        "",
        max_length=MAX_SCHEMA_CHARS,
        description="a type text, json_object or json_schema, with a schema of at most "
        f"{MAX_SCHEMA_CHARS} characters",
    )
    logprobs: bool = Field(False, description=_YES_OR_NO)
    top_logprobs: _Whole = _within(_WHOLE, 0, MAX_ALTERNATIVES, default=0)
    user: _User | None = Field(None, description="a text")
    metadata: dict[
        Annotated[str, Field(max_length=MAX_KEY_CHARS)],
        Annotated[str, Field(max_length=MAX_VALUE_CHARS)],
    ] = Field(
        {},
        max_length=MAX_PAIRS,
        description=f"up to {MAX_PAIRS} texts of {MAX_VALUE_CHARS} characters by name",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_idle(cls, said: dict[str, object]) -> dict[str, object]:
        """Leave out what has no effect on an answer."""
        return {
            key: value
            for key, value in said.items()
            if key not in WITHOUT_EFFECT and value not in NEUTRAL.get(key, ())
        }

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Refuse parameters that others leave without effect."""
        if self.stream_options and not self.stream:
            raise ValueError("stream_options: expected stream true beside it, got false")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs: expected logprobs true beside it, got false")
        if None is not self.max_tokens != (self.max_completion_tokens or self.max_tokens):
            both = self.max_completion_tokens
            raise ValueError(f"max_tokens: expected max_completion_tokens={both}, or one of both")
        return self

    @property
    def limit(self) -> int | None:
        """Most new tokens of a reply."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def turns(self) -> list[str]:
        """The turns of the conversation (``types.turns``).

        Raises:
            RequestRefusedError: it is none, or too long.
        """
        try:
            turns = turns_of(self.messages)
        except ValueError as error:
            raise RequestRefusedError(400, str(error)) from error
        longest = max(map(len, turns))
        if longest > MAX_PROMPT_CHARS:
            expected = f"at most {MAX_PROMPT_CHARS} characters by one speaker in a row"
            raise RequestRefusedError(400, f"messages: expected {expected}, got {longest}")
        return turns


class _Form(NamedTuple):
    """Body of feedback in another product: the keys that hold the id of the answer, the verdict and
    a comment, the first of them that is there; ``idle`` ones say nothing about a reply."""

    ids: tuple[str, ...]
    verdicts: tuple[str, ...]
    comment: str
    idle: frozenset[str] = frozenset()


FEEDBACK_FORMS: Mapping[str, _Form] = {
    "metric_name": _Form(("inference_id",), ("value",), "comment", frozenset({"tags"})),
    "gen_ai.evaluation.name": _Form(
        ("gen_ai.response.id",),
        ("gen_ai.evaluation.score.label", "gen_ai.evaluation.score.value"),
        "gen_ai.evaluation.explanation",
    ),
    "name": _Form(
        ("observationId", "traceId"),
        ("value",),
        "comment",
        frozenset({"id", "dataType", "configId", "queueId", "environment", "metadata"}),
    ),
}
"""Feedback of TensorZero, events of OpenTelemetry and scores of Langfuse, by the key that says what
is judged."""
BAD_IF_HIGH = ("hallucination", "toxicity")
"""Names of scores that are low for good replies."""
CORRECTIONS, COMMENTS = ("demonstration", "CORRECTION"), ("comment", "TEXT")
"""A name with TensorZero, a type with Langfuse: the value is the reply that was wanted, or no
verdict."""


def _in_own_form(said: dict[str, object]) -> dict[str, object]:
    """Return the body of another product as one of ours, with what is unknown in it; any other as
    it is.

    Raises:
        ValueError: it names no answer, or what it says of it is no verdict and no correction.
    """
    mark = next((key for key in FEEDBACK_FORMS if key in said), None)
    if mark is None:
        return said
    form, kinds = FEEDBACK_FORMS[mark], (said[mark], said.get("dataType"))
    read = {mark, *form.ids, *form.verdicts, form.comment, *form.idle}
    own = {key: value for key, value in said.items() if key not in read}
    own["id"] = next((said[key] for key in form.ids if key in said), None)
    if own["id"] is None:
        raise ValueError(f"{' or '.join(form.ids)}: expected the id of an answer, got none")
    own["comment"] = said.get(form.comment, "")
    key = next((key for key in form.verdicts if key in said), form.verdicts[-1])
    value = said.get(key)
    if any(kind in CORRECTIONS for kind in kinds):
        return own | {"correction": content_of(value, key)}
    if str(said[mark]).casefold() in BAD_IF_HIGH:
        raise ValueError(
            f"{mark}: expected a score that is high for good replies, got {said[mark]!a:.40}: turn "
            "it round"
        )
    word = word_of(value) if isinstance(value, str) else ""
    match value:
        case bool():
            return own | {"accepted": value}
        case 0 | 1 if "BOOLEAN" in kinds:
            return own | {"accepted": value == 1}
        case int() | float() if 0 <= value <= 1:
            return own | {"score": value}
        case str() if word in (*YES, *NO) and not any(kind in COMMENTS for kind in kinds):
            return own | {"accepted": word in YES}
    raise ValueError(
        f"{key}: expected true or false, a number from 0 to 1, or a word such as good or bad, got "
        f"{json.dumps(value):.40}"
    )


class FeedbackRequest(_Body):
    """``POST /v1/feedback``: a verdict on a reply, one of ``accepted`` and ``score``; or the reply
    that was wanted, a ``correction``, which alone refuses the one that was given. Bodies of
    ``FEEDBACK_FORMS`` are read, too."""

    id: str = Field(min_length=1, max_length=64, description="the id of an answer")
    choice: _Whole = _within(_WHOLE, 0, MAX_CHOICES - 1, default=0)
    accepted: bool | None = Field(None, description=_YES_OR_NO)
    score: float | None = _within(_NUMBER, 0, 1)
    comment: str = Field("", max_length=2000, description="a text of at most 2000 characters")
    correction: str = Field(
        "",
        max_length=MAX_PROMPT_CHARS,
        description=f"a text of at most {MAX_PROMPT_CHARS} characters",
    )
    user: _User | None = Field(None, description="a text")
    _of_others = model_validator(mode="before")(staticmethod(_in_own_form))

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [one for one in (self.accepted, self.score) if one is not None]
        if len(given) > 1 or not (given or self.correction):
            raise ValueError("accepted: expected one of accepted and score, got both or none")
        return self


def error_body(status: int, message: str) -> bytes:
    """Return an error as JSON. Its parameter is the place that the message begins with."""
    place, colon, rest = message.partition(": ")
    is_placed = colon and (" " not in place or rest.startswith("expected "))
    param = place if is_placed and status < 500 else None
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = _CODES.get((status, param))
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}).encode()


class LogProbabilities:
    """The log-probabilities of one reply, told beside the text of their tokens.

    A token may be a part of a character, and text waits while it may become a stop text. So an
    entry waits until the text of its token is told. A token that a stop text cuts is told as far as
    it stands in front of it, and what comes behind is not told: the bytes are those of the reply.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = deque[tuple[int, str, int, Sequence[ScoredToken]]]()
        self._length = self._told = 0  # characters that are whole, and that were told

    def add(self, token: NewToken) -> list[dict[str, object]]:
        """Return the entries that are told with a token."""
        if token.scored:
            text = self._decoder.decode(token.scored[0].written)
            torn = len(self._decoder.getstate()[0])  # bytes of a character that goes on
            self._waiting.append((self._length, text, torn, token.scored))
            self._length += len(text)
        self._told += len(token.text)
        entries = list[dict[str, object]]()
        while self._waiting:
            start, text, torn, (own, *others) = self._waiting[0]
            if start + len(text) + bool(torn) > self._told:
                if not token.end or start >= self._told:
                    break
                behind = len(text[self._told - start :].encode()) + torn
                own = ScoredToken.of(own.written[:-behind], own.log_probability)
            alternatives = [_scored(other) for other in others]
            entries.append(_scored(own) | {"top_logprobs": alternatives})
            self._waiting.popleft()
        return entries


def _scored(token: ScoredToken) -> dict[str, object]:
    score = max(MIN_LOG_PROBABILITY, token.log_probability)  # in this order, NaN is the least, too
    return {"token": token.text, "logprob": score, "bytes": list(token.written)}


def chat_answer(job: AnswerJob, model: str) -> dict[str, object]:
    """Return a ``chat.completion``."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": _logprobs(job, [*chain.from_iterable(map(LogProbabilities().add, reply))]),
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _head(job, model, "chat.completion") | {"choices": choices, "usage": job.usage}


def chat_chunk(
    job: AnswerJob,
    model: str,
    choice: int,
    delta: Mapping[str, str],
    reason: str = "",
    *,
    entries: Sequence[Mapping[str, object]] = (),
    is_counted: bool = False,
) -> dict[str, object]:
    """Return a ``chat.completion.chunk``; the last one of a reply says why it ends. Where a chunk
    with the usage comes behind all others, they have an empty one."""
    told = {"index": choice, "delta": delta, "finish_reason": reason or None}
    told["logprobs"] = None if reason else _logprobs(job, entries)
    usage = {"usage": None} if is_counted else {}
    return _head(job, model, "chat.completion.chunk") | {"choices": [told]} | usage


def usage_chunk(job: AnswerJob, model: str) -> dict[str, object]:
    """Return the chunk behind all others, with the tokens of the answer."""
    return _head(job, model, "chat.completion.chunk") | {"choices": [], "usage": job.usage}


def _logprobs(job: AnswerJob, entries: Sequence[Mapping[str, object]]) -> object:
    if job.ask.alternatives is None:
        return None
    return {"content": entries, "refusal": None}


def _head(job: AnswerJob, model: str, kind: str) -> dict[str, object]:
    head = {"id": job.ask.id, "object": kind, "created": job.created, "model": model}
    # A stream begins before anybody is chosen.
    return head | {"system_fingerprint": None, "organelle": job.organelle or None}
