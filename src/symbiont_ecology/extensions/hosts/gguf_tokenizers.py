"""The tokenizer of a GGUF file, as llama.cpp reads it.

A file has tokens with kinds, merges or scores, and the name of its pre-tokenizer; what that name
means stands in the table below (the regular expressions are those that the models were published
with). Of two models of tokenizers, byte-level BPE (``gpt2``) and SentencePiece's BPE (``llama``), a
tokenizer is built; every other model, an unknown name and a file without what it takes are refused
by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symbiont_ecology.model.locating import expect

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast

_NORMAL, _UNKNOWN, CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Kinds of tokens."""
SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
"""Special tokens by the names that transformers and a file give them."""
AGAIN, OWN = "convert the model again with a newer llama.cpp", "take the model's own folder"
"""What to do about a file."""
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = (rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{_REST}",)
_QWEN_2 = (rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{_REST}",)
_QWEN_3_5 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_CASES = (
    r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*"
    r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{end}"
    r"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+"
    r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{end}|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (_CASES.format(end="", digits=r"\p{N}"),)
_GPT_4O = (_CASES.format(end=f"{_ENDINGS}?", digits=r"\p{N}{1,3}"),)
_GPT_2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
_LONE_DIGITS = (r"\p{N}", *_GPT_2)
_DEEPSEEK_CODER = (*(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+"), r"\p{N}")
_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_SEED_CODER = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", *_GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")
_WHOLE = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
_KINDS = {
    _WHOLE: _LLAMA_3,
    "dbrx smaug-bpe glm4 chatglm-bpe": _LLAMA_3,
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": _QWEN_2,
    "qwen35": _QWEN_3_5,
    "tekken": _TEKKEN,
    "gpt-4o llama4 kanana2 talkie minimax-m2": _GPT_4O,
    "gpt-2 phi-2 olmo mpt jais gigachat a.x-4.0 mellum exaone4 trillion granite-docling": _GPT_2,
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": _LONE_DIGITS,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3 hunyuan-dense joyai-llm": _DEEPSEEK_3,
    "seed-coder": _SEED_CODER,
    "default": _DEFAULT,
}
PRE_TOKENIZERS = {name: steps for names, steps in _KINDS.items() for name in names.split()}
"""What parts a text, step by step within the parts, by the name that a file gives it."""
_WHOLE_WORDS = frozenset({*_WHOLE.split(), "tekken"})
"""Pre-tokenizers of models that take a word that is a token as it is, without its merges, and that
begin every text with a token, also if their files do not say so."""
_UNSAID = {"gpt2": "gpt-2", "starcoder2": "starcoder", "qwen2": "qwen2", "qwen3": "qwen2"}
"""Pre-tokenizers of architectures whose models all have the same."""


def read_tokenizer(said: Mapping[str, Any], architecture: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer that the fields of a file say, without their ``tokenizer.``.

    Raises:
        HostError: it is of a kind that is not known here, or lacks a part.
    """
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    kind = said.get("ggml.model")
    expect(
        kind in ("gpt2", "llama"), f"a tokenizer of kind gpt2 or llama, got {kind!r:.100}: {OWN}"
    )
    tokens: list[str] = said.get("ggml.tokens", [])
    kinds: list[int] = said.get("ggml.token_type", [])
    expect(
        len(kinds) == len(set(tokens)) == len(tokens) > 0,
        f"different tokens with their kinds (tokenizer.ggml.token_type), got others: {AGAIN}",
    )
    pre = said.get("ggml.pre", _UNSAID.get(architecture))
    if kind == "gpt2":
        tokenizer = _byte_level(said, pre)
    else:
        tokens, tokenizer = _sentence_piece(said, is_gemma=architecture.startswith("gemma"))
    whole = [
        pair for pair in zip(tokens, kinds, strict=True) if pair[1] in (CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False, special=what == CONTROL) for token, what in whole]
    )
    special = {
        f"{name}_token": tokens[said[f"ggml.{field}_token_id"]]
        for name, field in SPECIAL.items()
        if said.get(f"ggml.{field}_token_id", len(tokens)) < len(tokens)
    }
    begins = said.get("ggml.add_bos_token", kind == "llama" or pre in _WHOLE_WORDS)
    needed = ["eos", *["bos"] * begins]
    lost = next((name for name in needed if f"{name}_token" not in special), None)
    expect(lost is None, f"a token in tokenizer.ggml.{lost}_token_id, found none: {AGAIN}")
    first = [special["bos_token"]] if begins else []
    last = [special["eos_token"]] if said.get("ggml.add_eos_token") else []
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        special_tokens=[(token, tokens.index(token)) for token in {*first, *last}],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=said.get("chat_template"), **special
    )


def _byte_level(said: Mapping[str, Any], pre: str | None) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models

    expect(pre is not None, f"the kind of pre-tokenizer (tokenizer.ggml.pre), found none: {AGAIN}")
    expect(pre in PRE_TOKENIZERS, f"a kind of pre-tokenizer that is known, got {pre!r:.100}: {OWN}")
    expect("ggml.merges" in said, f"merges (tokenizer.ggml.merges), found none: {AGAIN}")
    # A merge is two tokens with a blank between them; the first may begin with a blank itself.
    places = ((merge, merge.index(" ", 1)) for merge in said["ggml.merges"])
    model = models.BPE(
        {token: index for index, token in enumerate(said["ggml.tokens"])},
        [(merge[:place], merge[place + 1 :]) for merge, place in places],
        continuing_subword_prefix="",
        end_of_word_suffix="",
        ignore_merges=pre in _WHOLE_WORDS,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _parted(PRE_TOKENIZERS[str(pre)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _parted(steps: Sequence[str]) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    if steps == _LONE_DIGITS:  # as SmolLM2 was published: in its fingerprint
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    splits = [pre_tokenizers.Split(Regex(step), "isolated") for step in steps]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, last])


def _sentence_piece(said: Mapping[str, Any], *, is_gemma: bool) -> tuple[list[str], Tokenizer]:
    """Return the tokens as they are spelled in the tokenizer, and the tokenizer."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores, kinds = said.get("ggml.scores"), said["ggml.token_type"]
    # Gemma's blanks are stored as such, and its scores do not follow the order of its merges.
    tokens = ["▁" * len(token) if not token.strip(" ") else token for token in said["ggml.tokens"]]
    if is_gemma:
        scores = range(0, -len(tokens), -1)
    expect(
        scores is not None and len(scores) == len(tokens),
        f"a score of each token (tokenizer.ggml.scores), got others: {AGAIN}",
    )
    vocab = {token: index for index, token in enumerate(tokens)}
    written = {
        token for token, kind in zip(tokens, kinds, strict=True) if kind in (_NORMAL, _USER_DEFINED)
    }
    merges = []
    for token, score in zip(tokens, scores or (), strict=True):
        halves = [(token[:place], token[place:]) for place in range(1, len(token))]
        pairs = [pair for pair in halves if token in written and written.issuperset(pair)]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        merges += [(score, *pair) for pair in pairs]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    unknown = next(
        (token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None
    )
    model = models.BPE(
        vocab,
        [(left, right) for _, left, right in merges],
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    has_prefix = said.get("ggml.add_space_prefix", not is_gemma)
    tokenizer = Tokenizer(model)
    blanks = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * has_prefix + [blanks])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(back + [decoders.Strip(" ", 1, 0)] * has_prefix)
    return tokens, tokenizer
