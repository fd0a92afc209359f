"""Blobs: what comes back, what a reference is made of, and what is on the disk in which order."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.adapter import MAX_EXACT_PARAMETERS
from symbiont_ecology.adapters.blobs import BlobStore, weights_ref
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.rng import Draw

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LAYOUT = AdapterLayout((("layers.0.q", 3, 4), ("layers.0.v", 3, 2)))


def adapter(
    seed: int = 0, rank: int = 2, scaling: float = 2.0, layout: AdapterLayout = LAYOUT
) -> AdapterWeights:
    return AdapterWeights.random(layout, rank, scaling, Draw(seed)("weights"), b_std=1.0)


def optimizer_state(seed: int = 0) -> OptimizerState:
    first, second = Draw(seed)("moments").normal(size=(2, LAYOUT.size(2))).astype(np.float32)
    return OptimizerState(3, first, second, {"baseline": 0.25, "b": 1e-300})


def same(one: AdapterWeights, other: AdapterWeights) -> bool:
    return (one.layout, one.rank, one.scaling) == (other.layout, other.rank, other.scaling) and (
        one.vector.tobytes() == other.vector.tobytes()
    )


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.mark.parametrize("size", [MAX_EXACT_PARAMETERS, MAX_EXACT_PARAMETERS + 1])
def test_large_moments_are_rounded_and_take_half_the_room(size: int, store: BlobStore) -> None:
    exact = Draw(0)("moments").normal(size=size).astype(np.float32)
    rounded = torch.from_numpy(exact).bfloat16().float().numpy()  # to the nearest
    is_half = size > MAX_EXACT_PARAMETERS
    state = OptimizerState(3, exact, exact**2)
    np.testing.assert_array_equal(state.first, rounded if is_half else exact)
    ref = store.put_optimizer_state(state)
    store.flush()
    taken = (store.folder / f"{ref}.safetensors").stat().st_size
    assert taken // (2 * size) == (2 if is_half else 4)
    back = BlobStore(store.folder).optimizer_state(ref)
    np.testing.assert_array_equal(back.first, state.first)
    np.testing.assert_array_equal(back.second, state.second)
    assert store.put_optimizer_state(back) == ref


@quick
@given(
    *[st.tuples(st.integers(0, 2), st.integers(1, 2), st.sampled_from([1.0, 2.0]), st.booleans())]
    * 2
)
def test_references_are_equal_exactly_when_the_content_is(
    store: BlobStore, one: tuple[int, int, float, bool], other: tuple[int, int, float, bool]
) -> None:
    renamed = AdapterLayout((("layers.1.q", 3, 4), ("layers.1.v", 3, 2)))
    refs = [
        store.put_weights(adapter(seed, rank, scaling, renamed if rename else LAYOUT))
        for seed, rank, scaling, rename in (one, other)
    ]
    assert (refs[0] == refs[1]) == (one == other)


def files(store: BlobStore) -> list[Path]:
    return sorted(store.folder.iterdir()) if store.folder.is_dir() else []


def test_a_flush_can_leave_out_the_dead(store: BlobStore) -> None:
    alive, dead = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush({alive, "somewhere else"})
    assert [path.stem for path in store.folder.iterdir()] == [alive]
    assert same(store.weights(dead), adapter(1))


def test_collecting_leaves_what_is_reachable(store: BlobStore) -> None:
    old, kept = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush()
    new, unsaved = store.put_weights(adapter(2)), store.put_weights(adapter(3))
    (store.folder / f"{old}.safetensors.new").write_bytes(b"torn by a crash")
    store.collect({kept, unsaved})
    for gone in (old, new):
        with pytest.raises(RunError, match="missing from"):
            store.weights(gone)
    store.flush()
    assert {path.name for path in store.folder.iterdir()} == {
        f"{kept}.safetensors",
        f"{unsaved}.safetensors",
    }


def test_a_blob_of_the_other_kind_is_refused(store: BlobStore) -> None:
    with pytest.raises(RunError, match="holds adapter weights, expected an optimizer state"):
        store.optimizer_state(store.put_weights(adapter()))
    with pytest.raises(RunError, match="holds an optimizer state, expected adapter weights"):
        store.weights(store.put_optimizer_state(optimizer_state()))


def test_what_nobody_can_reach_is_forgotten_before_it_is_written(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    kept, gone = (store.put_optimizer_state(OptimizerState(step=step)) for step in (1, 2))
    store.forget([kept])
    assert store.optimizer_state(kept).step == 1
    with pytest.raises(RunError, match="missing"):
        store.optimizer_state(gone)
    assert not (tmp_path / "blobs").exists()


def test_a_reference_stays_the_same_in_every_version(store: BlobStore) -> None:
    """A run that an earlier version wrote names its blobs by these."""
    vector = np.arange(LAYOUT.size(1), dtype=np.float32)
    weights = AdapterWeights(LAYOUT, 1, 0.5, vector)
    assert store.put_weights(weights) == weights_ref(weights) == ADAPTER
    assert store.put_weights(replace(weights, phrase="Briefly: ")) == SAID
    state = OptimizerState(7, vector, vector**2, {"b": 2.0, "a": 0.1})
    assert store.put_optimizer_state(state) == MEMORY


ADAPTER = "025380c35c318d0f8d693459cdea3501"
SAID = "031b592bbab7cc3e40c04f7dd62697b4"
MEMORY = "a996e1a985d8e5042810aa29672ad363"


def test_the_order_of_notes_says_nothing(store: BlobStore) -> None:
    one, other = {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}
    refs = {store.put_optimizer_state(OptimizerState(notes=notes)) for notes in (one, other)}
    assert len(refs) == 1


def test_moments_in_pieces_are_copied(store: BlobStore) -> None:
    whole = np.arange(8, dtype=np.float32)
    ref = store.put_optimizer_state(OptimizerState(1, whole[::2], whole[1::2]))
    whole[:] = -1
    found = store.optimizer_state(ref)
    assert found.first is not None
    assert found.first.tolist() == [0, 2, 4, 6]
    store.flush()
    BlobStore(store.folder).check(ref)


def test_a_flush_syncs_every_file_before_its_name_and_the_names_at_the_end(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replaced = os.replace

    def sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert path == store.folder if is_folder else path.parent == store.folder
        done.append("names" if is_folder else f"bytes of {path.name.partition('.')[0]}")

    def replace_it(source: Path, target: Path) -> None:
        done.append(f"name of {Path(target).name.partition('.')[0]}")
        replaced(source, target)

    refs = sorted(store.put_weights(adapter(seed)) for seed in range(3))
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace_it)
    store.flush()
    each = [[f"bytes of {ref}", f"name of {ref}"] for ref in refs]
    assert done == [*each[0], *each[1], *each[2], "names"]
    done.clear()
    store.flush()
    assert done == []


def test_what_was_flushed_last_is_still_in_memory_and_what_was_before_is_not(
    store: BlobStore,
) -> None:
    first, second = OptimizerState(step=1), OptimizerState(step=2)
    one = store.put_optimizer_state(first)
    store.flush()
    for path in files(store):
        path.unlink()
    assert store.optimizer_state(one).step == 1
    with pytest.raises(RunError, match=f"blob {one} is missing from {store.folder} .No such file"):
        store.check(one)
    assert store.put_optimizer_state(first) == one  # known already
    store.flush()
    assert files(store) == []
    store.put_optimizer_state(second)
    store.flush()
    with pytest.raises(RunError, match="is missing"):
        store.optimizer_state(one)


@quick
@given(
    st.integers(0, 5),
    st.integers(1, 4),
    st.floats(0.1, 8),
    st.sampled_from(["", "Briefly: "]),
    st.booleans(),
)
def test_what_is_put_comes_back_before_and_after_a_restart(
    store: BlobStore, seed: int, rank: int, scaling: float, phrase: str, fresh: bool
) -> None:
    weights = replace(adapter(seed, rank, scaling), phrase=phrase)
    ref = store.put_weights(weights)
    held = store.weights(ref)
    assert store.weights(ref) is held
    if fresh:
        store.flush()
        held = BlobStore(store.folder).weights(ref)
    assert same(held, weights)
    assert held.phrase == weights.times(0.5).phrase == phrase
    assert store.put_weights(replace(weights)) == ref


def test_a_reference_tells_names_types_and_shapes_of_the_same_bytes_apart(store: BlobStore) -> None:
    numbers = np.arange(4, dtype=np.float32)
    states = [
        OptimizerState(),
        OptimizerState(notes={"baseline": 0.5}),
        OptimizerState(1, numbers, None),
        OptimizerState(1, None, numbers),
        OptimizerState(1, numbers.view(np.int32), None),
        OptimizerState(1, numbers.reshape(2, 2), None),
        OptimizerState(2, numbers, None),
        OptimizerState(1, numbers, None, {"a": 1.0}),
    ]
    refs = [store.put_optimizer_state(state) for state in states]
    assert len(set(refs)) == len(states)
    store.flush()
    for ref, state in zip(refs, states, strict=True):
        for found in (store.optimizer_state(ref), BlobStore(store.folder).optimizer_state(ref)):
            assert (found.step, found.notes) == (state.step, state.notes)
            for ours, theirs in ((found.first, state.first), (found.second, state.second)):
                assert (ours is None) == (theirs is None)
                if ours is not None and theirs is not None:
                    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                    assert ours.tobytes() == theirs.tobytes()


def test_a_blob_cannot_be_written_to(store: BlobStore) -> None:
    exact = np.ones(MAX_EXACT_PARAMETERS + 1, np.float32)
    states = [OptimizerState(1, one, one) for one in (exact, exact[:9].copy())]
    refs = [store.put_optimizer_state(one) for one in states]
    weights = store.put_weights(adapter())
    store.flush()
    fresh = BlobStore(store.folder)
    found = [kept.optimizer_state(ref) for ref in refs for kept in (store, fresh)]
    arrays = [fresh.weights(weights).vector, *(one.first for one in (*states, *found))]
    for array in arrays:
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_disk_that_refuses_is_one_line_and_loses_nothing(
    call: str, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.put_weights(adapter(0))
    store.flush()
    second, real = store.put_weights(adapter(1)), getattr(os, call)

    def refuse(place: Any, *arguments: Any, **named: Any) -> Any:
        if call == "open" and not str(place).endswith(".new"):
            return real(place, *arguments, **named)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(RunError) as caught:
            store.flush()
    place = store.folder / f"{second}.safetensors"
    assert str(caught.value) == f"cannot write {place}: Disk quota exceeded"
    assert files(store) == [store.folder / f"{first}.safetensors"]
    (store.folder / f"{second}.safetensors.new").write_bytes(b"torn by a crash")
    store.flush()
    assert same(BlobStore(store.folder).weights(second), adapter(1))
    assert len(files(store)) == 2


def test_a_folder_that_is_a_link_is_refused(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.safetensors").write_bytes(b"")
    store.folder.symlink_to(tmp_path / "elsewhere")
    store.put_weights(adapter())
    for act in (store.flush, lambda: store.collect(())):
        with pytest.raises(RunError, match="is a link, and a run deletes"):
            act()
    assert [path.name for path in files(store)] == ["x.safetensors"]


def test_collecting_touches_no_other_files_and_says_what_it_cannot_delete(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_weights(adapter())
    store.flush()
    (store.folder / "notes.txt").write_text("mine")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(RunError, match=r"cannot delete .*: Permission denied; remove it"):
            store.collect(())
    store.collect(())
    assert [one.name for one in files(store)] == ["notes.txt"]


def test_a_file_that_is_no_blob_or_another_one_is_damaged(store: BlobStore) -> None:
    ref, other = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush()
    path = store.folder / f"{ref}.safetensors"
    whole, arrays = path.read_bytes(), load(path.read_bytes())
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (3, 40, len(whole) - 1)
    ]
    foreign = (store.folder / f"{other}.safetensors").read_bytes()
    headless = [save(arrays, metadata=header) for header in (None, {"other": "x"})]
    for data in (*flipped, *headless, b"", foreign):
        path.write_bytes(data)
        with pytest.raises(RunError, match=f"blob {path} is damaged: "):
            BlobStore(store.folder).weights(ref)
        with pytest.raises(RunError):
            store.check(ref)  # on the disk, whatever is in memory
        assert same(store.weights(ref), adapter(0))
    path.write_bytes(whole)
    store.check(ref)
