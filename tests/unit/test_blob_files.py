"""Blobs on the disk: what a flush does and in which order, and what becomes of damage."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.adapter import MAX_EXACT_PARAMETERS
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.rng import Draw

LAYOUT = AdapterLayout((("layers.0.q", 3, 4), ("layers.0.v", 3, 2)))


def adapter(seed: int = 0) -> AdapterWeights:
    return AdapterWeights.random(LAYOUT, 2, 2.0, Draw(seed)("weights"), b_std=1.0)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


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


def test_a_store_lists_its_files_in_order_and_none_before_the_first(store: BlobStore) -> None:
    assert store.files() == []
    refs = sorted(store.put_weights(adapter(seed)) for seed in range(4))
    store.flush()
    assert store.files() == [store.folder / f"{ref}.safetensors" for ref in refs]


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


def test_a_full_disk_is_called_full(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_weights(adapter())

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError) as caught:
        store.flush()
    said = f"cannot write blobs to {store.folder}: no space left; nothing written is lost"
    assert str(caught.value) == said


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


def test_blobs_of_the_other_kind_are_named(store: BlobStore) -> None:
    weights, memory = store.put_weights(adapter()), store.put_optimizer_state(OptimizerState(3))
    with pytest.raises(RunError) as caught:
        store.optimizer_state(weights)
    said = f"blob {weights} in {store.folder} holds adapter weights, expected an optimizer state"
    assert str(caught.value) == said
    with pytest.raises(RunError) as caught:
        store.weights(memory)
    said = f"blob {memory} in {store.folder} holds an optimizer state, expected adapter weights"
    assert str(caught.value) == said


def test_rounded_moments_take_half_the_room_only_where_they_are_large(store: BlobStore) -> None:
    for size, is_half in ((MAX_EXACT_PARAMETERS, False), (MAX_EXACT_PARAMETERS + 1, True)):
        ref = store.put_optimizer_state(OptimizerState(1, np.ones(size, np.float32), None))
        store.flush()
        bytes_ = (store.folder / f"{ref}.safetensors").stat().st_size
        assert bytes_ // size == (2 if is_half else 4)
