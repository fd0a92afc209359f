"""A host whose questions a server answers, while the kernel in it learns and scores.

The kernel has the same host and the same adapters, so it knows which log-probabilities an answer
must have. That tells an adapter that was not applied and another model from the right one, before
an answer is used.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from secrets import token_hex
from threading import Lock
from weakref import finalize

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.blobs import weights_ref
from symbiont_ecology.adapters.peft_files import write_portable
from symbiont_ecology.base.errors import EcologyError, HostError
from symbiont_ecology.base.types import HOST_SLOT, BlobRef, Completions, Decoding, Request
from symbiont_ecology.extensions.engines.servers import LostError, Question, Server, Tokens
from symbiont_ecology.extensions.serve.streaming import LostRow, NewToken, RowId, StreamedRequest
from symbiont_ecology.model.decoding import Observer
from symbiont_ecology.model.kernel import HostKernel, draws_of

PROBES = ("The weather today is", "12+7=", "Once upon a time there was", "1, 2, 3, 4,")
"""Prompts that tell which model a server serves."""
PROBE_TOKENS = 12
MIN_COUNTED = 4
"""A shorter answer is read as if it had so many tokens that agree: few tokens prove little."""
EXACT, NOISES = 1e-4, 4.0
"""Nats per token that two exact computations differ by, and the multiple of the noise of rounding
up to which log-probabilities are taken for equal."""


class Adapters:
    """Adapters on a server. Servers keep caches by an adapter's name, so no name comes twice. May
    be used by several threads."""

    def __init__(self, server: Server, kernel: HostKernel) -> None:
        self._server, self._kernel, self._lock = server, kernel, Lock()
        self._folder = Path(server.adapters_folder).resolve()
        self._session, self._numbers = token_hex(4), count()
        self._names: dict[BlobRef, str] = {}  # least recently used first
        self._in_use = Counter[BlobRef]()

    @contextmanager
    def held(self, weights: AdapterWeights | None) -> Iterator[str | None]:
        """Hold the name of an adapter, which is loaded if need be; None is the bare host.

        Raises:
            AdapterError: the folder of adapters cannot be written.
            HostError: the server takes no more adapters, or cannot be reached.
        """
        if weights is None:
            yield None
            return
        ref = weights_ref(weights)
        with self._lock:
            name = self._names.pop(ref, "") or self._load(weights, ref)
            self._names[ref] = name  # at the end: used last
            self._in_use[ref] += 1
        try:
            yield name
        except LostError:  # a later question loads the adapter anew
            with self._lock:
                if ref in self._names:
                    self._drop(ref)
            raise
        finally:
            self._in_use[ref] -= 1

    def clear(self) -> None:
        """Unload all, as far as the server answers."""
        self._server = replace(self._server, timeout=5.0, patience=1e-3)
        for ref in list(self._names):
            self._drop(ref)

    def _load(self, weights: AdapterWeights, ref: BlobRef) -> str:
        idle = [other for other in self._names if not self._in_use[other]]
        for other in idle[: max(0, len(self._names) + 1 - self._server.loaded)]:
            self._drop(other)
        name = f"symbiont-{self._session}-{next(self._numbers)}-{ref[:12]}"
        folder, kernel = self._folder / name, self._kernel
        write_portable(folder, weights, modules=kernel.modules, base_model=kernel.name_or_path)
        try:
            self._call("load", {"lora_name": name, "lora_path": str(folder)})
        except HostError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise HostError(
                f"{error}; it takes no adapter beside {len(self._names)} others: "
                f"{self._server.load_advice}, lower host.engine.loaded and host.slots to what it "
                "holds, or let it read host.engine.adapters_folder"
            ) from error
        return name

    def _drop(self, ref: BlobRef) -> None:
        name = self._names.pop(ref)
        with suppress(HostError):  # a server that was started again has forgotten it
            self._call("unload", {"lora_name": name})
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _call(self, verb: str, body: dict[str, str]) -> None:
        self._server.call(f"{self._server.adapters_path}/{verb}_lora_adapter", body)


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer to a slot, with the log-probabilities (nats) that the server reports."""

    slot: int
    question: Question
    tokens: Tokens

    @property
    def ids(self) -> list[int]:
        """Token ids."""
        return [token for token, _ in self.tokens]

    def distance(self, scores: np.ndarray) -> float:
        """Return the nats per token by which other log-probabilities differ."""
        far = sum(abs(told - score) for (_, told), score in zip(self.tokens, scores, strict=True))
        return float(far) / max(len(scores), MIN_COUNTED)


