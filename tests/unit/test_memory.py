"""Memory that is told beforehand is what is taken: bytes counted on the embedded host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hosts import make_host
from symbiont_ecology.config import HostConfig
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import layout_of
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.host.loading import load_decoder, read_model_config
from symbiont_ecology.host.locating import EMBEDDED_FOLDER, config_file, weights_folder
from symbiont_ecology.host.memory import MemoryForecast, MemoryLoad, forecast_memory, what_fits
from symbiont_ecology.weights.adapter import MOST_EXACT, AdapterWeights, OptimizerState
from symbiont_ecology.weights.blobs import BlobStore

LOAD = MemoryLoad(organelles=3, rows=12, prompt_tokens=40, new_tokens=8)
CONFIG = read_model_config(EMBEDDED_FOLDER)


def forecast(load: MemoryLoad = LOAD, **host: object) -> MemoryForecast:
    """Of the embedded host."""
    return forecast_memory(CONFIG, HostConfig(**{"slots": 4, "rank": 2} | host), load)


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_weights_are_parameters_times_their_bytes(dtype: str, itemsize: int) -> None:
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=1)
    assert forecast(dtype=dtype).weights == kernel.shape.parameters * itemsize


def test_eight_bit_weights_are_counted_with_their_scales() -> None:
    decoder = load_decoder(
        EMBEDDED_FOLDER, CONFIG, torch.device("cpu"), torch.int8, prefer_fused=True
    )
    held = sum(weight.nbytes for weight in decoder.weights().values())
    assert forecast(dtype="int8").weights == held < forecast().weights / 2


def test_a_cached_token_is_as_large_as_the_cache_of_the_host() -> None:
    decoder = load_decoder(
        EMBEDDED_FOLDER, CONFIG, torch.device("cpu"), torch.float32, prefer_fused=True
    )
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=1)
    budget = MemoryBudget(2048, decoder.shape, 4)
    rows, tokens, room = 3, 5, 4
    prompts = [np.arange(10, 10 + tokens)] * rows
    with torch.inference_mode():
        _, session = decoder.start(prompts, [-1] * rows, kernel._bank, room, budget)
    states = session.cache.states
    assert states.nbytes == rows * (tokens + room) * forecast().cache_token
    assert forecast().cache_row == LOAD.longest * forecast().cache_token


def test_a_checkpoint_on_disk_is_as_large_as_forecast(tmp_path: Path) -> None:
    kernel = HostKernel.from_pretrained("embedded", slots=1, rank=16)
    for rank in (2, 128):  # moments of the larger one are halved
        store, size = BlobStore(tmp_path / str(rank)), kernel.layout.size(rank)
        assert (size > MOST_EXACT) == (rank == 128)
        generator = np.random.default_rng(0)
        for _ in range(LOAD.organelles):
            store.put_weights(AdapterWeights.random(kernel.layout, rank, 1.0, generator))
            moments = (np.float32(generator.standard_normal(size)) for _ in range(2))
            store.put_optimizer_state(OptimizerState(1, *moments))
        store.flush()
        written = sum(path.stat().st_size for path in store.folder.iterdir())
        expected = forecast(rank=rank)
        assert written == pytest.approx(expected.blobs, rel=0.1 if rank == 2 else 0.01)
        assert expected.blobs == expected.adapters + expected.optimizer
        assert expected.adapters == LOAD.organelles * 4 * size


def test_slots_are_counted_where_adapters_are_copied() -> None:
    kernel = HostKernel.from_pretrained("embedded", slots=4, rank=2, dtype="bfloat16")
    size = layout_of(kernel._decoder).size(2)
    assert forecast(dtype="bfloat16").slots == 5 * size * 2
    assert forecast(device="cuda", dtype="bfloat16").slots == 5 * size * 2


def test_a_gpu_takes_what_is_computed_and_ram_the_rest() -> None:
    on_gpu = forecast(device="cuda")
    working = max(on_gpu.batch, on_gpu.activations + on_gpu.gradients)
    assert on_gpu.device == on_gpu.weights + on_gpu.slots + on_gpu.kept + working
    assert on_gpu.ram == on_gpu.adapters + on_gpu.optimizer + on_gpu.updates


def test_batches_fit_the_megabytes_that_they_are_given() -> None:
    for megabytes in (8, 64):
        seen = forecast(MemoryLoad(3, 4000, 40, 8), memory_mb=megabytes)
        assert seen.rows < 4000
        assert max(seen.batch, seen.activations) <= megabytes * 1e6


def test_who_learns_nothing_takes_nothing_for_it() -> None:
    seen = forecast(MemoryLoad(3, 12, 40, 8, learns=False))
    assert seen.optimizer == seen.activations == seen.gradients == seen.updates == 0
    assert forecast(is_checkpointing=True).activations < forecast().activations


def test_the_knob_that_costs_least_is_named_first() -> None:
    host = HostConfig(slots=8, rank=4, memory_mb=1024)
    assert what_fits(host, lambda one: one.memory_mb <= 300) == "host.memory_mb=256"
    assert what_fits(host, lambda one: one.slots <= 2) == "host.slots=2"
    assert what_fits(host, lambda one: one.dtype == "int8") == "host.dtype=int8"
    assert what_fits(host, lambda one: one.rank == 1) == "host.rank=1"
    assert what_fits(host, lambda one: False).startswith("a smaller host")


def test_a_config_alone_is_found_and_is_no_host(tmp_path: Path) -> None:
    whole = make_host(tmp_path / "whole", layers=2)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "config.json").write_bytes((whole / "config.json").read_bytes())
    for name in (alone, alone / "config.json"):
        assert config_file(name, may_fetch=False) == alone / "config.json"
        assert weights_folder(name) is None
    assert weights_folder(whole) == whole
    assert weights_folder("embedded") == EMBEDDED_FOLDER
    with pytest.raises(HostError, match="a copy of it"):
        config_file("nobody/knows-this", may_fetch=False)
    with pytest.raises(HostError, match="is converted on first use"):
        config_file(_touched(tmp_path / "some.gguf"), may_fetch=False)


def _touched(path: Path) -> Path:
    path.touch()
    return path
