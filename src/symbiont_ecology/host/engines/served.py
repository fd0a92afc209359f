"""A host that answers through a server while the kernel beside it learns and scores.

A server says what it answered and with which log-probabilities. The kernel has the same host and
the same adapters, so it knows what these must be. That tells an adapter that was not applied, a
stale one and another model from the right one, before an answer is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import finalize

import numpy as np

from symbiont_ecology.economics import HostShape
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines.client import ServerClient, as_probe, is_lost
from symbiont_ecology.host.engines.server import Asked
from symbiont_ecology.host.engines.shelf import Shelf
from symbiont_ecology.host.engines.witness import Testimony, Witness, longest
from symbiont_ecology.host.rows import draws_of
from symbiont_ecology.types import (
    HOST_SLOT,
    BlobRef,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Request,
)
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.weights.blobs import weights_ref


class ServedHost:
    """A host (``engine.runtime.Host``) whose questions a server answers.

    Everything but ``rollout`` is the kernel's. Adapters are published when they are first asked,
    and unloaded when the server needs the room, or when this object goes.
    """

    def __init__(self, client: ServerClient) -> None:
        """Compares the served model with the kernel's.

        Raises:
            HostError: it is another model, or the server does not answer.
        """
        self._client, self.kernel = client, client.kernel
        self._shelf = Shelf(client)
        self._placed: dict[int, tuple[BlobRef, AdapterWeights]] = {}
        self._asked_last: dict[int, AdapterWeights] = {}
        """What each slot last answered with: what a stale cache would answer with again."""
        self.close = finalize(self, self._shelf.clear)
        self._trusted = set[str]()
        """Names of adapters that were probed, and are right."""
        self._witness = Witness(client.kernel, client.server)
        self._probes = client.probes()
        self._witness.meet(self._probe([HOST_SLOT], {}))

    @property
    def slots(self) -> int:
        """Adapters that one batched call can serve."""
        return self.kernel.slots

    @property
    def layout(self) -> AdapterLayout:
        """Which modules carry adapters."""
        return self.kernel.layout

    @property
    def shape(self) -> HostShape:
        """The host's sizes."""
        return self.kernel.shape

    @property
    def norms(self) -> Mapping[str, float]:
        """‖W‖ (Frobenius) of every adapted module's base weights, by name."""
        return self.kernel.norms

    @property
    def memory_mb(self) -> float:
        """Megabytes that a batch of the kernel may take."""
        return self.kernel.memory_mb

    def fingerprint(self) -> str:
        """The kernel's: the server is compared with it."""
        return self.kernel.fingerprint()

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each prompt as the host reads it."""
        return self.kernel.encode(prompts)

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text as the host would write it, end of answer included."""
        return self.kernel.encode_answers(answers)

    def score(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slots: Sequence[int]
    ) -> list[np.ndarray]:
        """Log-probability (nats) of every token of each completion, by the kernel."""
        return [np.asarray(scores) for scores in self.kernel.score(prompts, completions, slots)]

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """What each answer would teach the bare host: unit vectors ``(rows, dimensions)``."""
        return self.kernel.sketch(prompts, completions)

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """What the bare host makes of each answer that it has read: ``(rows, dimensions)``."""
        return self.kernel.embed(prompts, completions)

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Copies an adapter into a slot of the kernel; the server gets it when it is asked."""
        self.kernel.place(slot, weights)
        if slot not in self._placed or self._placed[slot][1] is not weights:
            self._placed[slot] = weights_ref(weights), weights

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        """One step of the kernel for every slot with lessons."""
        return self.kernel.learn(batch, weights, optimizer_state)

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        """Answers every row by the server; a row without a generator greedily.

        A server that lost an adapter, or answers with another one, gets it once more under a new
        name and is asked again.

        Raises:
            WrongAdapterError: it does not apply an adapter that it says it has.
            HostError: it does not answer, or not as asked.
        """
        questions = self._questions(rows, draws, decoding)
        slots = sorted({row.slot for row in rows} - {HOST_SLOT})
        try:
            testimonies = self._answers(questions, slots)
        except HostError as error:
            if not slots or not is_lost(error):
                raise
            for ref in {self._placed[slot][0] for slot in slots}:
                self._shelf.drop(ref)
            testimonies = self._answers(questions, slots)
        return self._completions(testimonies, decoding)

    def _questions(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> list[tuple[int, Asked]]:
        """The rows as a server is asked them, each with its slot."""
        if missing := [row.slot for row in rows if row.slot not in (HOST_SLOT, *self._placed)]:
            raise HostError(
                f"expected an adapter in slot {missing[0]}, found none: place one first"
            )
        prompts = self.encode([row.prompt for row in rows])
        draws = draws_of(draws, len(rows), is_drawn=decoding.temperature > 0)
        return [
            (row.slot, self._client.question(prompt, row.max_new_tokens, decoding, draw))
            for prompt, row, draw in zip(prompts, rows, draws, strict=True)
        ]

    def _answers(self, pairs: Sequence[tuple[int, Asked]], slots: Sequence[int]) -> list[Testimony]:
        """What the server answers, and the kernel has checked."""
        self._shelf.hold(dict(self._placed[slot] for slot in slots))
        names = {slot: self._shelf.name(self._placed[slot][0]) for slot in slots}
        first = dict(reversed(pairs))
        untried = [slot for slot in slots if names[slot] not in self._trusted]
        self._witness.check(self._probe(untried, first), self._earlier(untried))
        self._trusted = set(names.values()) | (self._trusted & self._shelf.names)
        self._asked_last |= {slot: self._placed[slot][1] for slot in slots}
        rows, part = self._ask(pairs), self._client.server.checked
        own_rows = [row for row in rows if self._witness.has_own(row) and row.answered.ids]
        self._witness.check(longest(own_rows, part), {})
        altered = {row.slot for row in rows if not self._witness.has_own(row)}
        if part:
            self._witness.check(self._probe(sorted(altered - {HOST_SLOT}), first), {})
        return rows

    def _earlier(self, slots: Sequence[int]) -> dict[int, list[AdapterWeights]]:
        """What slots answered with before."""
        return {slot: [self._asked_last[slot]] for slot in slots if slot in self._asked_last}

    def _ask(self, pairs: Sequence[tuple[int, Asked]]) -> list[Testimony]:
        """Asks everything at once, as far as there are connections."""

        def ask(pair: tuple[int, Asked]) -> Testimony:
            """One question to a slot."""
            slot, question = pair
            name = None if slot == HOST_SLOT else self._shelf.name(self._placed[slot][0])
            return Testimony(slot, question, self._client.ask(question, name))

        pool = ThreadPoolExecutor(self._client.server.connections)
        try:
            return list(pool.map(ask, pairs))
        finally:
            pool.shutdown(cancel_futures=True)

    def _probe(self, slots: Sequence[int], first: Mapping[int, Asked]) -> list[Testimony]:
        """Greedy answers of these slots to what is always asked, and to their first questions."""
        probes = [(slot, probe) for slot in slots for probe in self._probes]
        return self._ask(
            probes + [(slot, as_probe(first[slot])) for slot in slots if slot in first]
        )

    def _completions(self, rows: Sequence[Testimony], decoding: Decoding) -> Completions:
        """The answers as the kernel would have returned them."""
        answers = [row.answered for row in rows]
        lengths = np.array([len(answer.ids) for answer in answers], dtype=np.int64)
        ids = np.zeros((len(rows), lengths.max(initial=0)), dtype=np.int64)
        scores = np.zeros(ids.shape, dtype=np.float32)
        for place, (answer, values) in enumerate(
            zip(answers, self._witness.scores(rows), strict=True)
        ):
            ids[place, : lengths[place]] = answer.ids
            scores[place, : lengths[place]] = values
        full_texts = self.kernel.codec.decode([answer.ids for answer in answers])
        texts = tuple(map(decoding.cut, full_texts))
        return Completions(
            texts,
            ids,
            scores,
            lengths,
            np.array([len(row.question.prompt) for row in rows]),
            stopped=np.array([text != cut for text, cut in zip(full_texts, texts, strict=True)]),
        )
