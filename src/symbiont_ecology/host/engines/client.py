"""A server as the kernel sees it: asked by token ids, and believed only what has the right form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from symbiont_ecology.errors import EcologyError, HostError
from symbiont_ecology.host.engines.endpoint import Endpoint, RefusedError
from symbiont_ecology.host.engines.server import Answered, AnsweringServer, Asked
from symbiont_ecology.host.engines.witness import EXACT, WrongAdapterError
from symbiont_ecology.types import Decoding
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.portable import write_portable

if TYPE_CHECKING:
    from pathlib import Path

    from symbiont_ecology.host.kernel import HostKernel

PROBES = ("The weather today is", "12+7=", "Once upon a time there was", "1, 2, 3, 4,")
"""What a server is asked to find out what it serves."""
PROBE_TOKENS = 12
LOST = (400, 404)
"""Status codes of a question to an adapter that a server does not have."""


@dataclass(frozen=True)
class ServerClient:
    """Asks the ``model`` of a server. May be used by several threads."""

    kernel: HostKernel
    server: AnsweringServer
    endpoint: Endpoint
    model: str

    def question(
        self,
        prompt: np.ndarray,
        limit: int,
        decoding: Decoding,
        generator: np.random.Generator | None,
    ) -> Asked:
        """A question of token ids; greedy without a generator, else with a seed that it draws."""
        seed = None if generator is None else int(generator.integers(1 << 31))
        return Asked(prompt.tolist(), limit, decoding, self.kernel.codec.end_tokens, seed)

    def probes(self) -> list[Asked]:
        """What tells an adapter from others: some greedy questions."""
        prompts = self.kernel.encode(PROBES)
        return [self.question(prompt, PROBE_TOKENS, Decoding(), None) for prompt in prompts]

    def publish(self, folder: Path, weights: AdapterWeights) -> None:
        """Writes an adapter for the server."""
        kernel = self.kernel
        write_portable(folder, weights, modules=kernel.modules, base_model=kernel.name_or_path)

    def ask(self, question: Asked, adapter: str | None) -> Answered:
        """The answer up to its end.

        Raises:
            HostError: there is none, it has no end, or it is no answer at all.
        """
        if not question.limit:
            return Answered((), ())
        answer = self.server.ask(self.endpoint, question, self.model, adapter)
        ids, scores = answer.ids, answer.log_probabilities
        stop = next((place for place, token in enumerate(ids, 1) if token in question.ends), None)
        ids, scores = ids[:stop], scores[:stop]
        is_sound = 0 < len(ids) <= question.limit and len(ids) == len(scores)
        is_sound = is_sound and max(ids) < self.kernel.shape.vocab and max(scores) < EXACT
        if is_sound and stop is None and len(ids) < question.limit:
            text = self.kernel.codec.decode([ids])[0]
            is_sound = question.decoding.cut(text) != text
        if not is_sound:
            raise HostError(
                f"expected an answer of 1 to {question.limit} tokens with their log-probabilities "
                f"from {self.endpoint.url}, up to its end, got {len(ids)} tokens and "
                f"{len(scores)} log-probabilities: is --max-model-len too small, or the server of "
                "a version that reports them otherwise?"
            )
        return Answered(ids, scores)


def as_probe(question: Asked) -> Asked:
    """The same question, asked as a probe."""
    return replace(question, limit=PROBE_TOKENS, decoding=Decoding(), seed=None)


def is_lost(error: EcologyError) -> bool:
    """Whether a server may answer rightly once it gets an adapter again, under a new name."""
    if isinstance(error, RefusedError):
        return error.status in LOST
    return isinstance(error, WrongAdapterError)