class ServedHost(HostKernel):
    """A kernel whose questions a server answers. Adapters are published when they are first asked,
    and unloaded when the server needs the room, or when this object goes."""

    def __init__(self, kernel: HostKernel, server: Server, model: str) -> None:
        """Compare the served model with the kernel's.

        Raises:
            HostError: it is another model, or the server does not answer.
        """
        vars(self).update(vars(kernel))
        self.server, self._model, self._noise = server, model, EXACT
        self._adapters = Adapters(server, kernel)
        self.close = finalize(self, self._adapters.clear)
        self.pool = ThreadPoolExecutor(server.connections)
        probes = [self.question(ids, PROBE_TOKENS, Decoding()) for ids in self.encode(PROBES)]
        answers = [answer for probe in probes for answer in self.ask(HOST_SLOT, probe, None)]
        self._noise += self.compare(answers)

    def question(
        self,
        prompt: np.ndarray,
        limit: int,
        decoding: Decoding,
        generator: np.random.Generator | None = None,
    ) -> Question:
        """Return a question, which is greedy without a generator."""
        seed = None if generator is None else int(generator.integers(1 << 31))
        return Question(prompt.tolist(), limit, decoding, self.codec.end_tokens, seed)

    def ask(self, slot: int, question: Question, weights: AdapterWeights | None) -> list[Answer]:
        """Return the answer of an adapter that stands in a slot of the kernel; before it one to a
        probe, if the answer alone does not prove the adapter. May be called by several threads.

        Raises:
            EcologyError: there is none.
        """
        asked = [question]
        if not self.server.reports_own(question):
            asked.insert(0, replace(question, limit=PROBE_TOKENS, decoding=Decoding(), seed=None))
        with self._adapters.held(weights) as name:
            told = [self.server.ask(one, self._model, name) for one in asked]
        if any(token >= self.shape.vocab for tokens in told for token, _ in tokens):
            raise HostError(f"expected tokens of the host from {self.server.url}, got others")
        return [Answer(slot, one, tokens) for one, tokens in zip(asked, told, strict=True)]

    def compare(self, answers: Sequence[Answer]) -> float:
        """Return the largest distance (nats per token) of what the server reports and the kernel
        reads with its adapters.

        Raises:
            HostError: an answer is of other weights.
        """
        told, distances = [one for one in answers if self.server.reports_own(one.question)], [0.0]
        for one, scores in zip(told, self.scores(told), strict=True):
            distances.append(far := one.distance(scores))
            if far <= NOISES * self._noise:
                continue
            (bare,) = self.scores([replace(one, slot=HOST_SLOT)])
            is_bare = one.slot != HOST_SLOT and one.distance(bare) < far / 2
            if is_bare or far > self.server.tolerance:
                found = "the bare host" if is_bare else "other weights, or another model"
                raise HostError(
                    f"expected {self.server.url} to answer as {self.name_or_path} with the adapter "
                    f"that was asked, got answers of {found} ({far:.2g} nats per token from it): "
                    f"{self.server.load_advice}; serve the same model in the same precision, by "
                    "one server without replicas, or raise host.engine.tolerance"
                )
        return max(distances)

    def scores(self, answers: Sequence[Answer]) -> list[np.ndarray]:
        """Return the kernel's log-probabilities (nats) of answers, ``(tokens,)`` each."""
        prompts = [one.question.prompt for one in answers]
        scores = self.score(prompts, [one.ids for one in answers], [one.slot for one in answers])
        return list(map(np.asarray, scores))

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
        observer: Observer | None = None,
    ) -> Completions:
        """Answer every row by the server; a row without a generator greedily.

        Raises:
            HostError: the server does not answer, or not as asked, or by other weights.
        """
        if observer is not None:
            raise HostError("expected no observer within a server's model: set host.engine=kernel")
        draws = draws_of(draws, len(rows), is_drawn=decoding.temperature > 0)
        prompts, jobs = self.encode([row.prompt for row in rows]), list[Future[list[Answer]]]()
        for row, prompt, draw in zip(rows, prompts, draws, strict=True):
            weights = None if row.slot == HOST_SLOT else self.weights_of(row.slot)
            question = self.question(prompt, row.max_new_tokens, decoding, draw)
            jobs.append(self.pool.submit(self.ask, row.slot, question, weights))
        try:
            told = [job.result() for job in jobs]
        finally:
            for job in jobs:
                job.cancel()
        self.compare([answer for answers in told for answer in answers])
        return self._completions([answers[-1] for answers in told], decoding)

    def _completions(self, answers: Sequence[Answer], decoding: Decoding) -> Completions:
        """Return the answers as the kernel would have."""
        lengths = np.array([len(answer.ids) for answer in answers], dtype=np.int64)
        ids = np.zeros((len(answers), lengths.max(initial=0)), dtype=np.int64)
        scores = np.zeros(ids.shape, dtype=np.float32)
        for place, values in enumerate(self.scores(answers)):
            ids[place, : lengths[place]] = answers[place].ids
            scores[place, : lengths[place]] = values
        whole = self.codec.decode([answer.ids for answer in answers])
        texts = tuple(map(decoding.cut, whole))
        prompts = np.array([len(answer.question.prompt) for answer in answers])
        stopped = np.array([text != cut for text, cut in zip(whole, texts, strict=True)])
        return Completions(texts, ids, scores, lengths, prompts, stopped=stopped)


