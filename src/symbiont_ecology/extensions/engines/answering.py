"""A host whose questions a server answers, while the kernel in it learns and scores.

The kernel has the same host and the same adapters, so it knows which log-probabilities an answer
must have. That tells an adapter that was not applied and another model from the right one, before
an answer is used.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from symbiont_ecology.extensions.engines.servers import LostError, Tokens, Vllm
from symbiont_ecology.extensions.serve.streaming import (
    LostRow,
    NewToken,
    RowId,
    ScoredToken,
    StreamedRequest,
)
from symbiont_ecology.model.decoding import Observer, completions_of
from symbiont_ecology.model.kernel import HostKernel, draws_of

PROBES = ("The weather today is", "12+7=", "Once upon a time there was", "1, 2, 3, 4,")
"""Prompts that tell which model a server serves."""
PROBE_TOKENS = 12
MIN_COUNTED = 4
"""A shorter answer is read as if it had so many tokens that agree: few tokens prove little."""
EXACT, NOISES = 1e-4, 4.0
"""Nats per token that two exact computations differ by, and the multiple of the noise of rounding
up to which log-probabilities are taken for equal."""

_ADVICE = "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"


class Adapters:
    """Adapters on a server. Servers keep caches by an adapter's name, so no name comes twice. May
    be used by several threads."""

    def __init__(self, server: Vllm, kernel: HostKernel) -> None:
        self._server, self._kernel, self._lock = server, kernel, Lock()
        self._folder = Path(server.adapters_folder).resolve()
        self._stem, self._numbers = f"symbiont-{token_hex(4)}", count()
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
        except LostError:  # a server was started again: a later question loads the adapter anew
            with self._lock:
                self.drop([ref])
            raise
        finally:
            self._in_use[ref] -= 1

    def drop(self, refs: Iterable[BlobRef] | None = None) -> None:
        """Unload adapters, or all of them, as far as the server answers."""
        server = replace(self._server, timeout=5.0)
        for ref in list(self._names if refs is None else refs):
            if name := self._names.pop(ref, ""):
                with suppress(HostError):
                    server.unload(name)
                shutil.rmtree(self._folder / name, ignore_errors=True)

    def _load(self, weights: AdapterWeights, ref: BlobRef) -> str:
        idle = [other for other in self._names if not self._in_use[other]]
        self.drop(idle[: max(0, len(self._names) + 1 - self._server.loaded)])
        name = f"{self._stem}-{next(self._numbers)}-{ref[:12]}"
        folder, kernel = self._folder / name, self._kernel
        write_portable(folder, weights, modules=kernel.modules, base_model=kernel.name_or_path)
        try:
            self._server.load(name, folder)
        except HostError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise HostError(
                f"{error}; it takes no adapter beside {len(self._names)} others: {_ADVICE}, lower "
                "host.engine.loaded and host.slots to what it holds, or let it read "
                "host.engine.adapters_folder"
            ) from error
        return name


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer to a slot, with the log-probabilities (nats) that the server reports."""

    slot: int
    request: StreamedRequest
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

    def __init__(self, kernel: HostKernel, server: Vllm, model: str) -> None:
        """Compare the served model with the kernel's.

        Raises:
            HostError: it is another model, or the server does not answer.
        """
        vars(self).update(vars(kernel))
        self.server, self._model, self._noise = server, model, EXACT
        self._adapters = Adapters(server, kernel)
        finalize(self, self._adapters.drop)
        self.pool = ThreadPoolExecutor(server.connections)
        asked = [StreamedRequest(ids, None, PROBE_TOKENS) for ids in self.encode(PROBES)]
        probes = [self.ask(HOST_SLOT, one) for one in asked]
        self._noise += max(map(Answer.distance, probes, self.checked(probes)))

    def ask(self, slot: int, request: StreamedRequest) -> Answer:
        """Return the answer of an adapter that stands in a slot of the kernel. May be called by
        several threads.

        Raises:
            EcologyError: there is none.
        """
        with self._adapters.held(request.weights) as name:
            model = name or self._model
            ends = sorted(self.codec.ends_of(request.decoding.stop))
            return Answer(slot, request, self.server.ask(request, model, ends, self.shape.vocab))

    def checked(self, answers: Sequence[Answer]) -> list[np.ndarray]:
        """Return the log-probabilities (nats) of answers, ``(tokens,)`` each, as the kernel reads
        them with its adapters.

        Raises:
            HostError: what the server reports is of other weights.
        """
        scores = self._scores(answers)
        for one, far in zip(answers, map(Answer.distance, answers, scores), strict=True):
            if far > NOISES * self._noise:
                bare = one.distance(*self._scores([replace(one, slot=HOST_SLOT)]))
                is_bare = one.slot != HOST_SLOT and bare < far / 2
                if is_bare or far > self.server.tolerance:
                    raise HostError(
                        f"expected answers of the adapter that was asked from {self.server.url}, "
                        f"got some of {'the bare host' if is_bare else 'other weights'} ({far:.2g} "
                        f"nats per token apart): {_ADVICE}, and serve the same model"
                    )
        return scores

    def _scores(self, answers: Sequence[Answer]) -> list[np.ndarray]:
        prompts = [one.request.prompt.tolist() for one in answers]
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
        prompts = self.encode([row.prompt for row in rows])
        requests = list[StreamedRequest]()
        for row, prompt, draw in zip(rows, prompts, draws, strict=True):
            weights = None if row.slot == HOST_SLOT else self.weights_of(row.slot)
            requests.append(StreamedRequest(prompt, weights, row.max_new_tokens, decoding, draw))
        answers = list(self.pool.map(self.ask, [row.slot for row in rows], requests))
        lengths = np.array([len(answer.ids) for answer in answers], dtype=np.int64)
        ids = np.zeros((len(answers), lengths.max(initial=0)), dtype=np.int64)
        scores = np.zeros(ids.shape, dtype=np.float32)
        for place, values in enumerate(self.checked(answers)):
            ids[place, : lengths[place]] = answers[place].ids
            scores[place, : lengths[place]] = values
        return completions_of(self.codec, decoding, prompts, ids, scores, lengths)


