"""A host that answers through a server while the kernel beside it learns and scores.

A server says what it answered and with which log-probabilities. The kernel has the same host and
the same adapters, so it knows what these must be. That tells an adapter that was not applied, a
stale one and another model from the right one, before an answer is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

import numpy as np

from symbiont_ecology.economics import HostShape
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines.endpoint import Endpoint, RefusedError
from symbiont_ecology.host.engines.server import Answered, AnsweringServer, Asked
from symbiont_ecology.host.engines.shelf import Shelf
from symbiont_ecology.host.engines.witness import (
    EXACT,
    Testimony,
    Witness,
    WrongAdapterError,
    longest,
)
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
from symbiont_ecology.weights.portable import write_portable

if TYPE_CHECKING:
    from symbiont_ecology.host.kernel import HostKernel

PROBES = ("The weather today is", "12+7=", "Once upon a time there was", "1, 2, 3, 4,")
"""What a server is asked to find out what it serves."""
PROBE_TOKENS = 12
LOST = (400, 404)
"""Status codes of a question to an adapter that a server does not have."""


class ServedHost:
    """A host (``engine.runtime.Host``) whose questions a server answers.

    Everything but ``rollout`` is the kernel's. Adapters are published when they are first asked,
    and unloaded when the server needs the room, or when this object goes.
    """

    def __init__(
        self, kernel: HostKernel, server: AnsweringServer, endpoint: Endpoint, model: str
    ) -> None:
        """Compares the served model with the kernel's.

        Raises:
            HostError: it is another model, or the server does not answer.
        """
        self.kernel = kernel
        self._server, self._endpoint, self._model = server, endpoint, model
        self._shelf = Shelf(server, endpoint, partial(_publish, kernel))
        self._placed: dict[int, tuple[BlobRef, AdapterWeights]] = {}
        self._asked_last: dict[int, AdapterWeights] = {}
        """What each slot last answered with: what a stale cache would answer with again."""
        self.close = finalize(self, self._shelf.clear)
        self._trusted = set[str]()
        """Names of adapters that were probed, and are right."""
        self._witness = Witness(kernel, server)
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
        return [np.asarray(one) for one in self.kernel.score(prompts, completions, slots)]

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """What each answer would teach the bare host: unit vectors ``(rows, dimensions)``."""
        return self.kernel.sketch(prompts, completions)

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
        asked = self._questions(rows, draws, decoding)
        slots = sorted({row.slot for row in rows} - {HOST_SLOT})
        try:
            answers = self._answers(rows, asked, slots)
        except (RefusedError, WrongAdapterError) as error:
            if not slots or (isinstance(error, RefusedError) and error.status not in LOST):
                raise
            for ref in {self._placed[slot][0] for slot in slots}:
                self._shelf.drop(ref)
            answers = self._answers(rows, asked, slots)
        return self._completions(rows, asked, answers, decoding)

    def _questions(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> list[Asked]:
        """The rows as a server is asked them."""
        if decoding.perturbation:
            raise HostError(
                "expected a decoding without noise, which a server does not add, got perturbation "
                f"{decoding.perturbation}: set host.engine=kernel"
            )
        if missing := [row.slot for row in rows if row.slot not in (HOST_SLOT, *self._placed)]:
            raise HostError(
                f"expected an adapter in slot {missing[0]}, found none: place one first"
            )
        if decoding.temperature == 0:
            draws = [None] * len(rows)
        elif draws is None or len(draws) != len(rows):
            raise ValueError(
                f"expected one generator for each of {len(rows)} sampled rows, "
                f"got {draws and len(draws)}"
            )
        seeds = [int(draw.integers(1 << 31)) if draw else None for draw in draws]
        prompts, ends = self.encode([row.prompt for row in rows]), self.kernel.codec.end_tokens
        return [
            Asked(ids.tolist(), row.max_new_tokens, decoding, ends, seed)
            for ids, row, seed in zip(prompts, rows, seeds, strict=True)
        ]

    def _answers(
        self, rows: Sequence[Request], asked: Sequence[Asked], slots: Sequence[int]
    ) -> list[Answered]:
        """What the server answers, and the kernel has checked."""
        held = dict(self._placed[slot] for slot in slots)
        self._shelf.hold(held)
        names = {slot: self._shelf.name(self._placed[slot][0]) for slot in slots}
        first = {row.slot: row.prompt for row in reversed(rows)}
        untried = [slot for slot in slots if names[slot] not in self._trusted]
        self._witness.check(self._probe(untried, first), self._earlier(untried))
        self._trusted = set(names.values()) | (self._trusted & self._shelf.names)
        self._asked_last |= {slot: self._placed[slot][1] for slot in slots}
        answers = self._ask(asked, [names.get(row.slot) for row in rows])
        compared, altered = list[Testimony](), set[int]()
        for row, question, answer in zip(rows, asked, answers, strict=True):
            if not self._reports_own(question):
                altered.add(row.slot)
            elif answer.ids:
                compared.append(Testimony(row.slot, row.prompt, answer))
        part = self._server.checked
        self._witness.check(longest(compared, part), {})
        if part:
            self._witness.check(self._probe(sorted(altered - {HOST_SLOT}), first), {})
        return answers

    def _earlier(self, slots: Sequence[int]) -> dict[int, tuple[AdapterWeights, AdapterWeights]]:
        """What slots answered with before, and what they hold."""
        return {
            slot: (self._asked_last[slot], self._placed[slot][1])
            for slot in slots
            if slot in self._asked_last
        }

    def _ask(self, asked: Sequence[Asked], names: Sequence[str | None]) -> list[Answered]:
        """Asks everything at once, as far as there are connections."""

        def ask(question: Asked, name: str | None) -> Answered:
            """One question."""
            if not question.limit:
                return Answered((), ())
            answer = self._server.ask(self._endpoint, question, self._model, name)
            return self._whole(answer, question)

        pool = ThreadPoolExecutor(self._server.connections)
        try:
            return list(pool.map(ask, asked, names))
        finally:
            pool.shutdown(cancel_futures=True)

    def _whole(self, answer: Answered, question: Asked) -> Answered:
        """The answer up to its end.

        Raises:
            HostError: it has no end, or is no answer at all.
        """
        ids, scores = answer.ids, answer.log_probabilities
        stop = next((place for place, token in enumerate(ids, 1) if token in question.ends), None)
        ids, scores = ids[:stop], scores[:stop]
        is_sound = 0 < len(ids) <= question.limit and len(ids) == len(scores)
        is_sound = is_sound and max(ids) < self.shape.vocab and max(scores) < EXACT
        if is_sound and stop is None and len(ids) < question.limit:
            text = self.kernel.codec.decode([ids])[0]
            is_sound = question.decoding.cut(text) != text
        if not is_sound:
            raise HostError(
                f"expected an answer of 1 to {question.limit} tokens with their log-probabilities "
                f"from {self._endpoint.url}, up to its end, got {len(ids)} tokens and "
                f"{len(scores)} log-probabilities: is --max-model-len too small, or the server of "
                "a version that reports them otherwise?"
            )
        return Answered(ids, scores)

    def _completions(
        self,
        rows: Sequence[Request],
        asked: Sequence[Asked],
        answers: Sequence[Answered],
        decoding: Decoding,
    ) -> Completions:
        """The answers as the kernel would have returned them."""
        lengths = np.array([len(answer.ids) for answer in answers], dtype=np.int64)
        ids = np.zeros((len(rows), lengths.max(initial=0)), dtype=np.int64)
        scores = np.zeros(ids.shape, dtype=np.float32)
        for place, answer in enumerate(answers):
            ids[place, : lengths[place]] = answer.ids
            scores[place, : lengths[place]] = answer.log_probabilities
        other = [place for place, one in enumerate(asked) if not self._reports_own(one)]
        read = self._witness.read(
            [Testimony(rows[one].slot, rows[one].prompt, answers[one]) for one in other]
        )
        for place, values in zip(other, read, strict=True):
            scores[place, : lengths[place]] = values
        written = self.kernel.codec.decode([answer.ids for answer in answers])
        texts = tuple(map(decoding.cut, written))
        return Completions(
            texts,
            ids,
            scores,
            lengths,
            np.array([len(question.prompt) for question in asked]),
            stopped=np.array([text != cut for text, cut in zip(written, texts, strict=True)]),
        )

    def _reports_own(self, question: Asked) -> bool:
        return question.seed is None or self._server.reports_own(question.decoding)

    def _probe(self, slots: Sequence[int], first: Mapping[int, str]) -> list[Testimony]:
        """Greedy answers of these slots to what is always asked, and to their first prompts."""
        pairs = [(slot, text) for slot in slots for text in PROBES]
        pairs += [(slot, first[slot]) for slot in slots if slot in first]
        rows = [Request(text, slot, PROBE_TOKENS) for slot, text in pairs]
        names = [
            None if slot == HOST_SLOT else self._shelf.name(self._placed[slot][0])
            for slot, _ in pairs
        ]
        answers = self._ask(self._questions(rows, None, Decoding()), names)
        return [Testimony(*pair, answer) for pair, answer in zip(pairs, answers, strict=True)]


def _publish(kernel: HostKernel, folder: Path, weights: AdapterWeights) -> None:
    """Writes an adapter for a server."""
    write_portable(folder, weights, modules=kernel.modules, base_model=kernel.name_or_path)
