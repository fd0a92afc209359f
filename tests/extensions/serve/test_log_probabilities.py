"""Log-probabilities beside the text of a reply, and stop texts that are special tokens."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hosts import make_host
from in_service import Served
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.openai_api import LogProbabilities
from symbiont_ecology.extensions.serve.streaming import NewToken, ScoredToken, StreamedRequest
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.kernel import HostKernel

WILD = Decoding(temperature=2.0)
DECODER = codecs.getincrementaldecoder("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random host, each of whose tokens is a byte."""
    return make_host(tmp_path_factory.mktemp("host"), layers=2)


@pytest.fixture(scope="module")
def kernel(folder: Path) -> HostKernel:
    return HostKernel.from_pretrained(folder, slots=1, rank=2)


def written(kernel: HostKernel, seed: int, stop: Sequence[str] = (), tokens: int = 40) -> Any:
    """What a row says that asks for five alternatives, beside one that asks for nothing."""
    batch, news = ContinuousBatch(kernel, 1), list[NewToken]()
    (prompt,) = kernel.encode(["12+7="])
    decoding = Decoding(WILD.temperature, stop=tuple(stop))
    for alternatives in (5, None):
        generator = Draw(seed)("row")
        row = StreamedRequest(prompt, None, tokens, decoding, generator, alternatives)
        batch.join([row])
    while len(batch):
        both = list(batch.step())
        assert all(isinstance(one, NewToken) for one in both)
        assert not any(one.scored for one in both if one.row == 1)  # type: ignore[union-attr]
        news += [one for one in both if one.row == 0]  # type: ignore[misc]
    return news


def test_each_token_has_the_log_probabilities_of_transformers(
    kernel: HostKernel, folder: Path
) -> None:
    from transformers import AutoModelForCausalLM

    news = written(kernel, 3)
    prompt, ids = kernel.encode(["12+7="])[0].tolist(), [one.token_id for one in news]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    expected, told = logits.log_softmax(-1), 0
    for row, one in zip(expected, news, strict=True):
        if not one.scored:  # the end
            continue
        own, *others = one.scored
        best, best_ids = row.topk(5)
        assert own.log_probability == pytest.approx(row[one.token_id].item(), abs=1e-4)
        assert [o.log_probability for o in others] == pytest.approx(best.tolist(), abs=1e-4)
        texts = [kernel.codec.spell(token)[0] for token in best_ids.tolist()]
        assert [other.text for other in others] == texts
        told += 1
    assert told >= len(news) - 1 > 0


