"""Tokenizers of GGUF files give the ids of those that the models were published with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN_2
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX as QWEN_3_5

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.extensions.hosts.gguf_tokenizers import PRE_TOKENIZERS, read_tokenizer

TEXTS = (
    "",
    "I'll say we've 12345 things, they'RE 3.14159 or 1,000,000!",
    "a  b   c\n\n  d \t\n e   ",
    "   \n\n",
    "x = foo(bar)[0]; // 100% sure?\r\n\tif (y) { return z; }",
    "日本語のテキストと漢字、中文字符，한국어 텍스트",
    "héllo wörld ÀÉÎ naïve Ωmega ЖЗ ß ǅ ʰ हिन्दी العربية ٣٤٥ ½ Ⅳ",
    "👍🏽 emoji 🎉🎉 mixed5with7digits CamelCaseWORDSandMore",
    "https://example.org/a/b?c=1&d='2' ...!!!??? --- ~~~ $$$ ^^^ ||| `code`",
    "word " * 3 + "it's IT'S 'tis don't",
)


@pytest.fixture(scope="module")
def words() -> dict[str, Any]:
    """Fields of a byte-level tokenizer whose merges go across all borders of words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        show_progress=False,
        special_tokens=["<bos>", "<eos>", "<｜User｜>", "<mark>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    parts = [text[start : start + 12] for text in TEXTS for start in range(0, len(text), 3)]
    tokenizer.train_from_iterator(parts * 2, trainer)
    tokens = [tokenizer.id_to_token(place) for place in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "ggml.model": "gpt2",
        "ggml.tokens": tokens,
        "ggml.token_type": [3, 3, 3, 4] + [1] * (len(tokens) - 4),
        "ggml.merges": [" ".join(merge) for merge in merges],
        "ggml.bos_token_id": 0,
        "ggml.eos_token_id": 1,
    }


def splits(*regexes: str, last: bool = False) -> pre_tokenizers.PreTokenizer:
    """As ``tokenizer.json`` of many models has it."""
    steps = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]
    return pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=last)]
    )


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SEED = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}"
    "\r\n"
    r"]+|\s*["
    "\r\n"
    r"]+|\s+(?!\S)|\s+"
)
DEEPSEEK_3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
LONE = pre_tokenizers.Sequence([DIGITS, BYTES])
CODER = [
    pre_tokenizers.Split(Regex(regex), "isolated")
    for regex in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")
]
LAST = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
PUBLISHED = {
    "llama-bpe": splits(LLAMA_3),
    "dbrx": splits(LLAMA_3),
    "qwen2": splits(QWEN_2),
    "deepseek-r1-qwen": splits(QWEN_2),
    "qwen35": splits(QWEN_3_5),
    "tekken": splits(TEKKEN),
    "gpt-4o": splits(GPT_4O),
    "gpt-2": BYTES,
    "smollm": LONE,
    "starcoder": LONE,
    "refact": LONE,
    "command-r": LONE,
    "deepseek-coder": pre_tokenizers.Sequence([*CODER, DIGITS, LAST]),
    "deepseek-v3": splits(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_3),
    "seed-coder": splits(SEED),
}
"""Pre-tokenizers of models as their ``tokenizer.json`` has them."""


def ids(tokenizer: Any, *texts: str) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("pre", PUBLISHED)
def test_a_pre_tokenizer_parts_texts_as_the_published_one(words: dict[str, Any], pre: str) -> None:
    made = read_tokenizer(words | {"ggml.pre": pre}, "llama").backend_tokenizer
    published = Tokenizer.from_str(made.to_str())
    published.pre_tokenizer = PUBLISHED[pre]
    assert ids(made, *TEXTS) == ids(published, *TEXTS)
    bare = Tokenizer.from_str(made.to_str())
    bare.pre_tokenizer = LAST
    assert ids(bare, *TEXTS) != ids(published, *TEXTS), "the merges tell them apart"
    for text in TEXTS:
        assert made.decode(ids(made, text)[0]) == text


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_every_letter(words: dict[str, Any], pre: str) -> None:
    made = read_tokenizer(words | {"ggml.pre": pre}, "llama").backend_tokenizer
    assert [made.decode(said) for said in ids(made, *TEXTS)] == list(TEXTS)


@pytest.mark.parametrize(
    ("changes", "around"),
    [
        ({"ggml.pre": "llama-bpe"}, ([0], [])),
        ({"ggml.pre": "tekken"}, ([0], [])),
        ({"ggml.pre": "qwen2"}, ([], [])),
        ({"ggml.pre": "llama-bpe", "ggml.add_bos_token": False}, ([], [])),
        ({"ggml.pre": "gpt-2", "ggml.add_bos_token": True}, ([0], [])),
        ({"ggml.pre": "gpt-2", "ggml.add_eos_token": True}, ([], [1])),
    ],
)
def test_what_stands_around_a_text_is_what_the_file_says(
    words: dict[str, Any], changes: dict[str, Any], around: tuple[list[int], list[int]]
) -> None:
    made = read_tokenizer(words | changes, "llama").backend_tokenizer
    (inner,) = ids(made, "hello")
    assert made.encode("hello").ids == around[0] + inner + around[1]


