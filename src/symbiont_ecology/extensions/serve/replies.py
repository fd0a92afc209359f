"""Answers and errors in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate

from symbiont_ecology.extensions.serve.scheduler import AnswerJob, usage
from symbiont_ecology.host.streaming import NewToken

TokenText = Callable[[int], str]
"""The text of a token."""
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def error_body(status: int, message: str) -> bytes:
    """An error as JSON."""
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def created() -> int:
    """Seconds since 1970."""
    return int(datetime.now(UTC).timestamp())


def chat_answer(job: AnswerJob, model: str, text_of: TokenText) -> dict[str, object]:
    """A whole ``chat.completion``."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": chat_logprobs(reply, text_of) if job.has_scores else None,
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _whole(job, model, "chat.completion", choices)


def text_answer(job: AnswerJob, model: str, text_of: TokenText) -> dict[str, object]:
    """A whole ``text_completion``."""
    choices = [
        {
            "index": index,
            "text": text,
            "logprobs": text_logprobs(reply, text_of) if job.has_scores else None,
            "finish_reason": reply[-1].end,
        }
        for index, (text, reply) in enumerate(zip(job.texts, job.replies, strict=True))
    ]
    return _whole(job, model, "text_completion", choices)


def chat_chunk(
    job: AnswerJob, model: str, moment: int, choices: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """A ``chat.completion.chunk``."""
    return _head(job, model, "chat.completion.chunk", moment) | {"choices": list(choices)}


def text_chunk(
    job: AnswerJob, model: str, moment: int, choices: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """A chunk of a ``text_completion``."""
    return _head(job, model, "text_completion", moment) | {"choices": list(choices)}


def chat_logprobs(tokens: Sequence[NewToken], text_of: TokenText) -> dict[str, object]:
    """Log-probabilities of a chat reply."""

    def entry(token_id: int, score: float) -> dict[str, object]:
        """One token."""
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
    """Log-probabilities of a completion, or of the part of it behind ``offset`` letters."""
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
    return _head(job, model, kind, created()) | {"choices": list(choices), "usage": usage(job)}


def _head(job: AnswerJob, model: str, kind: str, moment: int) -> dict[str, object]:
    head = {"id": job.id, "object": kind, "created": moment, "model": model}
    # A stream begins before anybody is chosen.
    return head | {"system_fingerprint": None, "organelle": job.organelle or None}
