"""Rows that join and leave between tokens answer as they would alone, on every kind of host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hosts import PROMPTS, random_weights
from symbiont_ecology.errors import AdapterError, HostError
from symbiont_ecology.host.backend.compiled import RaggedCache
from symbiont_ecology.host.backend.torch_backend import PaddedCache
from symbiont_ecology.host.continuous import ContinuousBatch
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.llama import LlamaDecoder, LlamaSession
from symbiont_ecology.host.loading import TextCodec
from symbiont_ecology.host.streaming import LostRow, NewToken, StreamedRequest
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import HOST_SLOT, Completion, Decoding, Request
from symbiont_ecology.weights.adapter import AdapterWeights

LIMITS = (12, 3, 9, 1, 12, 7, 5, 11)
OWNERS = (0, 1, HOST_SLOT, 2, 1, 1, 0, HOST_SLOT)
SAMPLED = Decoding(temperature=0.9, top_p=0.9)
HOSTS = (
    ("qwen3", True, "float32"),
    ("qwen3", True, "bfloat16"),  # through the back end of torch
    ("gemma3", True, "float32"),
    ("sliding mistral", False, "float32"),
    ("gpt2", False, "float32"),
    ("embedded", True, "float32"),
)


@dataclass
class Written:
    """What came of one row."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    end: str = ""

    def add(self, news: NewToken) -> None:
        self.text += news.text
        self.ids.append(news.token_id)
        self.scores.append(news.log_probability)
        self.end = news.end


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


def alone(
    kernel: HostKernel, adapters: Sequence[AdapterWeights], decoding: Decoding
) -> list[Completion]:
    """Each prompt by itself, through the kernel."""
    rows = list[Completion]()
    for place, (prompt, owner, limit) in enumerate(zip(PROMPTS, OWNERS, LIMITS, strict=True)):
        if owner != HOST_SLOT:
            kernel.place(0, adapters[owner])
        slot = HOST_SLOT if owner == HOST_SLOT else 0
        draws = [Draw(0)("row", place)] if decoding.temperature else None
        rows.append(kernel.rollout([Request(prompt, slot, limit)], draws, decoding)[0])
    return rows


def requests(
    kernel: HostKernel, adapters: Sequence[AdapterWeights], decoding: Decoding
) -> list[StreamedRequest]:
    encoded = kernel.encode(PROMPTS)
    return [
        StreamedRequest(
            encoded[place],
            None if owner == HOST_SLOT else adapters[owner],
            limit,
            decoding,
            Draw(0)("row", place) if decoding.temperature else None,
        )
        for place, (owner, limit) in enumerate(zip(OWNERS, LIMITS, strict=True))
    ]


def told(batch: ContinuousBatch) -> list[NewToken]:
    """One more token of every row; none is lost."""
    news = [one for one in batch.step() if isinstance(one, NewToken)]
    assert len({one.row for one in news}) == len(news)
    return news


def in_company(
    batch: ContinuousBatch, asked: Sequence[StreamedRequest], moments: Sequence[int]
) -> list[Written]:
    """Every request joins at its moment, in steps."""
    written = {place: Written() for place in range(len(asked))}
    places = dict[int, int]()
    for step in range(100):
        joining = [place for place, moment in enumerate(moments) if moment == step]
        ids = batch.join([asked[place] for place in joining])
        assert len(ids) == len(joining)
        places |= dict(zip(ids, joining, strict=True))
        for news in told(batch):
            written[places[news.row]].add(news)
        if step > max(moments) and not len(batch):
            break
    return list(written.values())


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
    for ours, theirs, limit in zip(found, expected, LIMITS, strict=True):
        if is_exact:
            assert tuple(ours.ids) == theirs.token_ids
            assert ours.text == theirs.text
        first = slice(0, 1)
        np.testing.assert_allclose(ours.scores[first], theirs.log_probabilities[first], atol=close)
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