class ForwardedBatch:
    """Rows of a service that a server writes. A reply comes in one piece, once it is known that
    the right adapter answered. Not for several threads."""

    def __init__(self, host: ServedHost) -> None:
        self._host, self._ids = host, count(1)
        self._rows: dict[RowId, tuple[StreamedRequest, Future[Answer]]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def check(self, request: StreamedRequest) -> None:
        request.check(self._host.shape.max_positions)
        if request.schema:
            raise HostError(
                'response_format: expected {"type": "text"}, got another one: the engine of this '
                "run follows no form"
            )
        if request.alternatives:
            raise HostError(
                f"top_logprobs: expected 0, got {request.alternatives}: the engine of this run "
                "tells the log-probability of the chosen token alone"
            )
        if request.weights is not None:
            self._host.check(request.weights)

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        host, ids = self._host, list[RowId]()
        for one in requests[: host.server.connections - len(self._rows)]:
            ids.append(next(self._ids))
            slot = HOST_SLOT if one.weights is None else 0
            self._rows[ids[-1]] = one, host.pool.submit(host.ask, slot, one)
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

    def _tokens(self, row: RowId, request: StreamedRequest, answer: Answer) -> list[NewToken]:
        """Return the tokens of an answer, the last of them with all of its text."""
        host = self._host
        if request.weights is not None:
            host.place(0, request.weights)
        (scores,), (text,) = host.checked([answer]), host.codec.decode([answer.ids])
        cut = request.decoding.cut(text)
        ends = host.codec.ends_of(request.decoding.stop)
        end = "stop" if answer.ids[-1] in ends or cut != text else "length"
        tokens = list[NewToken]()
        for token, score in zip(answer.ids, scores.tolist(), strict=True):
            tokens.append(NewToken(row, token, score, ""))
            if request.alternatives is not None and token not in ends:
                spelled = host.codec.spell(token, is_first=len(tokens) == 1)
                tokens[-1] = replace(tokens[-1], scored=(ScoredToken(*spelled, score),))
        *tokens, last = tokens
        return [*tokens, replace(last, text=cut, end=end)]
