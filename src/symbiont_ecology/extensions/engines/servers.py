"""vLLM (Kwon et al. 2023, arXiv:2309.06180): where it is, how it is asked, and what is read of a
reply.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-loras 32 \\
        --max-cpu-loras 64 --max-lora-rank 8

Questions go as token ids, so that nobody else's tokenizer has a say. Fields as of vLLM 0.27.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, PositiveFloat

from symbiont_ecology.base.errors import ConfigError, HostError
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.model.engines import Engine, engines

if TYPE_CHECKING:
    from symbiont_ecology.extensions.engines.answering import ForwardedBatch, ServedHost
    from symbiont_ecology.extensions.serve.streaming import StreamedRequest
    from symbiont_ecology.model.kernel import HostKernel

PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Against what a model's ``generation_config.json`` would otherwise bring."""
T = TypeVar("T")
Tokens = list[tuple[int, float]]
"""Token ids with their log-probabilities (nats)."""


class LostError(HostError):
    """A server lacks what it was asked for."""


@engines.register("vllm")
@dataclass(frozen=True, kw_only=True)
class Vllm(Engine):
    """A vLLM server answers while the kernel learns. It must allow loading while it runs
    (VLLM_ALLOW_RUNTIME_LORA_UPDATING=True) and be started with --enable-lora.

    An adapter that answers is written into ``adapters_folder``, which the server can read, and
    loaded under a name that is never used again. A server beyond this machine needs a key.
    """

    adapters_folder: str  # where adapters are written for the server, which reads them there
    url: str = "http://127.0.0.1:8000"  # of the server
    served_model: str | None = None  # the host's name there; None is the first that it lists
    api_key_file: str | None = None  # file that holds the server's key
    loaded: Annotated[int, Field(ge=1)] = 64  # adapters that the server holds, host.slots or more
    connections: Annotated[int, Field(ge=1)] = 32  # questions on their way at a time
    timeout: PositiveFloat = 120.0  # seconds for one answer
    tolerance: PositiveFloat = 0.1  # nats per token by which server and kernel may differ

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"url: expected such as http://127.0.0.1:8000, got {self.url!r}")
        if parts.hostname not in ("localhost", "127.0.0.1", "::1") and self.api_key_file is None:
            raise ValueError(
                f"url: {parts.hostname} is beyond this machine, so expected api_key_file, got none"
            )

    def check(self, slots: int) -> None:
        if self.loaded < slots:
            raise ConfigError(
                f"host.engine.loaded: expected host.slots={slots} or more, got {self.loaded}: "
                "raise it, and the server's limit with it, or lower host.slots"
            )

    def reach(self) -> None:
        self.find_model()

    def host(self, load: Callable[[], HostKernel]) -> ServedHost:
        from symbiont_ecology.extensions.engines.answering import ServedHost

        model = self.find_model()
        return ServedHost(load(), self, model)

    def batch(self, kernel: HostKernel, slots: int) -> ForwardedBatch:
        from symbiont_ecology.extensions.engines.answering import ForwardedBatch

        return ForwardedBatch(self.host(lambda: kernel.with_own_slots(min(slots, self.loaded))))

    def find_model(self) -> str:
        """Return the name of the host on the server.

        Raises:
            HostError: there is none of that name.
        """
        listed = self._call("/v1/models", None, _models)
        model = self.served_model or next(iter(listed), "a model")
        if model not in listed:
            raise HostError(
                f"expected {self.url} to serve {model}, got {listed!r:.100}: set "
                "host.engine.served_model"
            )
        return model

    def load(self, name: str, folder: Path) -> None:
        """Load the adapter in a folder.

        Raises:
            HostError: the server refused it.
        """
        self._call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, str)

    def unload(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            HostError: the server refused it.
        """
        self._call("/v1/unload_lora_adapter", {"lora_name": name}, str)

    def ask(self, request: StreamedRequest, model: str, ends: Sequence[int], vocab: int) -> Tokens:
        """Return the answer of a model or an adapter, up to one of its ``ends``; all tokens are
        below ``vocab``.

        Raises:
            HostError: there is no answer, or no sound one.
        """
        limit, draw = request.max_new_tokens, request.generator
        if not limit:
            return []
        decoding = Decoding() if draw is None else request.decoding
        body = {
            **PLAIN,
            "model": model,
            "prompt": request.prompt.tolist(),
            "max_tokens": limit,
            "min_tokens": request.decoding.min_new_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "seed": None if draw is None else int(draw.integers(1 << 31)),
            "stop": list(request.decoding.stop),
            "stop_token_ids": list(ends),
            "logprobs": 1,
            "return_token_ids": True,
        }
        tokens = self._call("/v1/completions", body, _tokens)
        stops = (place for place, (one, _) in enumerate(tokens, 1) if one in ends)
        tokens = tokens[: next(stops, None)]
        is_sound = all(0 <= one < vocab and isfinite(score) for one, score in tokens)
        if not 0 < len(tokens) <= limit or not is_sound:
            raise HostError(
                f"expected 1 to {limit} tokens of the host with log-probabilities from {self.url}, "
                f"got {tokens!r:.60}: is it another version?"
            )
        return tokens

    def _call(self, path: str, body: object, read: Callable[[bytes], T]) -> T:
        """Return what is read of the reply to a call: POST with a body, GET without.

        No redirect is followed and no proxy asked, so that prompts and the key go to the server
        that was named and nowhere else.

        Raises:
            HostError: the server refused it, no reply came in time, or it cannot be read.
        """
        parts, headers = urlsplit(self.url), {"Content-Type": "application/json"}
        if self.api_key_file is not None:
            headers["Authorization"] = f"Bearer {Path(self.api_key_file).read_text().strip()}"
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        data = None if body is None else json.dumps(body, allow_nan=False)
        lost = False
        try:
            with closing(kind(parts.hostname or "", parts.port, timeout=self.timeout)) as line:
                method, place = "GET" if data is None else "POST", parts.path.rstrip("/") + path
                line.request(method, place, data, headers)
                response = line.getresponse()
                reply = response.read()
            if response.status == 200:
                return read(reply)
            lost = response.status == HTTPStatus.NOT_FOUND
            trouble = f"status {response.status}: {' '.join(str(reply[:200]).split())}"
        except (OSError, HTTPException) as error:
            trouble = f"none within {self.timeout:g} s ({error or type(error).__name__})"
        except (LookupError, TypeError, ValueError) as error:
            trouble = f"one that cannot be read ({error!r:.60})"
        raise (LostError if lost else HostError)(
            f"expected an answer from {self.url}{path}, got {trouble}: is it up, and the right one?"
        )


def _models(reply: bytes) -> list[str]:
    return [str(one["id"]) for one in json.loads(reply)["data"]]


def _tokens(reply: bytes) -> Tokens:
    (choice,) = json.loads(reply)["choices"]
    ids, scores = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    return [(int(one), float(score)) for one, score in zip(ids, scores, strict=True)]