class ForwardedBatch:
    """Rows of a service that a server writes. A reply comes in one piece, once it is known that
    the right adapter answered. Not for several threads."""

    def __init__(self, host: ServedHost) -> None:
        self._host, self._ids = host, count(1)
        self._rows: dict[RowId, tuple[StreamedRequest, Future[list[Answer]]]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def check(self, request: StreamedRequest) -> None:
        request.check(self._host.shape.max_positions)
        if request.weights is not None:
            self._host.check(request.weights)

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        ids = list[RowId]()
        for one in requests[: self._host.server.connections - len(self._rows)]:
            slot = HOST_SLOT if one.weights is None else 0
            limit, prompt = one.max_new_tokens, one.prompt
            question = self._host.question(prompt, limit, one.decoding, one.generator)
            ids.append(next(self._ids))
            job = self._host.pool.submit(self._host.ask, slot, question, one.weights)
            self._rows[ids[-1]] = one, job
        return ids

    def step(self) -> list[NewToken | LostRow]:
        news = list[NewToken | LostRow]()
        for row, (request, job) in list(self._rows.items()):
            if job.done():
                del self._rows[row]
                try:
                    news += self._tokens(row, request, job.result())
                except EcologyError as error:
                    news.append(LostRow(row, error))
        return news

    def leave(self, rows: Sequence[RowId]) -> None:
        for row in rows:
            self._rows.pop(row, None)

    def _tokens(
        self, row: RowId, request: StreamedRequest, answers: Sequence[Answer]
    ) -> list[NewToken]:
        """Return the tokens of an answer, the last of them with all of its text."""
        host, answer = self._host, answers[-1]
        if request.weights is not None:
            host.place(0, request.weights)
        host.compare(answers)
        (scores,), (text,) = host.scores([answer]), host.codec.decode([answer.ids])
        cut = request.decoding.cut(text)
        end = "stop" if answer.ids[-1] in answer.question.ends or cut != text else "length"
        pairs = zip(answer.ids, scores.tolist(), strict=True)
        *tokens, last = [NewToken(row, token, score, "") for token, score in pairs]
        return [*tokens, replace(last, text=cut, end=end)]
