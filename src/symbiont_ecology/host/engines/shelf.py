"""The adapters that a server holds: published, loaded, and unloaded least recently used first.

Servers keep caches by an adapter's name, and reload under the same name from them. So no name comes
twice: each has the hash of the weights, a number, and a word of this process.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines.endpoint import Endpoint, RefusedError
from symbiont_ecology.types import BlobRef
from symbiont_ecology.weights import AdapterWeights

if TYPE_CHECKING:
    from symbiont_ecology.host.engines.client import ServerClient

FAREWELL = 5.0
"""Seconds for each adapter that is unloaded when all is over."""


class Shelf:
    """Adapters by the hash of their weights."""

    def __init__(self, client: ServerClient) -> None:
        self._server, self._endpoint, self._publish = client.server, client.endpoint, client.publish
        self._folder = Path(client.server.adapters_folder).resolve()
        self._session, self._numbers = token_hex(4), count()
        self._names: dict[BlobRef, str] = {}
        """Least recently used first."""

    @property
    def names(self) -> set[str]:
        """Of all adapters that are held."""
        return set(self._names.values())

    def name(self, ref: BlobRef) -> str:
        """The name of an adapter that is held."""
        return self._names[ref]

    def hold(
        self, wanted: Mapping[BlobRef, AdapterWeights], spared: Collection[BlobRef] = ()
    ) -> None:
        """Makes the server hold these, and leaves those that it holds, as far as there is room;
        ``spared`` are not unloaded.

        Raises:
            AdapterError: the folder of adapters cannot be written.
            HostError: the server cannot be reached, or takes no more adapters.
        """
        reserved = {*wanted, *spared}
        for ref, weights in wanted.items():
            if ref in self._names:
                self._names[ref] = self._names.pop(ref)  # to the end: used last
                continue
            while len(self._names) >= self._server.loaded and self._drop_oldest(reserved):
                pass
            self._names[ref] = self._load(ref, weights, reserved)

    def drop(self, ref: BlobRef) -> None:
        """Unloads an adapter, if it is held, and removes its folder."""
        if ref in self._names:
            self._unload(self._endpoint, self._names.pop(ref))

    def clear(self) -> None:
        """Unloads everything, as far as the server still answers."""
        endpoint = replace(self._endpoint, timeout=FAREWELL, patience=0.0)
        names, self._names = list(self._names.values()), {}
        is_there = True
        for name in names:
            try:
                if is_there:
                    self._unload(endpoint, name)
            except HostError:
                is_there = False
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _load(self, ref: BlobRef, weights: AdapterWeights, reserved: Collection[BlobRef]) -> str:
        """Publishes an adapter and has it loaded; a full server first gives up others."""
        while True:
            name = f"symbiont-{self._session}-{next(self._numbers)}-{ref[:12]}"
            folder = self._folder / name
            self._publish(folder, weights)
            body = {"lora_name": name, "lora_path": str(folder)}
            try:
                self._endpoint.call(f"{self._server.adapters_path}/load_lora_adapter", body)
                return name
            except RefusedError as error:
                shutil.rmtree(folder, ignore_errors=True)
                if error.status == 400 and self._drop_oldest(reserved):
                    continue
                company = f"beside {len(self._names)} others" if self._names else "at all"
                raise HostError(
                    f"expected {self._endpoint.url} to load an adapter, got status "
                    f"{error.status}: {error.said}: it takes none {company}: "
                    f"{self._server.load_advice}, lower host.engine.loaded and host.slots to what "
                    "it holds, or let it read host.engine.adapters_folder"
                ) from error

    def _drop_oldest(self, reserved: Collection[BlobRef]) -> bool:
        """Whether there was an adapter that could go."""
        oldest = next((ref for ref in self._names if ref not in reserved), None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None

    def _unload(self, endpoint: Endpoint, name: str) -> None:
        with suppress(RefusedError):  # a server that was started again has forgotten it
            endpoint.call(f"{self._server.adapters_path}/unload_lora_adapter", {"lora_name": name})
        shutil.rmtree(self._folder / name, ignore_errors=True)
