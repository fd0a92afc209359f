"""Which rows are read in one pass, and what becomes of rows if memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hosts import random_weights
from streamed import Written, alone, in_company, requests, told, told_once
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.extensions.native.back_end import RaggedCache
from symbiont_ecology.extensions.serve.continuous import ContinuousBatch
from symbiont_ecology.extensions.serve.streaming import LostRow
from symbiont_ecology.model.backend.torch_backend import PaddedCache
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.llama import LlamaDecoder, LlamaSession


@pytest.fixture
def qwen3(host_folders: dict[str, Path]) -> HostKernel:
    return HostKernel.from_pretrained(host_folders["qwen3"], slots=4, rank=8)


@pytest.fixture
def three(qwen3: HostKernel) -> list[AdapterWeights]:
    return [random_weights(qwen3.layout, seed, rank) for seed, rank in enumerate((8, 4, 2))]


def no_memory(*arguments: object, **options: object) -> None:
    raise torch.OutOfMemoryError("out of memory")


def scarce(function: Callable[..., Any], calls: list[int], *, is_few: Callable[..., bool]) -> Any:
    """The function, with memory for few rows alone."""

    def tried(*arguments: Any) -> Any:
        if is_few(*arguments):
            return function(*arguments)
        calls.append(1)
        return no_memory()

    return tried


def test_rows_for_which_memory_runs_out_do_not_disturb_the_others(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_few(cache: RaggedCache, count: int, room: int) -> bool:
        return count < 2

    expected = alone(qwen3, three, Decoding())
    batch, asked, calls = ContinuousBatch(qwen3, 3), requests(qwen3, three, Decoding()), list[int]()
    written = {row: Written() for row in batch.join(asked[:1])}
    told_once(batch, written)
    written |= {row: Written() for row in batch.join(asked[1:5])}
    with monkeypatch.context() as patched:
        tried = scarce(RaggedCache._free_entries, calls, is_few=is_few)
        patched.setattr(RaggedCache, "_free_entries", tried)
        for _ in range(3):
            told_once(batch, written)
    assert [len(row.ids) for row in written.values()] == [4, 0, 0, 0, 0]
    assert len(calls) == 1, "tried again when a row has left, and not at every token"
    while len(batch):
        told_once(batch, written)
    assert [row.text for row in written.values()] == [row.text for row in expected[:5]]


@pytest.fixture
def in_one_pass(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many newcomers were read in the others' pass, each time."""
    read, counts = LlamaDecoder.decode_with_prefill, list[int]()

    def counted(decoder: LlamaDecoder, *arguments: Any) -> torch.Tensor:
        counts.append(len(arguments[-1].prompts))
        return read(decoder, *arguments)

    monkeypatch.setattr(LlamaDecoder, "decode_with_prefill", counted)
    return counts


def test_newcomers_are_read_in_the_pass_of_the_others_unless_they_share(
    qwen3: HostKernel, three: list[AdapterWeights], in_one_pass: list[int]
) -> None:
    asked = requests(qwen3, three, Decoding())
    in_company(ContinuousBatch(qwen3, 3), asked[:4], (0, 1, 1, 2))
    assert in_one_pass == [2, 1]
    in_company(ContinuousBatch(qwen3, 3), [asked[0], asked[4], asked[4]], (0, 1, 1))
    assert in_one_pass == [2, 1]


def test_rows_stand_where_they_stood_if_memory_runs_out_in_the_midst_of_a_pass(
    qwen3: HostKernel,
    three: list[AdapterWeights],
    in_one_pass: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = alone(qwen3, three, Decoding())
    batch, asked = ContinuousBatch(qwen3, 3), requests(qwen3, three, Decoding())
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
    batch, asked = ContinuousBatch(qwen3, 3), requests(qwen3, three, Decoding())
    rows = batch.join(asked[:2])
    with monkeypatch.context() as patched:
        patched.setattr(LlamaDecoder, "start", no_memory)
        lost = [one for _ in range(3) for one in batch.step()]
    assert [one.row for one in lost] == rows
    assert all(isinstance(one, LostRow) and "expected memory" in str(one.error) for one in lost)
    assert len(batch) == 0
    assert len(batch.join(asked[:2])) == 2
    assert len(told(batch)) == 2


@pytest.mark.parametrize("moment", ["step", "keep"])
def test_all_rows_are_lost_if_memory_runs_out_as_they_go_on(
    qwen3: HostKernel, three: list[AdapterWeights], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected = alone(qwen3, three, Decoding())
    batch, asked = ContinuousBatch(qwen3, 3), requests(qwen3, three, Decoding())
    rows = batch.join(asked[4:7])
    if moment != "start":
        assert len(told(batch)) == 3
    with monkeypatch.context() as patched:
        patched.setattr(LlamaDecoder if moment == "start" else LlamaSession, moment, no_memory)
        batch.leave(rows[:1])
        lost = batch.step()
    assert {one.row for one in lost} >= set(rows[1:])
    for one in lost:
        assert isinstance(one, LostRow)
        assert "expected memory" in str(one.error)
    assert (len(batch), batch.step()) == (0, [])
    found = in_company(batch, asked, (0,) * 8)
    assert [one.text for one in found] == [one.text for one in expected]


def test_rows_in_rectangles_go_on_if_memory_runs_out_as_others_join(
    host_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=4, rank=8, dtype="bfloat16")
    adapters = [random_weights(kernel.layout, seed, rank) for seed, rank in enumerate((8, 4, 2))]
    asked, join, ids = requests(kernel, adapters, Decoding()), PaddedCache.join, list[list[int]]()

    def without_mask(cache: PaddedCache, other: PaddedCache, room: int) -> None:
        """Memory for the states, and none for the mask."""
        with monkeypatch.context() as patched:
            patched.setattr(torch, "zeros_like", no_memory)
            join(cache, other, room)

    monkeypatch.setattr(PaddedCache, "join", without_mask)
    for newcomers in (asked[2:3], []):
        batch = ContinuousBatch(kernel, 3)
        rows, heard = batch.join(asked[:2]), told(batch)
        waiting = batch.join(newcomers)
        while len(batch) > len(waiting):
            heard += told(batch)
        ids.append([one.token_id for one in heard if one.row in rows])
    assert ids[0] == ids[1]
