"""Answers in the form of a JSON schema: only tokens that such a text can go on with are chosen.

llguidance (https://github.com/guidance-ai/llguidance) follows the grammar of a schema. It is loaded
with the first request for a form, and reads the tokenizer then, which takes a second or two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.codec import TextCodec

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MAX_KNOWN_SCHEMAS = 64
BLANKS = " ?"
"""Between the parts of an answer. As many as a model likes would never end; lines may be stops."""


@dataclass(frozen=True)
class Form:
    """One answer that has a form, as far as it is written."""

    matcher: LLMatcher
    vocab: int

    def narrow(self, logits: Tensor) -> None:
        """Leaves only tokens that the answer can go on with; ``logits`` are ``(vocab,)``."""
        bits = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little", count=self.vocab).astype(bool)
        logits[torch.from_numpy(~allowed).to(logits.device)] = -torch.inf

    def take(self, token: int) -> None:
        """Go on with a token."""
        self.matcher.consume_token(token)


class Forms:
    """The forms of answers of a host."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._known: dict[str, LLMatcher] = {}

    def begin(self, schema: str) -> Form:
        """Return the form of an answer that begins; ``schema`` is a JSON schema.

        Raises:
            HostError: the schema cannot be followed, or llguidance is not installed.
        """
        if schema not in self._known:
            if len(self._known) == MAX_KNOWN_SCHEMAS:
                self._known.clear()
            self._known[schema] = self._compiled(schema)
        return Form(self._known[schema].deep_copy(), self._codec.vocab)

    def _compiled(self, schema: str) -> LLMatcher:
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise HostError(
                "response_format: this service has no llguidance: leave it out, or install it there"
            ) from error
        try:
            blanks: JsonCompileOptions = {"whitespace_pattern": BLANKS}
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=blanks)
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        except ValueError as error:
            raise _refusal([str(error)]) from error
        if matcher.is_error():
            raise _refusal(matcher.get_error().splitlines())
        return matcher

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance.hf import from_tokenizer

        codec = self._codec
        return from_tokenizer(codec.tokenizer, codec.vocab, list(codec.end_tokens))


def _refusal(lines: Iterable[str]) -> HostError:
    why = " ".join(" ".join(lines).split())
    return HostError(f"response_format: expected a JSON schema that can be followed: {why:.200}")
