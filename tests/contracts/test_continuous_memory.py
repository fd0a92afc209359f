"""What becomes of rows if memory runs out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hosts import random_weights
from streamed import Written, alone, in_company, requests, told, told_once
from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.extensions.native.back_end import RaggedCache
from symbiont_ecology.model.backend.torch_backend import PaddedCache
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.llama import LlamaDecoder, LlamaSession
from symbiont_ecology.model.streaming import LostRow


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
