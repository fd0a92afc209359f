"""A folder of immutable blobs, each named by the hash of its content: adapter weights and
optimizer states.

Equal content is one blob, a blob never changes, and whoever holds a reference can check what it
reads. New blobs wait in memory until ``flush``, so that a checkpoint decides when the disk is
touched and organelles that lived and died between two checkpoints never reach it. Files are
safetensors: data, no code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import xxhash
from pydantic_core import from_json, to_json
from safetensors import SafetensorError
from safetensors.numpy import load, save

from symbiont_ecology.adapters.adapter import (
    MAX_EXACT_PARAMETERS,
    AdapterLayout,
    AdapterWeights,
    OptimizerState,
    is_rounded,
)
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import sync_folder, write_whole
from symbiont_ecology.base.types import BlobRef


@dataclass(frozen=True)
class _Blob:
    """Form of both kinds of blob on disk: a header of plain values and named arrays, each in one
    piece."""

    header: str  # JSON, the same bytes for equal content
    arrays: Mapping[str, np.ndarray]

    @property
    def ref(self) -> BlobRef:
        """128 bits over everything that makes the blob what it is.

        Against accidents: who can write a blob can write the state that names it, too. Two in three
        bytes that a generation makes are named here, at a thirtieth of what a cryptographic hash
        takes.
        """
        digest = xxhash.xxh3_128(self.header.encode())
        for name, array in sorted(self.arrays.items()):
            digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            digest.update(array.data)
        return digest.hexdigest()


@lru_cache(maxsize=256)
def _header(layout: AdapterLayout, rank: int, scaling: float, phrase: str) -> str:
    """Return the header of an adapter's blob."""
    extra = {"phrase": phrase} if phrase else {}
    return json.dumps({"layout": layout.modules, "rank": rank, "scaling": scaling, **extra})


@lru_cache(maxsize=256)
def _facts(header: str) -> tuple[AdapterLayout, int, float, str]:
    """Return the values of such a header."""
    facts = json.loads(header)
    layout = AdapterLayout(tuple((name, d_in, d_out) for name, d_in, d_out in facts["layout"]))
    return layout, facts["rank"], facts["scaling"], facts.get("phrase", "")


def weights_ref(weights: AdapterWeights) -> BlobRef:
    """Return the reference of an adapter: the hash of its content."""
    return _weights_blob(weights).ref


def _weights_blob(weights: AdapterWeights) -> _Blob:
    header = _header(weights.layout, weights.rank, float(weights.scaling), weights.phrase)
    return _Blob(header, {"vector": weights.vector})


