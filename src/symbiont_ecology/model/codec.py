"""Text to token ids and back, as a host's files say; its weights are not needed.

A chat template is a stranger's program. The day that it prints is the run's, so that the same
command gives the same bytes on every day. It is tried once with words of our own: one that takes a
turn's text as a list of parts alone gets it so, one that loses what a user says is refused, and
turns of another role that it loses are refused when they come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.registry import DATE
from symbiont_ecology.base.types import messages, without_turns
from symbiont_ecology.model.architectures import ModelConfig
from symbiont_ecology.model.loading import TOKENIZER_FILES
from symbiont_ecology.model.locating import (
    MAX_SIZE,
    GenerationFields,
    HostFields,
    TokenFields,
    TokenizerFields,
    check_fields,
    expect,
    expected,
    read_json,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast


PLAIN_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
_NOT_PLAIN = (
    "added_tokens_decoder",
    "additional_special_tokens",
    "extra_special_tokens",
    "fix_mistral_regex",
    "split_special_tokens",
)
"""Keys of a ``tokenizer_config.json`` with which transformers changes what ``tokenizer.json`` says.
"""
INCIDENTAL = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
)
"""Keys of a ``config.json`` that say nothing about what is computed."""
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
BYTES_OF = {chr(byte): byte for byte in _PRINTABLE}
BYTES_OF |= {chr(0x100 + place): byte for place, byte in enumerate(_OTHERS)}
"""Bytes by the letters that stand for them in byte-level vocabularies (GPT-2)."""
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
"""A byte in the vocabularies of SentencePiece."""
MAX_KNOWN, MAX_KNOWN_CHARS = 4096, 8192
"""Texts whose token ids are remembered, and letters of the longest of them: 250 MB at most."""
_TRIED = {
    "user": ("user",),
    "system": ("system", "user"),
    "assistant": (*("user", "assistant") * 4, "user"),  # more than a window would keep
}
"""Turns with which a chat template is tried, by the role that they are about."""


Texts: TypeAlias = Sequence[str | Sequence[int]]
"""Texts, each as letters or as token ids."""


class TextCodec:
    """Text to token ids and back.

    ``end_tokens`` are the ids that end an answer; the first is the tokenizer's own. The ids of the
    host are below ``vocab``, which is known once it is loaded. ``is_chat`` puts every prompt into
    the host's chat template; it may be set at any time. ``date`` is the day that the template
    prints, if it prints one.

    Raises:
        HostError: the tokenizer cannot be used, or for a chat the template.
    """

    def __init__(
        self, folder: Path, config: ModelConfig, *, is_chat: bool = False, date: str = DATE
    ) -> None:
        self.folder, self.is_chat, self.vocab = folder, is_chat, MAX_SIZE
        with expected(f"a day such as {DATE}, got {date!r:.100}", ValueError, TypeError):
            self._day = datetime.fromisoformat(date)
        self._config = {key: value for key, value in config.items() if key not in INCIDENTAL}
        path = folder / "tokenizer_config.json"
        said = read_json(path)
        settings = check_fields(TokenizerFields, said, str(path))
        is_plain = settings.tokenizer_class in PLAIN_TOKENIZERS and not any(
            said.get(key) for key in _NOT_PLAIN
        )
        has_file = (folder / "tokenizer.json").is_file()
        self._backend = (
            self._plain_backend() if is_plain and has_file else self.tokenizer.backend_tokenizer
        )
        self._backend.no_padding()
        self._backend.no_truncation()
        self._known: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
        self.end_tokens = self._find_ends(settings, check_fields(HostFields, config, "config.json"))
        if is_chat:
            _ = self._template

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The transformers tokenizer, loaded when first asked for (importing it takes most of a
        second)."""
        from transformers import AutoTokenizer

        with expected(f"a tokenizer in {self.folder} that transformers can load", Exception):
            tokenizer = AutoTokenizer.from_pretrained(
                str(self.folder), local_files_only=True, trust_remote_code=False
            )
        expect(
            hasattr(tokenizer, "backend_tokenizer"),
            f"a fast tokenizer (tokenizer.json) in {self.folder}: convert it first",
        )
        template = tokenizer.chat_template
        if isinstance(template, dict):
            template = {name: self._dated(text) for name, text in template.items()}
        tokenizer.chat_template = self._dated(template) if isinstance(template, str) else template
        return tokenizer

    def _dated(self, template: str) -> str:
        """Return a chat template with a macro in place of transformers' own function that tells
        today; as data alone go into a template, none of ours can. The line end behind the macro
        belongs to its block and leaves no trace."""
        codes = [f"%{sign}{letter}" for sign in ("-", "") for letter in ascii_letters]
        filters = (f"|replace({code!r}, {self._day.strftime(code)!r})" for code in codes)
        macro = f"{{% macro strftime_now(format) %}}{{{{ format{''.join(filters)} }}}}"
        return f"{macro}{{% endmacro %}}\n{template}" if "strftime_now" in template else template

    def identity(self) -> bytes:
        """Return everything beside the weights that decides an answer: config, tokenizer, ends,
        chat template."""
        path = next(
            self.folder / name for name in TOKENIZER_FILES if (self.folder / name).is_file()
        )
        # Parsed, where it can be: a copy that another library saved differs in white space.
        tokenizer = read_json(path) if path.suffix == ".json" else path.read_bytes().hex()
        template = self.tokenizer.chat_template if self.is_chat else None
        facts = [self._config, tokenizer, self.end_tokens, template]
        with expected(f"files in {self.folder} that are not nested so deep", RecursionError):
            return json.dumps(facts, sort_keys=True, default=str).encode()

    def tokens(self, texts: Sequence[str], *, special: bool) -> list[np.ndarray]:
        """Return token ids of each text, with or without the tokenizer's own special tokens around
        it; read only.

        What was encoded lately is remembered: a prompt is priced, answered and learned from.
        """
        cache = self._known[special]
        missing = [text for text in dict.fromkeys(texts) if text not in cache]
        if len(cache) + len(missing) > MAX_KNOWN:
            cache.clear()
            missing = list(dict.fromkeys(texts))
        encodings = self._backend.encode_batch_fast(missing, add_special_tokens=special)
        ids_of = {}
        for text, encoding in zip(missing, encodings, strict=True):
            ids_of[text] = np.array(encoding.ids, dtype=np.int64)
            ids_of[text].setflags(write=False)
        cache.update((text, ids) for text, ids in ids_of.items() if len(text) <= MAX_KNOWN_CHARS)
        return [ids_of[text] if text in ids_of else cache[text] for text in texts]

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Return token ids of prompts, with the tokenizer's own special tokens or in the host's
        chat template.

        Raises:
            HostError: a prompt has no tokens, or some that the host does not know.
        """
        texts = list(map(self.chat if self.is_chat else without_turns, prompts))
        # A chat template brings the special tokens.
        encoded = self.tokens(texts, special=not self.is_chat)
        return [self.known(ids, is_prompt=True) for ids in encoded]

    def ids(self, texts: Texts, *, is_prompt: bool) -> list[np.ndarray]:
        """Return token ids of prompts or of completions; what is given as ids stays as it is.

        Raises:
            HostError: a prompt has no tokens, or the host does not know some of them.
        """
        words = [text for text in texts if isinstance(text, str)]
        encoded = iter(self.encode(words) if is_prompt else self.tokens(words, special=False))
        rows = [
            next(encoded) if isinstance(text, str) else np.array(text, dtype=np.int64)
            for text in texts
        ]
        return [self.known(row, is_prompt=is_prompt) for row in rows]

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Return token ids of each text as a completion that ends: what a gold answer is learned
        from.

        Raises:
            HostError: the host does not know some of them.
        """
        return [
            (*map(int, self.known(ids)), self.end_tokens[0])
            for ids in self.tokens(answers, special=False)
        ]

    def known(self, ids: np.ndarray, *, is_prompt: bool = False) -> np.ndarray:
        """Return these token ids.

        Raises:
            HostError: the host does not know some of them, or it is a prompt without any.
        """
        if is_prompt and not len(ids):
            raise HostError("expected a prompt of at least one token, got none: write something")
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab:
            raise HostError(
                f"expected token ids from 0 to {self.vocab - 1}, got {ids.min()} to {ids.max()}: "
                "the tokenizer belongs to another model"
            )
        return ids

    def chat(self, prompt: str) -> str:
        """Return the turns of a prompt in the host's chat template, up to where the answer begins.

        Raises:
            HostError: the host has no chat template, or one that has no room for such turns.
        """
        turns = messages(prompt)
        in_parts, lost = self._template
        gone = next((turn["role"] for turn in turns if turn["role"] in lost), None)
        expect(
            gone is None,
            f"a chat template for turns of {gone}, got one that drops them: leave these out"
            f"{' (tasks.style.system)' if gone == 'system' else ''}",
        )
        return self._rendered(turns, in_parts=in_parts)

    @cached_property
    def _template(self) -> tuple[bool, frozenset[str]]:
        """The chat template's want of parts instead of texts, and the roles whose turns it loses.

        Raises:
            HostError: there is none, or it loses what a user says.
        """
        expect(
            self.tokenizer.chat_template,
            f"a chat template in {self.folder}, found none: set tasks.style.is_chat=false",
        )
        for in_parts in (False, True):
            lost = frozenset(role for role in _TRIED if self._loses(role, in_parts=in_parts))
            if "user" not in lost:
                return in_parts, lost
        self._rendered([{"role": "user", "content": "a"}], in_parts=False)  # says what is wrong
        raise HostError(
            f"expected a chat template in {self.folder} that shows what a user says, got one that "
            "drops it: mend it, or set tasks.style.is_chat=false"
        )

    def _loses(self, role: str, *, in_parts: bool) -> bool:
        """Return True if turns of a role leave no trace. A template that refuses them says so by
        itself when they come."""
        words = [f"quokka{place}" for place in range(len(_TRIED[role]))]
        turns = [
            {"role": who, "content": word} for who, word in zip(_TRIED[role], words, strict=True)
        ]
        try:
            text = self._rendered(turns, in_parts=in_parts)
        except HostError:
            return role == "user"
        shown = text.casefold()  # a template may write titles
        return "{'type'" in shown or not all(word in shown for word in words)

    def _rendered(self, turns: Sequence[dict[str, str]], *, in_parts: bool) -> str:
        roles = dict.fromkeys(turn["role"] for turn in turns)
        said = [
            turn | {"content": [{"type": "text", "text": turn["content"]}]} if in_parts else turn
            for turn in turns
        ]
        what = f"a chat template for turns of {', '.join(roles)}"  # without paths: clients read it
        with expected(f"{what}: leave some out, such as tasks.style.system", Exception):
            # Hosts that can think aloud are asked not to: the reply limits leave no room for it.
            text = self.tokenizer.apply_chat_template(
                said, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        return str(text)

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return text of each row of token ids, special tokens and the end of the answer left
        out."""
        answers = (list(row[:-1] if row and row[-1] in self.end_tokens else row) for row in rows)
        # One by one: a batch would wake a pool of threads, which takes longer than short rows do.
        return [self._backend.decode(row, skip_special_tokens=True) for row in answers]

    @cached_property
    def special(self) -> dict[int, str]:
        """Special tokens by their ids: no decoded text shows them."""
        added = self._backend.get_added_tokens_decoder()
        return {token_id: token.content for token_id, token in added.items() if token.special}

    def ends_of(self, stops: Sequence[str]) -> frozenset[int]:
        """Return the tokens that end an answer: the host's own, and stop texts that are special."""
        stopping = [token_id for token_id, text in self.special.items() if text in stops]
        return frozenset((*self.end_tokens, *stopping))

    def spell(self, token_id: int, *, is_first: bool = False) -> tuple[str, bytes]:
        """Return the text of a token and its bytes, which may be a part of a character.

        A special token has no bytes: it is no part of the decoded text. The first token of a text
        may lose the space in front of it.
        """
        name, decoder = self._backend.id_to_token(token_id) or "", self._decoder
        if token_id in self.special:
            return name, b""
        if "ByteLevel" in decoder:
            is_text = not BYTES_OF.keys() >= set(name)  # an added token
            written = name.encode() if is_text else bytes(BYTES_OF[letter] for letter in name)
        elif "ByteFallback" in decoder and (byte := BYTE_TOKEN.fullmatch(name)):
            written = bytes([int(byte[1], 16)])
        else:  # what a second one adds
            once, twice = (self._backend.decode([token_id] * count) for count in (1, 2))
            written = (once if is_first else twice.removeprefix(once)).encode()
        return written.decode("utf-8", "replace"), written

    @cached_property
    def _decoder(self) -> str:
        """The decoder's description, as ``tokenizer.json`` holds it."""
        decoder = self._backend.decoder
        return "" if decoder is None else decoder.__getstate__().decode()

    def _plain_backend(self) -> Tokenizer:
        from tokenizers import Tokenizer

        path = self.folder / "tokenizer.json"
        expect("model" in read_json(path), f"a tokenizer in {path}, got one that names no model")
        with expected(f"a tokenizer in {path}, got a damaged file", Exception):
            return Tokenizer.from_str(path.read_text(encoding="utf-8"))

    def _find_ends(self, settings: TokenizerFields, config: HostFields) -> tuple[int, ...]:
        token = settings.eos_token
        text = token.content if isinstance(token, TokenFields) else token
        ids = [] if text is None else [self._backend.token_to_id(text)]
        path = self.folder / "generation_config.json"
        generation = check_fields(GenerationFields, read_json(path), str(path))
        for value in (generation.eos_token_id, config.eos_token_id):
            ids += value if isinstance(value, list) else [value]
        # A config may carry another vocabulary's default, which no logit stands for.
        vocab = range(config.vocab_size or MAX_SIZE)
        ends = tuple(dict.fromkeys(value for value in ids if value is not None and value in vocab))
        path = self.folder / "tokenizer_config.json"
        expect(ends, f"an end token (eos_token) in {path}, found none")
        return ends
