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


def test_a_phrase_is_part_of_an_adapter(store: BlobStore) -> None:
    plain, said = adapter(), replace(adapter(), phrase="Briefly: ")
    refs = {store.put_weights(one): one.phrase for one in (plain, said)}
    store.flush()
    assert {ref: BlobStore(store.folder).weights(ref).phrase for ref in refs} == refs
    assert said.times(0.5).phrase == said.phrase


@quick
@given(st.integers(0, 5), st.integers(1, 4), st.floats(0.1, 8), st.booleans())
def test_what_is_put_comes_back_before_and_after_a_restart(
    store: BlobStore, seed: int, rank: int, scaling: float, fresh: bool
) -> None:
    weights = adapter(seed, rank, scaling)
    ref = store.put_weights(weights)
    if fresh:
        store.flush()
        assert BlobStore(store.folder).weights(ref).vector.dtype == np.float32
    assert same(store.weights(ref), weights)
    assert store.put_weights(adapter(seed, rank, scaling)) == ref


def test_large_moments_are_rounded_and_take_half_the_room(store: BlobStore) -> None:
    size = MAX_EXACT_PARAMETERS + 1
    exact = Draw(0)("moments").normal(size=size).astype(np.float32)
    state = OptimizerState(3, exact, exact**2)
    assert state.first is not None
    expected = torch.from_numpy(exact).bfloat16().float().numpy()  # to the nearest
    np.testing.assert_array_equal(state.first, expected)
    ref = store.put_optimizer_state(state)
    store.flush()
    assert (store.folder / f"{ref}.safetensors").stat().st_size < 2 * 2 * size + 1000
    back = BlobStore(store.folder).optimizer_state(ref)
    assert back.first is not None
    assert back.second is not None
    assert state.second is not None
    assert back.first.tobytes() == state.first.tobytes()
    assert back.second.tobytes() == state.second.tobytes()
    assert store.put_optimizer_state(back) == ref
    small = OptimizerState(3, exact[:-1].copy(), None)
    assert small.first is not None
    assert small.first.tobytes() == exact[:-1].tobytes()


def test_an_adapter_that_somebody_holds_is_one_object(store: BlobStore) -> None:
    ref = store.put_weights(adapter())
    held = store.weights(ref)
    assert store.weights(ref) is held
    store.flush()
    store.forget(())
    assert store.weights(ref) is held
    assert BlobStore(store.folder).weights(ref) is not held


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


@pytest.mark.parametrize(
    "kept", [optimizer_state(), OptimizerState(), OptimizerState(notes={"baseline": 0.5})]
)
def test_a_memory_comes_back(store: BlobStore, kept: OptimizerState) -> None:
    ref = store.put_optimizer_state(kept)
    store.flush()
    for found in (store.optimizer_state(ref), BlobStore(store.folder).optimizer_state(ref)):
        assert (found.step, found.notes) == (kept.step, kept.notes)
        for ours, theirs in ((found.first, kept.first), (found.second, kept.second)):
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or ours.tobytes() == theirs.tobytes()


def test_nothing_is_on_disk_before_the_flush_and_equal_content_is_one_file(
    store: BlobStore,
) -> None:
    refs = {
        store.put_weights(adapter(0)),
        store.put_weights(adapter(0)),
        store.put_weights(adapter(1)),
    }
    assert not store.folder.exists()
    store.flush()
    store.put_weights(adapter(0))
    store.flush()
    assert {path.stem for path in store.folder.iterdir()} == refs
    assert len(refs) == 2


def test_a_flush_can_leave_out_the_dead(store: BlobStore) -> None:
    alive, dead = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush({alive, "somewhere else"})
    assert [path.stem for path in store.folder.iterdir()] == [alive]
    assert same(store.weights(dead), adapter(1))


def test_a_blob_is_safe_from_whoever_made_it(store: BlobStore) -> None:
    kept = optimizer_state()
    found = store.optimizer_state(store.put_optimizer_state(kept)).first
    for moment in (kept.first, found):
        assert moment is not None
        with pytest.raises(ValueError, match="read-only"):
            moment[0] = 1