def test_equal_prompts_beside_others_are_answered_alike(
    kernel: HostKernel, adapters: list[AdapterWeights], is_exact: bool
) -> None:
    expected = alone(kernel, adapters, Decoding())
    asked = requests(kernel, adapters, Decoding())
    found = in_company(kernel.continuous(3), [*asked[:4], asked[4], asked[4]], (0, 0, 0, 0, 1, 1))
    assert found[4] == found[5]
    if is_exact:
        assert [tuple(row.ids) for row in found[:5]] == [row.token_ids for row in expected[:5]]


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


@pytest.fixture
def qwen3(host_folders: dict[str, Path]) -> HostKernel:
    return HostKernel.from_pretrained(host_folders["qwen3"], slots=4, rank=8)


@pytest.fixture
def three(qwen3: HostKernel) -> list[AdapterWeights]:
    return [random_weights(qwen3.layout, seed, rank) for seed, rank in enumerate((8, 4, 2))]


def no_memory(*arguments: object, **options: object) -> None:
    raise torch.OutOfMemoryError("out of memory")


def test_rows_for_which_memory_runs_out_do_not_disturb_the_others(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(qwen3, three, Decoding())
    batch, asked = qwen3.continuous(3), requests(qwen3, three, Decoding())
    free, fitting, tries = RaggedCache._free_entries, [2], [0]

    def scarce(cache: RaggedCache, count: int, room: int) -> np.ndarray:
        """Memory for a few newcomers."""
        tries[0] += 1
        if count > fitting[0]:
            raise torch.OutOfMemoryError("out of memory")
        return free(cache, count, room)

    monkeypatch.setattr(RaggedCache, "_free_entries", scarce)
    written = {row: Written() for row in batch.join(asked[:1])}
    told_once(batch, written)
    written |= {row: Written() for row in batch.join(asked[1:5])}
    told_once(batch, written)  # for four of them there is no memory
    told_once(batch, written)
    assert [len(row.ids) for row in written.values()] == [3, 1, 1, 0, 0]
    fitting[0] = 0
    while sum(bool(row.ids and not row.end) for row in written.values()):
        tried, ends = tries[0], [row.end for row in written.values()]
        told_once(batch, written)
        # It is tried again when a row has left, and not at every token.
        assert tries[0] - tried <= 1
        if ends == [row.end for row in written.values()]:
            told_once(batch, written)
    fitting[0] = 9
    while len(batch):
        told_once(batch, written)
    assert [row.text for row in written.values()] == [row.text for row in expected[:5]]


def told_once(batch: ContinuousBatch, written: dict[int, Written]) -> None:
    """One step, into what has been written."""
    for news in told(batch):
        written[news.row].add(news)


@pytest.fixture
def in_one_pass(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many newcomers were read in the others' pass, each time."""
    read, counts = LlamaDecoder.read_into, list[int]()

    def counted(decoder: LlamaDecoder, *arguments: Any) -> torch.Tensor:
        counts.append(len(arguments[3].prompts))
        return read(decoder, *arguments)

    monkeypatch.setattr(LlamaDecoder, "read_into", counted)
    return counts


def test_newcomers_are_read_in_the_pass_of_the_others_unless_they_share(
    qwen3: HostKernel, three: list[AdapterWeights], in_one_pass: list[int]
) -> None:
    asked = requests(qwen3, three, Decoding())
    in_company(qwen3.continuous(3), asked[:4], (0, 1, 1, 2))
    assert in_one_pass == [2, 1]
    in_company(qwen3.continuous(3), [asked[0], asked[4], asked[4]], (0, 1, 1))
    assert in_one_pass == [2, 1]


def test_rows_stand_where_they_stood_if_memory_runs_out_in_the_midst_of_a_pass(
    qwen3: HostKernel,
    three: list[AdapterWeights],
    in_one_pass: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = alone(qwen3, three, Decoding())
    batch, asked = qwen3.continuous(3), requests(qwen3, three, Decoding())
    attend = RaggedCache.attend

    def scarce(cache: RaggedCache, layer: int, heads: torch.Tensor) -> torch.Tensor:
        """Memory for the newest tokens alone, in the second layer."""
        if layer and len(heads) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return attend(cache, layer, heads)

    written = {row: Written() for row in batch.join([asked[0], asked[2]])}
    told_once(batch, written)
    waiting = batch.join(asked[1:2])
    with monkeypatch.context() as patched:
        patched.setattr(RaggedCache, "attend", scarce)
        told_once(batch, written)
        told_once(batch, written)
    assert in_one_pass == [1]
    written |= {row: Written() for row in waiting}
    while len(batch):
        told_once(batch, written)
    texts = [expected[place].text for place in (0, 2, 1)]
    assert [row.text for row in written.values()] == texts


def test_a_row_that_fits_nowhere_is_lost_where_nothing_is_being_written(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, asked = qwen3.continuous(3), requests(qwen3, three, Decoding())
    rows = batch.join(asked[:2])
    with monkeypatch.context() as patched:
        patched.setattr(LlamaDecoder, "start", no_memory)
        lost = [one for _ in range(3) for one in batch.step()]
    assert [one.row for one in lost] == rows
    assert all(isinstance(one, LostRow) and "expected memory for" in str(one.error) for one in lost)
    assert len(batch) == 0
    assert len(batch.join(asked[:2])) == 2
    assert len(told(batch)) == 2


@pytest.mark.parametrize("moment", ["step", "keep"])
def test_all_rows_are_lost_if_memory_runs_out_as_they_go_on(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected = alone(qwen3, three, Decoding())
    batch, asked = qwen3.continuous(3), requests(qwen3, three, Decoding())
    rows = batch.join(asked[4:7])
    assert len(told(batch)) == 3
    with monkeypatch.context() as patched:
        patched.setattr(LlamaSession, moment, no_memory)
        batch.leave(rows[:1])
        lost = batch.step()
    assert {one.row for one in lost} >= set(rows[1:])
    for one in lost:
        assert isinstance(one, LostRow)
        assert "expected memory" in str(one.error)
    assert (len(batch), batch.step()) == (0, [])
    found = in_company(batch, asked, (0,) * 8)
    assert [one.text for one in found] == [one.text for one in expected]


def test_newcomers_are_lost_with_all_rows_if_memory_runs_out_as_these_are_sorted(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, asked = qwen3.continuous(3), requests(qwen3, three, Decoding())
    rows = batch.join(asked[:2])
    told(batch)
    with monkeypatch.context() as patched:
        patched.setattr(LlamaSession, "keep", no_memory)
        rows += batch.join(asked[2:3])  # the bare host stands in front
        lost = batch.step()
    assert {one.row for one in lost if isinstance(one, LostRow)} == set(rows)
    assert len(rows) == 3


def test_rows_in_rectangles_go_on_if_memory_runs_out_as_others_join(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=4, rank=8, dtype="bfloat16")
    adapters = [random_weights(kernel.layout, seed, rank) for seed, rank in enumerate((8, 4, 2))]
    asked, join, ids = requests(kernel, adapters, Decoding()), PaddedCache.join, list[list[int]]()

    def scarce(cache: PaddedCache, other: PaddedCache, room: int) -> None:
        """Memory for the states, and none for the mask."""
        with monkeypatch.context() as patched:
            patched.setattr(torch, "zeros_like", no_memory)
            join(cache, other, room)

    monkeypatch.setattr(PaddedCache, "join", scarce)
    for newcomers in (asked[2:3], []):
        batch = kernel.continuous(3)
        rows, heard = batch.join(asked[:2]), told(batch)
        waiting = batch.join(newcomers)
        while len(batch) > len(waiting):
            heard += told(batch)
        ids.append([one.token_id for one in heard if one.row in rows])
    assert ids[0] == ids[1]