class BlobStore:
    """Write-once, content-addressed storage in ``folder``; made on the first flush."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._new: dict[BlobRef, _Blob] = {}
        self._latest: dict[BlobRef, _Blob] = {}
        """Of the last flush: what the next generation begins with need not be read back."""
        self._living = WeakValueDictionary[BlobRef, AdapterWeights]()
        """Adapters that somebody holds. One content is one object, by which a host knows what it
        has read with it."""

    def put_weights(self, weights: AdapterWeights) -> BlobRef:
        """Keep an adapter and return its reference."""
        return self._put(_weights_blob(weights))

    def weights(self, ref: BlobRef) -> AdapterWeights:
        """Return the adapter of that reference; RunError when it is missing, damaged or no
        adapter."""
        weights = self._living.get(ref)
        if weights is None:
            blob = self._get(ref, "adapter weights")
            layout, rank, scaling, phrase = _facts(blob.header)
            vector = blob.arrays["vector"]
            weights = AdapterWeights(layout, rank, scaling, vector, phrase=phrase)
            self._living[ref] = weights
        return weights

    def put_optimizer_state(self, optimizer_state: OptimizerState) -> BlobRef:
        """Keep an optimizer state and return its reference."""
        moments = {"first": optimizer_state.first, "second": optimizer_state.second}
        header = to_json(
            {"step": optimizer_state.step, "notes": dict(sorted(optimizer_state.notes.items()))}
        ).decode()
        arrays = {
            name: np.ascontiguousarray(_halved(array))  # in one piece, or a copy that is
            for name, array in moments.items()
            if array is not None
        }
        return self._put(_Blob(header, arrays))

    def optimizer_state(self, ref: BlobRef) -> OptimizerState:
        """Return the optimizer state of that reference; RunError when it is missing, damaged or
        none."""
        blob = self._get(ref, "an optimizer state")
        header = from_json(blob.header)
        first, second = (_whole(blob.arrays.get(name)) for name in ("first", "second"))
        return OptimizerState(header["step"], first, second, header["notes"])

    def flush(self, reachable: Iterable[BlobRef] | None = None) -> None:
        """Write the new blobs, or those of them that are ``reachable``; then they survive a power
        cut.

        A blob is on disk whole or not at all, so a flush that fails can be tried again.

        Raises:
            RunError: the disk is full or the folder cannot be written.
        """
        refs = set(self._new) if reachable is None else self._new.keys() & set(reachable)
        if not refs:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_own()
            self._latest = {}
            for ref in sorted(refs):
                if not self._path(ref).is_file():
                    blob = self._new[ref]
                    data = save(dict(blob.arrays), metadata={"header": blob.header})
                    write_whole(self._path(ref), data, syncs_folder=False)
                self._latest[ref] = self._new.pop(ref)
            sync_folder(self.folder)
        except OSError as error:
            raise RunError(f"cannot write blobs to {self.folder}: {error.strerror}") from error

    def forget(self, reachable: Iterable[BlobRef]) -> None:
        """Let go of the blobs in memory that are not ``reachable``: every generation makes new
        ones."""
        keep = set(reachable)
        self._new, self._latest = (
            {ref: blob for ref, blob in blobs.items() if ref in keep}
            for blobs in (self._new, self._latest)
        )

    def collect(self, reachable: Iterable[BlobRef]) -> None:
        """Forget every blob that is not ``reachable``, on disk and in memory, and files a crash
        left."""
        keep = set(reachable)
        self.forget(keep)
        self._check_own()
        try:
            for path in self.folder.glob("*.safetensors*"):
                if path.name.removesuffix(".safetensors") not in keep:
                    path.unlink()
        except OSError as error:
            raise RunError(
                f"cannot delete {path}, which the run does not need: {error.strerror}; remove it"
            ) from error

    def _put(self, blob: _Blob) -> BlobRef:
        ref = blob.ref
        if ref not in self._latest:
            self._new.setdefault(ref, blob)
        return ref

    def _get(self, ref: BlobRef, wanted: str) -> _Blob:
        """Return the blob, from memory if it is there; it has to be of the kind that is wanted."""
        blob = self._new.get(ref) or self._latest.get(ref) or self.check(ref)
        found = "adapter weights" if "vector" in blob.arrays else "an optimizer state"
        if found != wanted:
            raise RunError(f"blob {ref} in {self.folder} holds {found}, expected {wanted}")
        return blob

    def check(self, ref: BlobRef) -> _Blob:
        """Return a blob as it is on the disk, whatever is in memory.

        Raises:
            RunError: it is missing or damaged.
        """
        path = self._path(ref)
        try:
            data = path.read_bytes()
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + size])["__metadata__"]["header"]
            blob = _Blob(header, load(data))
        except OSError as error:
            raise RunError(
                f"blob {ref} is missing from {self.folder} ({error.strerror})"
            ) from error
        except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"blob {path} is damaged: not a safetensors file of this store"
            ) from error
        if blob.ref != ref:
            raise RunError(f"blob {path} is damaged: its content does not match its name")
        return blob

    def _path(self, ref: BlobRef) -> Path:
        return self.folder / f"{ref}.safetensors"

    def _check_own(self) -> None:
        """Check that the folder is the run's own: blobs that it does not need are deleted."""
        if self.folder.is_symlink():
            raise RunError(
                f"{self.folder} is a link, and a run deletes what it does not need there: put the "
                "folder itself in its place"
            )


def _halved(moment: np.ndarray) -> np.ndarray:
    """Return a large moment that is rounded to bfloat16, as the upper halves of its numbers."""
    if moment.size <= MAX_EXACT_PARAMETERS or not is_rounded(moment):
        return moment
    return (moment.view(np.uint32) >> 16).astype(np.uint16)


def _whole(stored: np.ndarray | None) -> np.ndarray | None:
    if stored is None or stored.dtype != np.uint16:
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)
