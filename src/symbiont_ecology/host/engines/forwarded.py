"""Answers of a service that a server writes, each on its own, while the kernel learns.

A thread asks for each row. Whether the right adapter answered is compared in the caller's thread,
with slots of the kernel's host that nothing else uses, before a word of it is told. So a reply
comes in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock, Thread
from weakref import finalize

from symbiont_ecology.errors import EcologyError, HostError
from symbiont_ecology.host.engines.client import ServerClient, as_probe, is_lost
from symbiont_ecology.host.engines.server import Asked
from symbiont_ecology.host.engines.shelf import Shelf
from symbiont_ecology.host.engines.witness import Testimony, Witness
from symbiont_ecology.host.rows import find_slot
from symbiont_ecology.host.streaming import LostRow, NewToken, RowId, StreamedRequest
from symbiont_ecology.types import HOST_SLOT, BlobRef
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.blobs import weights_ref


@dataclass(frozen=True, eq=False)
class _Row:
    """A row that a server is asked for."""

    id: RowId
    request: StreamedRequest
    slot: int
    ref: BlobRef | None  # of its adapter; None is the bare host
    question: Asked
    is_compared: bool  # whether the kernel is to read its answer, too
    failed: str = ""  # the name of its adapter in a first try


@dataclass(frozen=True)
class _Reply:
    """What a server said to a row: its answer, then those to probes; or why there is none."""

    row: _Row
    name: str | None  # of its adapter on the server
    told: Sequence[Testimony] = ()
    error: EcologyError | None = None


class ForwardedBatch:
    """Rows that a server writes, as ``ContinuousBatch`` does. Not for several threads."""

    def __init__(self, client: ServerClient, slots: int) -> None:
        """Compares the served model with the kernel's, of which it has ``slots``.

        Raises:
            HostError: it is another model, or the server does not answer.
        """
        self._client, self._kernel = client, client.kernel
        self._adapters: list[tuple[AdapterWeights, BlobRef, str] | None] = [None] * slots
        """What each slot holds: weights, their hash, and whose they are."""
        self._rows: dict[RowId, _Row] = {}
        self._next_id, self._due = 0, 0.0
        self._replies = SimpleQueue[_Reply]()
        self._shelf = Shelf(client)
        self._shelving = Lock()
        self._trusted = set[str]()
        """Names of adapters that were probed, and are right."""
        self.close = finalize(self, self._shelf.clear)
        self._probes = client.probes()
        self._witness = Witness(client.kernel, client.server)
        self._witness.meet([self._told(HOST_SLOT, probe, None) for probe in self._probes])

    def __len__(self) -> int:
        return len(self._rows)

    def check(self, request: StreamedRequest) -> None:
        """Whether a request can be answered at all.

        Raises:
            HostError: it has no room in the host's positions, asks for no token, or for what a
                server does not tell.
            AdapterError: its adapter does not fit.
        """
        request.check(self._kernel.shape.max_positions)
        if request.weights is not None:
            self._kernel.check(request.weights)
        if request.alternatives:
            raise HostError(
                "expected no top_logprobs: another engine answers, and tells those of its own "
                "tokens alone"
            )

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        """Asks the first of these requests, as many as there are connections and slots for now;
        returns their rows' ids. The others have to ask again."""
        ids = list[RowId]()
        for request in requests:
            if len(self._rows) >= self._client.server.connections:
                break
            slot = self._slot_for(request)
            if slot is None:
                break
            row = self._row(request, slot)
            self._rows[row.id] = row
            ids.append(row.id)
            self._send(row)
        return ids

    def step(self) -> list[NewToken | LostRow]:
        """All tokens of the rows that have been answered. They leave."""
        messages = list[NewToken | LostRow]()
        while not self._replies.empty():
            reply = self._replies.get()
            if reply.row.id in self._rows:  # else nobody waits for it any more
                messages += self._settled(reply)
        return messages

    def leave(self, rows: Sequence[RowId]) -> None:
        """Rows that nobody waits for any more leave."""
        for row in rows:
            self._rows.pop(row, None)

    def _slot_for(self, request: StreamedRequest) -> int | None:
        """Where the adapter of a request stands now; None if all slots are in use."""
        weights = request.weights
        if weights is None:
            return HOST_SLOT
        adapters = [entry and entry[0] for entry in self._adapters]
        slot = find_slot(weights, adapters, {row.slot for row in self._rows.values()})
        if slot is not None and adapters[slot] is not weights:
            self._kernel.place(slot, weights)
            self._adapters[slot] = weights, weights_ref(weights), request.owner
        return slot

    def _row(self, request: StreamedRequest, slot: int) -> _Row:
        """A row with a number of its own."""
        self._next_id += 1
        self._due += self._client.server.checked
        is_compared = self._due >= 1
        self._due -= is_compared
        question = self._client.question(
            request.prompt, request.max_new_tokens, request.decoding, request.generator
        )
        adapter = None if slot == HOST_SLOT else self._adapters[slot]
        return _Row(self._next_id, request, slot, adapter and adapter[1], question, is_compared)

    def _send(self, row: _Row) -> None:
        # A thread that waits for a server must not keep a process that ends.
        Thread(target=self._ask, args=(row,), daemon=True).start()

    def _ask(self, row: _Row) -> None:
        """Asks the server, in a thread of its own."""
        name = None
        try:
            name = self._name(row)
            testimonies = [self._told(row.slot, row.question, name)]
            is_silent = row.is_compared and not self._witness.has_own(testimonies[0])
            if name is not None and (is_silent or name not in self._trusted):
                probes = (*self._probes, as_probe(row.question))
                testimonies += [self._told(row.slot, probe, name) for probe in probes]
        except EcologyError as error:
            self._replies.put(_Reply(row, name, error=error))
        else:
            self._replies.put(_Reply(row, name, testimonies))

    def _name(self, row: _Row) -> str | None:
        """The name of a row's adapter on the server, which loads it if need be."""
        if row.ref is None or row.request.weights is None:
            return None
        in_use = [entry.ref for entry in tuple(self._rows.values()) if entry.ref is not None]
        with self._shelving:
            if row.failed in self._shelf.names:
                self._shelf.drop(row.ref)
            self._shelf.hold({row.ref: row.request.weights}, in_use)
            return self._shelf.name(row.ref)

    def _told(self, slot: int, question: Asked, name: str | None) -> Testimony:
        return Testimony(slot, question, self._client.ask(question, name))

    def _settled(self, reply: _Reply) -> list[NewToken | LostRow]:
        """What is told of a row: its tokens; nothing, if it is asked once more; or why it is
        lost."""
        row = self._rows.pop(reply.row.id)
        try:
            if reply.error is not None:
                raise reply.error
            self._compare(reply)
            return self._tokens(row, reply.told[0])
        except EcologyError as error:
            if row.failed or reply.name is None or not is_lost(error):
                return [LostRow(row.id, error)]
        self._rows[row.id] = retry = replace(row, failed=reply.name)
        self._send(retry)
        return []

    def _compare(self, reply: _Reply) -> None:
        """Whether the right adapter answered.

        Raises:
            WrongAdapterError: it did not.
        """
        row, (answer, *probes) = reply.row, reply.told
        is_read = self._witness.has_own(answer) and (row.is_compared or probes)
        earlier = [
            entry[0]
            for entry in self._adapters
            if entry and entry[2] == row.request.owner and entry[0] is not row.request.weights
        ]
        self._witness.check([*probes, *([answer] if is_read else ())], {row.slot: earlier})
        if reply.name is not None:
            self._trusted = {reply.name, *self._trusted} & self._shelf.names

    def _tokens(self, row: _Row, testimony: Testimony) -> list[NewToken | LostRow]:
        """The tokens of a row, the last of them with all of its text."""
        ids, decoding = testimony.answered.ids, row.request.decoding
        (scores,), (text,) = self._witness.scores([testimony]), self._kernel.codec.decode([ids])
        cut = decoding.cut(text)
        end = "stop" if ids[-1] in testimony.question.ends or cut != text else "length"
        tokens = [NewToken(row.id, *pair, "") for pair in zip(ids, scores.tolist(), strict=True)]
        return [*tokens[:-1], replace(tokens[-1], text=cut, end=end)]
