"""Rows that join and leave between tokens answer as they would alone, on every kind of host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hosts import random_weights
from streamed import LIMITS, SAMPLED, Written, alone, in_company, requests, score_alone, told
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import AdapterError, HostError
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.continuous import ContinuousBatch
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.streaming import NewToken, StreamedRequest

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
    batch, columns = kernel.continuous(1), list[int]()
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
    found = in_company(kernel.continuous(3), requests(kernel, adapters, decoding), moments)
    close = 1e-4 if is_exact else 0.2
    for place, (ours, theirs, limit) in enumerate(zip(found, expected, LIMITS, strict=True)):
        if is_exact:
            assert tuple(ours.ids) == theirs.token_ids
            assert ours.text == theirs.text
        first = slice(0, 1)
        if is_exact or not decoding.temperature:
            scores = theirs.log_probabilities[first]
        else:  # rounding may give a draw to another token, so what was drawn is scored
            scores = score_alone(kernel, adapters, place, ours.ids[first])
        np.testing.assert_allclose(ours.scores[first], scores, atol=close)
        assert ours.end == (
            "length" if len(ours.ids) == limit and not ended(ours, kernel) else "stop"
        )


def ended(row: Written, kernel: HostKernel) -> bool:
    return row.ids[-1] == kernel.end_token_id


def test_log_probabilities_are_the_kernels(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, SAMPLED)
    moments = (0, 2, 1, 0, 3, 1, 0, 2)
    found = in_company(kernel.continuous(3), requests(kernel, adapters, SAMPLED), moments)
    compared = 0
    for ours, theirs in zip(found, expected, strict=True):
        same = alike(ours.ids, theirs.token_ids)
        assert not is_exact or same == len(ours.ids) == len(theirs.token_ids)
        close = 1e-4 if is_exact else 0.2
        np.testing.assert_allclose(ours.scores[:same], theirs.log_probabilities[:same], atol=close)
        compared += same
    assert compared >= sum(LIMITS) / 3


def alike(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens two texts have in common before they part."""
    pairs = zip(ours, theirs, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(ours))


def test_a_request_waits_for_a_free_slot(
    kernel: HostKernel, adapters: list[AdapterWeights]
) -> None:
    batch, asked = kernel.continuous(1), requests(kernel, adapters, Decoding())
    assert len(batch.join([asked[0], asked[6], asked[1], asked[2]])) == 2  # one adapter for both
    while len(batch):
        batch.step()
    assert len(batch.join([asked[1], asked[2]])) == 2


def test_a_row_keeps_the_adapter_with_which_it_began(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, Decoding())
    first = max((0, 6), key=lambda place: len(expected[place].token_ids))
    batch, asked = kernel.continuous(2), requests(kernel, adapters, Decoding())
    (row,) = batch.join([asked[first]])
    written = Written()
    for news in told(batch):
        written.add(news)
    kernel.place(0, adapters[1])
    batch.join([asked[1]])
    while len(batch):
        for news in told(batch):
            if news.row == row:
                written.add(news)
    same, close = alike(written.ids, expected[first].token_ids), 1e-4 if is_exact else 0.2
    assert same > 1  # so tokens are compared that were written after the other came
    assert not is_exact or tuple(written.ids) == expected[first].token_ids
    np.testing.assert_allclose(
        written.scores[:same], expected[first].log_probabilities[:same], atol=close
    )


def test_rows_that_nobody_waits_for_leave(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, Decoding())
    batch, asked = kernel.continuous(3), requests(kernel, adapters, Decoding())
    first, second, third = batch.join([asked[0], asked[4], asked[7]])
    batch.step()
    batch.leave([first, third])
    written = Written(ids=[])
    while len(batch):
        heard = told(batch)
        assert {news.row for news in heard} == {second}
        for news in heard:
            written.add(news)
    if is_exact:
        assert tuple(written.ids) == expected[4].token_ids[1:]


def test_the_likeliest_tokens_are_told(kernel: HostKernel, adapters: list[AdapterWeights]) -> None:
    prompt = kernel.encode(["12+7="])[0]
    batch = kernel.continuous(1)
    batch.join([StreamedRequest(prompt, adapters[0], 2, alternatives=5)])
    (news,) = told(batch)
    assert len(news.alternatives) == 5
    assert next(iter(news.alternatives)) == news.token_id
    assert max(news.alternatives.values()) == news.alternatives[news.token_id]


def test_what_can_never_be_answered_is_refused(
    kernel: HostKernel, adapters: list[AdapterWeights]
) -> None:
    batch, prompt = kernel.continuous(1), kernel.encode(["12+7="])[0]
    with pytest.raises(HostError, match="at most"):
        batch.check(StreamedRequest(prompt, None, kernel.shape.max_positions))
    with pytest.raises(HostError, match=">= 1"):
        batch.check(StreamedRequest(prompt, None, 0))
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
    prompt, batch = kernel.encode(["12+7="])[0], kernel.continuous(1)
    free = streamed(batch, StreamedRequest(prompt, None, 60))
    text = "".join(news.text for news in free)
    stop = text[20:23]
    heard = streamed(batch, StreamedRequest(prompt, None, 60, Decoding(stop=(stop, "never"))))
    assert "".join(news.text for news in heard) == text[: text.index(stop)]
    assert heard[-1].end == "stop"
    assert len(heard) < len(free)


def test_a_letter_is_shown_when_it_is_complete(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    prompt, batch = kernel.encode(["réd"])[0], kernel.continuous(1)
    heard = streamed(batch, StreamedRequest(prompt, None, 60))
    whole = kernel.rollout([Request("réd", HOST_SLOT, 60)], None, Decoding())[0]
    assert "".join(news.text for news in heard) == whole.text


def test_a_part_of_a_stop_text_waits_for_its_last_letter(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    prompt, batch = kernel.encode(["12+7="])[0], kernel.continuous(1)
    texts = ("Hi", "Hi\n", "Hi\n\ufffd", "Hi\n\ufffd\ufffd", "Hi\n😀")

    def decode(codec: TextCodec, rows: Sequence[Sequence[int]]) -> list[str]:
        """What so many tokens stand for; three make the last letter."""
        return [texts[len(ids) - 1] for ids in rows]

    monkeypatch.setattr(TextCodec, "decode", decode)
    heard = streamed(batch, StreamedRequest(prompt, None, 9, Decoding(stop=("\n😀",))))
    assert [news.text for news in heard] == ["Hi", "", "", "", ""]
    assert heard[-1].end == "stop"
