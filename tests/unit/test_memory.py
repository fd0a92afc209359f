"""Memory that is told beforehand is what is taken: bytes counted on the embedded host."""

from __future__ import annotations

import pytest
import torch

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.model import loading
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.loading import find_dtype, weight_bytes, weight_files
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

FILES = weight_files(EMBEDDED_FOLDER)


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_weights_are_parameters_times_their_bytes(dtype: str, itemsize: int) -> None:
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=1)
    assert weight_bytes(FILES, find_dtype(dtype)) == kernel.shape.parameters * itemsize


def test_a_host_that_is_larger_than_the_memory_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need = weight_bytes(FILES, torch.float32)
    monkeypatch.setattr(loading, "total_memory", lambda device: need - 1)
    with pytest.raises(HostError, match=r"try host\.dtype=bfloat16"):
        HostKernel.from_pretrained("embedded", slots=1)
    assert HostKernel.from_pretrained("embedded", slots=1, dtype="bfloat16")
