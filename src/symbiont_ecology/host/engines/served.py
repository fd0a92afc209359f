"""A host that answers through a server while the kernel beside it learns and scores.

A server says what it answered and with which log-probabilities. The kernel has the same host and
the same adapters, so it knows what these must be. That tells an adapter that was not applied, a
stale one and another model from the right one, before an answer is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

import numpy as np

from symbiont_ecology.economics import HostShape
from symbiont_ecology.errors import HostError
from symbiont_ecology.host.engines.endpoint import Endpoint, RefusedError
from symbiont_ecology.host.engines.server import Answered, AnsweringServer, Asked
from symbiont_ecology.host.engines.shelf import Shelf
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
FEWEST_TOKENS = 4
"""A shorter answer is read as if it had so many tokens that agree: few tokens prove little."""
NOISES = 4.0
"""Times the noise of rounding up to which log-probabilities are taken for equal."""
EXACT = 1e-4
"""Nats per token that two exact computations differ by."""
LOST = (400, 404)
"""Status codes of a question to an adapter that a server does not have."""


class WrongAdapterError(HostError):
    """A server answered with other weights than it was asked for."""


@dataclass(frozen=True)
class _Row:
    """A question and its answer, as far as they are compared."""

    slot: int
    prompt: str
    answered: Answered


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
        self._noise = EXACT
        rows = self._probe([HOST_SLOT], {})
        apart = max(map(_distance, self._reported(rows), self._read(rows)))
        if apart > server.tolerance:
            self.close()
            raise HostError(
                f"expected {endpoint.url} to serve the model {kernel.name_or_path}, got "
                f"log-probabilities that differ by {apart:.2g} nats per token from {model}: serve "
                "the same model in the same precision, or raise host.engine.tolerance"
            )
        self._noise = EXACT + apart

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
        new = self._shelf.hold(held)
        first = {row.slot: row.prompt for row in reversed(rows)}
        untried = [slot for slot in slots if self._placed[slot][0] in new]
        self._check(self._probe(untried, first), self._asked_last)
        self._asked_last |= {slot: self._placed[slot][1] for slot in slots}
        names = {slot: self._shelf.name(self._placed[slot][0]) for slot in slots}
        answers = self._ask(asked, [names.get(row.slot) for row in rows])
        compared: dict[int, list[_Row]] = {}
        altered: set[int] = set()
        for row, question, answer in zip(rows, asked, answers, strict=True):
            if not self._reports_own(question):
                altered.add(row.slot)
            elif answer.ids:
                compared.setdefault(row.slot, []).append(_Row(row.slot, row.prompt, answer))
        part = self._server.checked
        self._check([row for group in compared.values() for row in _longest(group, part)], {})
        if part:
            self._check(self._probe(sorted(altered - {HOST_SLOT}), first), {})
        return answers

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
        read = self._read([_Row(rows[one].slot, rows[one].prompt, answers[one]) for one in other])
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

    def _probe(self, slots: Sequence[int], first: Mapping[int, str]) -> list[_Row]:
        """Greedy answers of these slots to what is always asked, and to their first prompts."""
        pairs = [(slot, text) for slot in slots for text in PROBES]
        pairs += [(slot, first[slot]) for slot in slots if slot in first]
        rows = [Request(text, slot, PROBE_TOKENS) for slot, text in pairs]
        names = [
            None if slot == HOST_SLOT else self._shelf.name(self._placed[slot][0])
            for slot, _ in pairs
        ]
        answers = self._ask(self._questions(rows, None, Decoding()), names)
        return [_Row(*pair, answer) for pair, answer in zip(pairs, answers, strict=True)]

    def _check(self, rows: Sequence[_Row], earlier: Mapping[int, AdapterWeights]) -> None:
        """Compares answers with what the kernel makes of them.

        Raises:
            WrongAdapterError: they are of other weights.
        """
        apart = list(map(_distance, self._reported(rows), self._read(rows)))
        equal = NOISES * self._noise
        doubtful = [(row, far) for row, far in zip(rows, apart, strict=True) if far > equal]
        for row, far in doubtful:
            for other, what in self._others(row, earlier):
                near = _distance(self._reported([row])[0], other)
                if near < far / 2:
                    raise WrongAdapterError(
                        f"expected {self._endpoint.url} to answer with the adapter of slot "
                        f"{row.slot}, got answers of {what} ({near:.2g} nats per token from it, "
                        f"{far:.2g} from the adapter): {self._server.load_advice}; one server "
                        "alone, without replicas"
                    )
            if far > self._server.tolerance:
                raise WrongAdapterError(
                    f"expected {self._endpoint.url} to answer with the weights of slot {row.slot}, "
                    f"got log-probabilities that differ by {far:.2g} nats per token: serve the "
                    "same model in the same precision, or raise host.engine.tolerance"
                )

    def _others(
        self, row: _Row, earlier: Mapping[int, AdapterWeights]
    ) -> list[tuple[np.ndarray, str]]:
        """How a row would read if it came from something else."""
        if row.slot == HOST_SLOT:
            return []
        found = [(self._read([_Row(HOST_SLOT, row.prompt, row.answered)])[0], "the bare host")]
        if row.slot in earlier:
            try:
                self.kernel.place(row.slot, earlier[row.slot])
                found.append((self._read([row])[0], "an earlier adapter, which is stale"))
            finally:
                self.kernel.place(row.slot, self._placed[row.slot][1])
        return found

    def _read(self, rows: Sequence[_Row]) -> list[np.ndarray]:
        """The kernel's log-probabilities of answers."""
        if not rows:
            return []
        ids = [row.answered.ids for row in rows]
        return self.score([row.prompt for row in rows], ids, [row.slot for row in rows])

    @staticmethod
    def _reported(rows: Sequence[_Row]) -> list[np.ndarray]:
        return [np.array(row.answered.log_probabilities) for row in rows]


def _publish(kernel: HostKernel, folder: Path, weights: AdapterWeights) -> None:
    """Writes an adapter for a server."""
    write_portable(folder, weights, modules=kernel.modules, base_model=kernel.name_or_path)


def _longest(rows: Sequence[_Row], part: float) -> list[_Row]:
    """The longest answers, which say most: that part of them, at least one if any."""
    ranked = sorted(rows, key=lambda row: -len(row.answered.ids))
    return ranked[: ceil(part * len(rows))]


def _distance(reported: np.ndarray, read: np.ndarray) -> float:
    """Nats per token by which log-probabilities differ."""
    return float(np.abs(reported - read).sum() / max(len(reported), FEWEST_TOKENS))