def test_tokens_of_a_kind_of_their_own_stay_whole(words: dict[str, Any]) -> None:
    made = read_tokenizer(words | {"ggml.pre": "gpt-2"}, "llama").backend_tokenizer
    (said,) = ids(made, "a<｜User｜>b<mark><eos>")
    assert [said[1], *said[3:]] == [2, 3, 1], "also one of letters that no byte stands for"
    assert made.decode(said, skip_special_tokens=True) == "ab<mark>"


def test_a_word_that_is_a_token_is_taken_whole_where_the_model_was_trained_so(
    words: dict[str, Any],
) -> None:
    tokens = [*words["ggml.tokens"], "zebra"]
    kinds = [*words["ggml.token_type"], 1]
    said = words | {"ggml.tokens": tokens, "ggml.token_type": kinds}
    found = {
        pre: ids(read_tokenizer(said | {"ggml.pre": pre}, "llama").backend_tokenizer, "zebra")
        for pre in ("llama-bpe", "tekken", "qwen2")
    }
    assert found["llama-bpe"] == found["tekken"] == [[len(tokens) - 1]]
    assert len(found["qwen2"][0]) > 1


@pytest.mark.parametrize("architecture", ["gpt2", "starcoder2", "qwen2", "qwen3", "llama", "phi3"])
def test_a_file_that_names_no_pre_tokenizer_has_that_of_its_architecture_or_is_refused(
    words: dict[str, Any], architecture: str
) -> None:
    if architecture in ("llama", "phi3"):
        with pytest.raises(HostError, match=r"tokenizer\.ggml\.pre"):
            read_tokenizer(words, architecture)
        return
    own = {"gpt2": "gpt-2", "starcoder2": "starcoder"}.get(architecture, "qwen2")
    made = read_tokenizer(words, architecture).backend_tokenizer
    named = read_tokenizer(words | {"ggml.pre": own}, "llama").backend_tokenizer
    assert ids(made, *TEXTS) == ids(named, *TEXTS)


PIECES = (
    *("▁", "a", "b", "c", "d", "e", "l", "o", "h", "r", "w", "▁h", "el", "he", "lo", "ll", "▁he"),
    *("hel", "llo", "▁hel", "▁hello", "wo", "rl", "▁w", "▁wo", "rld", "▁▁", "▁▁▁▁", "or", "ld"),
)


def sentence_piece(**changes: Any) -> dict[str, Any]:
    """Fields of a tokenizer of pieces with scores, and of a token for every byte."""
    control = ["<unk>", "<s>", "</s>", "<|user|>"]
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    return {
        "ggml.model": "llama",
        "ggml.tokens": [*control, *raw, *PIECES],
        "ggml.scores": [0.0] * 260 + [-float((7 * place) % 31) for place in range(len(PIECES))],
        "ggml.token_type": [2, 3, 3, 3, *[6] * 256, *[1] * len(PIECES)],
        "ggml.bos_token_id": 1,
        "ggml.eos_token_id": 2,
    } | changes


def as_llama_cpp(said: dict[str, Any], text: str, *, has_prefix: bool) -> list[int]:
    """Ids by the rule itself: the neighbours whose piece has the best score become one, the first
    of equal ones, until none is a piece; bytes stand for what is none."""
    scores = dict(zip(said["ggml.tokens"], said["ggml.scores"], strict=True))
    place = {token: index for index, token in enumerate(said["ggml.tokens"])}
    parts = list((" " * (has_prefix and text != "") + text).replace(" ", "▁"))
    while True:
        pairs = [
            (-scores[left + right], index)
            for index, (left, right) in enumerate(pairwise(parts))
            if left + right in scores
        ]
        if not pairs:
            break
        _, index = min(pairs)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return [
        one
        for part in parts
        for one in (
            [place[part]] if part in place else [place[f"<0x{byte:02X}>"] for byte in part.encode()]
        )
    ]


SPOKEN: Sequence[str] = (
    *("", "hello world", " hello", "  hello    world ", "helloworld", "held or lord"),
    *("héllo\nworld", "日本", "a\tb", "12 👍"),
)


@pytest.mark.parametrize("has_prefix", [True, False])
def test_pieces_are_joined_by_their_scores(has_prefix: bool) -> None:
    said = sentence_piece(**{"ggml.add_space_prefix": has_prefix})
    made = read_tokenizer(said, "llama").backend_tokenizer
    for text in SPOKEN:
        assert ids(made, text)[0] == as_llama_cpp(said, text, has_prefix=has_prefix), text
        assert made.decode(ids(made, text)[0]) == text
    assert made.encode("hello").ids[0] == 1, "a text begins with a token if the file says nothing"
    (turn,) = ids(made, "<|user|>hello")
    assert turn == [3, *ids(made, "hello")[0]]


def test_gemma_takes_blanks_as_they_are_and_pieces_in_their_order() -> None:
    tokens = [token.replace("▁▁▁▁", "    ").replace("▁▁", "  ") for token in PIECES]
    plain = sentence_piece()
    said = plain | {"ggml.tokens": [*plain["ggml.tokens"][:260], *tokens], "ggml.scores": None}
    made = read_tokenizer(said, "gemma3").backend_tokenizer
    ordered = plain | {"ggml.scores": [-float(place) for place in range(260 + len(PIECES))]}
    for text in SPOKEN:
        assert ids(made, text)[0] == as_llama_cpp(ordered, text, has_prefix=False), text
        assert made.decode(ids(made, text)[0]) == text