def test_collecting_leaves_what_is_reachable(store: BlobStore) -> None:
    old, kept = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush()
    new, unsaved = store.put_weights(adapter(2)), store.put_weights(adapter(3))
    (store.folder / f"{old}.safetensors.tmp").write_bytes(b"torn by a crash")
    store.collect({kept, unsaved})
    for gone in (old, new):
        with pytest.raises(RunError, match="missing from"):
            store.weights(gone)
    store.flush()
    assert {path.name for path in store.folder.iterdir()} == {
        f"{kept}.safetensors",
        f"{unsaved}.safetensors",
    }


@pytest.mark.parametrize("where", [3, 40, -1])
def test_a_flipped_byte_is_found(store: BlobStore, where: int) -> None:
    ref = store.put_weights(adapter())
    store.flush()
    path = store.folder / f"{ref}.safetensors"
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match="is damaged"):
        BlobStore(store.folder).weights(ref)
    path.write_bytes(b"")
    with pytest.raises(RunError, match="is damaged"):
        BlobStore(store.folder).weights(ref)


def test_a_blob_of_the_other_kind_is_refused(store: BlobStore) -> None:
    with pytest.raises(RunError, match="holds adapter weights, expected an optimizer state"):
        store.optimizer_state(store.put_weights(adapter()))
    with pytest.raises(RunError, match="holds an optimizer state, expected adapter weights"):
        store.weights(store.put_optimizer_state(optimizer_state()))


