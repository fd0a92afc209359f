"""Rows that join and leave between tokens answer as they would alone, on every kind of host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hosts import random_weights
from streamed import LIMITS, SAMPLED, Written, alike, alone, in_company, requests, told, told_once
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import AdapterError, HostError
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.streaming import NewToken, StreamedRequest
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.kernel import HostKernel

HOSTS = (
    ("qwen3", True, "float32"),
    ("qwen3", True, "bfloat16"),  # through the back end of torch
    ("gemma3", True, "float32"),
    ("sliding mistral", False, "float32"),
    ("gpt2", False, "float32"),
    ("embedded", True, "float32"),
)


@pytest.fixture(scope="module", params=HOSTS, ids=lambda host: f"{host[0]} {host[2]} {host[1]}")
def host(request: pytest.FixtureRequest) -> tuple[str, bool, str]:
    chosen: tuple[str, bool, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def is_exact(host: tuple[str, bool, str]) -> bool:
    """Half precision rounds by the batch."""
    return host[2] == "float32"


@pytest.fixture(scope="module")
def kernel(host: tuple[str, bool, str], host_folders: dict[str, Path]) -> HostKernel:
    kind, is_fused, dtype = host
    return HostKernel.from_pretrained(
        host_folders[kind], slots=4, rank=8, prefer_fused=is_fused, dtype=dtype
    )


@pytest.fixture(scope="module")
def adapters(kernel: HostKernel) -> list[AdapterWeights]:
    return [random_weights(kernel.layout, seed, rank) for seed, rank in enumerate((8, 4, 2))]


def test_a_batch_that_never_ends_needs_no_more_memory(host_folders: dict[str, Path]) -> None:
    """Rows through transformers stand in columns, one more for each token of the batch."""
    kernel = HostKernel.from_pretrained(host_folders["gpt2"], slots=1)
    batch, columns = ContinuousBatch(kernel, 1), list[int]()
    prompt = kernel.encode(["12+7="])[0]
    for step in range(200):
        if step % 5 == 0:  # before the last one has ended
            batch.join([StreamedRequest(prompt, None, 8, Decoding(min_new_tokens=8))])
        batch.step()
        session = batch._session
        columns.append(0 if session is None else session._mask.shape[1])  # type: ignore[attr-defined]
    assert all(columns[10:])
    assert max(columns) < 40


@pytest.mark.parametrize("decoding", [Decoding(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "moments", [(0,) * 8, (0, 0, 1, 1, 2, 3, 5, 8), (7, 5, 3, 2, 2, 1, 0, 0)], ids=str
)
def test_a_row_says_what_it_would_say_alone(
    kernel: HostKernel,
    adapters: list[AdapterWeights],
    decoding: Decoding,
    moments: tuple[int, ...],
    is_exact: bool,
) -> None:
    expected = alone(kernel, adapters, decoding)
    found = in_company(ContinuousBatch(kernel, 3), requests(kernel, adapters, decoding), moments)
    pairs = list(zip(found, expected, strict=True))
    compared = sum(alike(ours, theirs, is_exact=is_exact) for ours, theirs in pairs)
    assert compared >= sum(LIMITS) / 3
    for ours, limit in zip(found, LIMITS, strict=True):
        has_ended = ours.ids[-1] == kernel.codec.end_tokens[0]
        is_cut = len(ours.ids) == limit and not has_ended
        assert ours.end == ("length" if is_cut else "stop")


def test_equal_prompts_beside_others_are_answered_alike(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, Decoding())
    asked = requests(kernel, adapters, Decoding())
    asked, moments = [*asked[:4], asked[4], asked[4]], (0, 0, 0, 0, 1, 1)
    found = in_company(ContinuousBatch(kernel, 3), asked, moments)
    assert found[4] == found[5]
    for ours, theirs in zip(found[:5], expected[:5], strict=True):
        alike(ours, theirs, is_exact=is_exact)


def test_a_request_waits_for_a_free_slot(
    kernel: HostKernel, adapters: list[AdapterWeights]
) -> None:
    batch, asked = ContinuousBatch(kernel, 1), requests(kernel, adapters, Decoding())
    assert len(batch.join([asked[0], asked[6], asked[1], asked[2]])) == 2  # one adapter for both
    while len(batch):
        batch.step()
    assert len(batch.join([asked[1], asked[2]])) == 2


def test_a_row_keeps_the_adapter_with_which_it_began_and_others_leave(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, Decoding())
    first = max((0, 6), key=lambda place: len(expected[place].token_ids))
    batch, asked = ContinuousBatch(kernel, 2), requests(kernel, adapters, Decoding())
    row, leaver = batch.join([asked[first], asked[7]])
    written = dict[int, Written]()
    told_once(batch, written)
    kernel.place(0, adapters[1])
    batch.leave([leaver])
    (other,) = batch.join([asked[1]])
    while len(batch):
        told_once(batch, written)
    assert len(written[leaver].ids) == 1
    assert alike(written[row], expected[first], is_exact=is_exact) > 1
    alike(written[other], expected[1], is_exact=is_exact)


def test_what_can_never_be_answered_is_refused(
    kernel: HostKernel, adapters: list[AdapterWeights]
) -> None:
    batch, prompt = ContinuousBatch(kernel, 1), kernel.encode(["12+7="])[0]
    with pytest.raises(HostError, match="at most"):
        batch.check(StreamedRequest(prompt, None, kernel.shape.max_positions))
    with pytest.raises(HostError, match="at least one token"):
        batch.check(StreamedRequest(prompt[:0], None, 4))
    with pytest.raises(AdapterError, match="rank"):
        batch.check(StreamedRequest(prompt, random_weights(kernel.layout, 0, 9), 4))


def streamed(batch: ContinuousBatch, request: StreamedRequest) -> list[NewToken]:
    batch.join([request])
    heard = list[NewToken]()
    while len(batch):
        heard += told(batch)
    return heard


def test_a_stop_text_is_never_shown(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    prompt, batch = kernel.encode(["12+7="])[0], ContinuousBatch(kernel, 1)
    free = streamed(batch, StreamedRequest(prompt, None, 60))
    text = "".join(news.text for news in free)
    stop = text[20:23]
    heard = streamed(batch, StreamedRequest(prompt, None, 60, Decoding(stop=(stop, "never"))))
    assert "".join(news.text for news in heard) == text[: text.index(stop)]
    assert heard[-1].end == "stop"
    assert len(heard) < len(free)


def test_a_part_of_a_stop_text_waits_for_its_last_letter(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    prompt, batch = kernel.encode(["12+7="])[0], ContinuousBatch(kernel, 1)
    texts = ("Hi", "Hi\n", "Hi\n\ufffd", "Hi\n\ufffd\ufffd", "Hi\n😀")

    def decode(codec: TextCodec, rows: Sequence[Sequence[int]]) -> list[str]:
        """What so many tokens stand for; three make the last letter."""
        return [texts[len(ids) - 1] for ids in rows]

    monkeypatch.setattr(TextCodec, "decode", decode)
    heard = streamed(batch, StreamedRequest(prompt, None, 9, Decoding(stop=("\n😀",))))
    assert [news.text for news in heard] == ["Hi", "", "", "", ""]
    assert heard[-1].end == "stop"