@pytest.mark.parametrize("seed", range(8))
def test_bytes_of_parts_of_characters_make_up_the_reply(kernel: HostKernel, seed: int) -> None:
    whole = written(kernel, seed)
    text = "".join(one.text for one in whole)
    assert joined(whole) == text
    middle = text[len(text) // 2 :][:2].replace("\ufffd", "")
    if middle:
        cut = written(kernel, seed, stop=[middle])
        assert joined(cut) == text[: text.index(middle)]


def joined(news: Sequence[NewToken]) -> str:
    """The text of the bytes that are told, each piece of it no sooner than the text itself."""
    log, data, told = LogProbabilities(), b"", ""
    for one in news:
        told += one.text
        for entry in log.add(one):
            data += bytes(entry["bytes"])  # type: ignore[call-overload]
            assert len(entry["top_logprobs"]) == len(one.scored[1:]) or one.end  # type: ignore[arg-type]
        assert told.startswith(DECODER("replace").decode(data))
    return data.decode(errors="replace")


@given(st.data(), st.text(min_size=1, max_size=12))
def test_entries_are_told_with_their_text_and_cut_with_it(data: st.DataObject, text: str) -> None:
    written = text.encode("utf-8", "replace")
    text = written.decode()
    places = data.draw(st.lists(st.integers(1, len(written)), max_size=8))
    bounds = sorted({0, len(written), *places})
    pieces = [written[a:b] for a, b in pairwise(bounds)]
    cut = data.draw(st.integers(0, len(text)))
    log, shown, told = LogProbabilities(), 0, b""
    for place, piece in enumerate(pieces):
        whole = len(b"".join(pieces[: place + 1]).decode(errors="ignore"))
        end = "stop" if place == len(pieces) - 1 else ""
        ready = cut if end else data.draw(st.integers(shown, max(shown, min(cut, whole))))
        token = NewToken(0, 1, -1.0, text[shown:ready], end, (ScoredToken.of(piece, -1.0),))
        shown = ready
        told += b"".join(bytes(entry["bytes"]) for entry in log.add(token))  # type: ignore[call-overload]
        assert text[:shown].encode().startswith(told)
        assert len(text[:shown].encode()) - len(told) < len(piece) + 4 or not end
    assert told == text[:cut].encode()


@pytest.mark.parametrize("seed", range(40))
def test_a_stop_text_that_is_a_special_token_ends_the_answer(kernel: HostKernel, seed: int) -> None:
    free = written(kernel, seed, tokens=60)
    ids = [one.token_id for one in free]
    if 0 not in ids:  # it does not write <pad> by itself
        return
    *before, last = written(kernel, seed, ["<pad>", "never"], 60)
    assert [one.token_id for one in before] == ids[: ids.index(0)]
    assert (last.token_id, last.end, last.scored) == (0, "stop", ())
    text = kernel.codec.decode([ids[: ids.index(0)]])[0]
    assert "".join(one.text for one in (*before, last)) == text
    asked = [Request("12+7=", HOST_SLOT, 60)], [Draw(seed)("row")]
    done = kernel.rollout(*asked, Decoding(WILD.temperature, stop=("<pad>",)))[0]
    assert (done.text, done.is_stopped) == (text, True)


def test_some_row_of_the_test_above_writes_a_special_token(kernel: HostKernel) -> None:
    rows = [written(kernel, seed, tokens=60) for seed in range(40)]
    assert sum(0 in [one.token_id for one in row] for row in rows) >= 3


def test_tokens_of_sentencepiece_have_the_bytes_that_they_write(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    names = ["<s>", "</s>", "▁", "▁two", "words", "é", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {name: place for place, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    steps = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<s>", "</s>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(tmp_path)
    codec = TextCodec(tmp_path, {"vocab_size": len(names), "model_type": "llama"})
    for row in ([3, 4, 3], [2, 3, 6 + 0xE2, 6 + 0x82, 6 + 0xAC, 5], [4, 2, 2, 4]):
        spelled = [codec.spell(token, is_first=not place) for place, token in enumerate(row)]
        assert b"".join(one for _, one in spelled).decode() == codec.decode([row])[0]
    assert codec.spell(6 + 0xE2) == ("\ufffd", b"\xe2")
    assert codec.spell(1) == ("</s>", b"")


@pytest.mark.parametrize("stop", [None, "5"])
def test_a_stream_tells_the_log_probabilities_of_a_whole_answer(
    served: Served, stop: str | None
) -> None:
    how = {"seed": 4, "n": 2, "temperature": 1.5, "logprobs": True, "top_logprobs": 20}
    how |= {"model": HOST, "stop": stop, "max_tokens": 12}
    whole = served.ask(**how).json()["choices"]
    entries, texts = [list[Any](), list[Any]()], ["", ""]
    for line in served.ask(stream=True, **how).text.splitlines():
        if line.startswith("data: {"):
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            texts[choice["index"]] += choice["delta"].get("content", "")
            entries[choice["index"]] += (choice["logprobs"] or {"content": []})["content"]
    for place, choice in enumerate(whole):
        told = choice["logprobs"]["content"]
        assert told == entries[place]
        assert all(len(entry["top_logprobs"]) == 20 for entry in told)
        text = b"".join(bytes(entry["bytes"]) for entry in told).decode(errors="replace")
        assert text == texts[place] == choice["message"]["content"]
        assert stop is None or stop not in text


def test_who_asks_for_no_alternatives_gets_none_and_others_no_log_probabilities(
    served: Served,
) -> None:
    def logprobs(**how: Any) -> Any:
        return served.ask(model=HOST, temperature=0, **how).json()["choices"][0]["logprobs"]

    assert logprobs() is None
    told = logprobs(logprobs=True)["content"]
    assert [entry["top_logprobs"] for entry in told] == [[]] * len(told) != []