def test_a_full_disk_is_one_line_and_loses_nothing(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.put_weights(adapter(0))
    store.flush()
    second = store.put_weights(adapter(1))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="no space left") as caught:
            store.flush()
    assert str(store.folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert same(store.weights(first), adapter(0))
    store.flush()
    assert same(BlobStore(store.folder).weights(second), adapter(1))


def test_what_nobody_can_reach_is_forgotten_before_it_is_written(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    kept, gone = (store.put_optimizer_state(OptimizerState(step=step)) for step in (1, 2))
    store.forget([kept])
    assert store.optimizer_state(kept).step == 1
    with pytest.raises(RunError, match="missing"):
        store.optimizer_state(gone)
    assert not (tmp_path / "blobs").exists()


# What a reference is made of.


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


def test_a_reference_tells_names_types_and_shapes_of_the_same_bytes_apart(store: BlobStore) -> None:
    numbers = np.arange(4, dtype=np.float32)
    states = [
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
        found = BlobStore(store.folder).optimizer_state(ref)
        for ours, theirs in ((found.first, state.first), (found.second, state.second)):
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                assert ours.tobytes() == theirs.tobytes()


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


def test_what_is_read_from_the_disk_cannot_be_written_to(store: BlobStore) -> None:
    adapter_ref = store.put_weights(adapter())
    exact = np.ones(MAX_EXACT_PARAMETERS + 1, np.float32)
    refs = [store.put_optimizer_state(OptimizerState(1, one, one)) for one in (exact, exact[:9])]
    store.flush()
    fresh = BlobStore(store.folder)
    arrays = [fresh.weights(adapter_ref).vector]
    arrays += [one for ref in refs for one in [fresh.optimizer_state(ref).first] if one is not None]
    assert len(arrays) == 3
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# On the disk.


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


def test_what_is_on_the_disk_is_not_written_again(store: BlobStore) -> None:
    ref = store.put_weights(adapter())
    store.flush()
    (before,) = (path.stat() for path in store.files())
    again = BlobStore(store.folder)
    assert again.put_weights(adapter()) == ref
    again.flush()
    (after,) = (path.stat() for path in store.files())
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_was_flushed_last_is_still_in_memory_and_what_was_before_is_not(
    store: BlobStore,
) -> None:
    first, second = OptimizerState(step=1), OptimizerState(step=2)
    one = store.put_optimizer_state(first)
    store.flush()
    for path in store.files():
        path.unlink()
    assert store.optimizer_state(one).step == 1
    with pytest.raises(RunError, match=f"blob {one} is missing from {store.folder} .No such file"):
        store.check(one)
    assert store.put_optimizer_state(first) == one  # known already
    store.flush()
    assert store.files() == []
    store.put_optimizer_state(second)
    store.flush()
    with pytest.raises(RunError, match="is missing"):
        store.optimizer_state(one)


def test_a_flush_makes_the_folders_above_and_may_be_repeated(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "run/deep/blobs")
    for seed in range(2):
        store.put_weights(adapter(seed))
        store.flush()
    assert len(store.files()) == 2


def test_a_file_that_cannot_be_written_leaves_nothing_half_done(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.put_weights(adapter())

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(RunError) as caught:
            store.flush()
    said = f"cannot write blobs to {store.folder}: Permission denied; nothing written is lost"
    assert str(caught.value) == said
    assert store.files() == []
    (store.folder / f"{ref}.safetensors.tmp").write_bytes(b"torn by a crash")
    store.flush()
    assert store.files() == [store.folder / f"{ref}.safetensors"]


def test_a_file_that_cannot_even_be_made_says_why(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_weights(adapter())
    opened = os.open

    def refuse(path: Any, *how: int, **named: Any) -> int:
        if str(path).endswith(".tmp"):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return opened(path, *how, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match="Disk quota exceeded; nothing written is lost"):
        store.flush()


def test_a_folder_that_is_a_link_is_refused(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.safetensors").write_bytes(b"")
    store.folder.symlink_to(tmp_path / "elsewhere")
    store.put_weights(adapter())
    for act in (store.flush, lambda: store.collect(())):
        with pytest.raises(RunError) as caught:
            act()
        assert str(caught.value) == (
            f"{store.folder} is a link, and a run deletes what it does not need there: put the "
            "folder itself in its place"
        )
    assert [path.name for path in store.files()] == ["x.safetensors"]


def test_collecting_touches_no_other_files_and_says_what_it_cannot_delete(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.put_weights(adapter())
    store.flush()
    (store.folder / "notes.txt").write_text("mine")
    path = store.folder / f"{ref}.safetensors"

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(RunError) as caught:
            store.collect(())
    assert str(caught.value) == (
        f"cannot delete {path}, which the run does not need: Permission denied; remove it"
    )
    store.collect(())
    assert [one.name for one in store.files()] == ["notes.txt"]


# Damage.


def rewritten(path: Path, header: dict[str, str] | None, **changes: Any) -> None:
    """The same file with another header, or other arrays."""
    path.write_bytes(save({**load(path.read_bytes()), **changes}, metadata=header))


def test_a_file_that_is_no_blob_or_another_one_is_damaged(store: BlobStore) -> None:
    ref, other = store.put_weights(adapter(0)), store.put_weights(adapter(1))
    store.flush()
    path = store.folder / f"{ref}.safetensors"
    whole, foreign = path.read_bytes(), (store.folder / f"{other}.safetensors").read_bytes()
    unreadable = f"blob {path} is damaged: not a safetensors file of this store"
    wrong = f"blob {path} is damaged: its content does not match its name"
    rewritten(path, None)
    cases = [(path.read_bytes(), unreadable)]
    rewritten(path, {"other": "x"})
    cases += [(path.read_bytes(), unreadable), (b"", unreadable), (foreign, wrong)]
    for data, said in cases:
        path.write_bytes(data)
        with pytest.raises(RunError) as caught:
            BlobStore(store.folder).weights(ref)
        assert str(caught.value) == said
        with pytest.raises(RunError):
            store.check(ref)  # on the disk, whatever is in memory
        assert store.weights(ref).vector.tobytes() == adapter(0).vector.tobytes()
    path.write_bytes(whole)
    store.check(ref)


def test_rounded_moments_take_half_the_room_only_where_they_are_large(store: BlobStore) -> None:
    for size, is_half in ((MAX_EXACT_PARAMETERS, False), (MAX_EXACT_PARAMETERS + 1, True)):
        ref = store.put_optimizer_state(OptimizerState(1, np.ones(size, np.float32), None))
        store.flush()
        bytes_ = (store.folder / f"{ref}.safetensors").stat().st_size
        assert bytes_ // size == (2 if is_half else 4)
