"""Prompts and answers as a host's token ids. Its weights are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model.loading import TextCodec, read_model_config
from symbiont_ecology.model.locating import find_folder

Texts: TypeAlias = Sequence[str | Sequence[int]]
"""Texts, each as letters or as token ids."""


@dataclass(frozen=True)
class CodecReader:
    """Reads as a host with ``vocab`` tokens does, in its chat template or not."""

    codec: TextCodec
    vocab: int
    is_chat: bool

    @classmethod
    def of(cls, name_or_path: str, vocab: int, is_chat: bool) -> CodecReader:
        """The reader of a host, by its files.

        Raises:
            HostError: they cannot be found or read.
        """
        folder = find_folder(name_or_path)
        return cls(TextCodec(folder, read_model_config(folder)), vocab, is_chat)

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of prompts, with the tokenizer's own special tokens or in the host's chat
        template.

        Raises:
            HostError: a prompt has no tokens, or some that the host does not know.
        """
        texts = self.codec.texts(prompts, is_chat=self.is_chat)
        # A chat template brings the special tokens.
        encoded = self.codec.encode(texts, special=not self.is_chat)
        for prompt, ids in zip(prompts, encoded, strict=True):
            if not len(ids):
                raise HostError(
                    f"expected a prompt of at least one token, got {prompt!r}: write something"
                )
            self.known(ids)
        return encoded

    def ids(self, texts: Texts, *, is_prompt: bool) -> list[np.ndarray]:
        """Token ids of prompts or of completions; what is given as ids stays as it is.

        Raises:
            HostError: a prompt has no tokens, or the host does not know some of them.
        """
        words = [text for text in texts if isinstance(text, str)]
        encoded = iter(self.encode(words) if is_prompt else self.codec.encode(words, special=False))
        rows = [
            next(encoded) if isinstance(text, str) else np.array(text, dtype=np.int64)
            for text in texts
        ]
        if is_prompt and not all(map(len, rows)):
            raise HostError("expected a prompt of at least one token, got no token ids")
        return list(map(self.known, rows))

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text as a completion that ends.

        Raises:
            HostError: the host does not know some of them.
        """
        return [
            (*map(int, self.known(ids)), self.codec.end_tokens[0])
            for ids in self.codec.encode(list(answers), special=False)
        ]

    def known(self, ids: np.ndarray) -> np.ndarray:
        """The same token ids.

        Raises:
            HostError: the host does not know some of them.
        """
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab:
            raise HostError(
                f"expected token ids from 0 to {self.vocab - 1}, got {ids.min()} to {ids.max()}: "
                "the tokenizer belongs to another model"
            )
        return ids
