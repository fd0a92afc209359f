"""vLLM (Kwon et al. 2023, arXiv:2309.06180) and SGLang (Zheng et al. 2024, arXiv:2312.07104): where
they are, how they are asked, and what is read of a reply.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-loras 32 \\
        --max-cpu-loras 64 --max-lora-rank 8
    python -m sglang.launch_server --model-path MODEL --port 8000 --enable-lora \\
        --max-loras-per-batch 33 --max-loaded-loras 64 --max-lora-rank 8 --lora-target-modules all

Questions go as token ids, so that nobody else's tokenizer has a say. Fields as of vLLM 0.27 and
SGLang 0.5.18. SGLang honours seeds if it was started with ``--enable-deterministic-inference``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import isnan
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, PositiveFloat

from symbiont_ecology.base.errors import ConfigError, HostError
from symbiont_ecology.base.types import Decoding
from symbiont_ecology.model.engines import engines

if TYPE_CHECKING:
    from symbiont_ecology.extensions.engines.answering import ForwardedBatch, ServedHost
    from symbiont_ecology.model.kernel import HostKernel

BUSY = frozenset({429, 502, 503, 504})
LOST = frozenset({400, 404})
"""Status codes of a server that may answer later, and of one that lacks an adapter."""
PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Against what a model's ``generation_config.json`` would otherwise bring."""
T = TypeVar("T")
Tokens = list[tuple[int, float]]
"""Token ids with their log-probabilities (nats)."""


class LostError(HostError):
    """A server lacks what it was asked for."""


@dataclass(frozen=True)
class Question:
    """A prompt as token ids; without a seed the answer is greedy."""

    prompt: Sequence[int]
    limit: int  # new tokens, >= 1
    decoding: Decoding
    ends: tuple[int, ...]  # token ids that end an answer
    seed: int | None = None

    @property
    def sampling(self) -> dict[str, object]:
        """Knobs that both servers call alike."""
        decoding = Decoding() if self.seed is None else self.decoding
        knobs = {"temperature": decoding.temperature, "top_p": decoding.top_p}
        ends = {"stop": list(self.decoding.stop), "stop_token_ids": list(self.ends)}
        return {**PLAIN, **knobs, **ends}


@dataclass(frozen=True, kw_only=True)
class Server(ABC):
    """A server that answers while the kernel learns.

    An adapter that answers is written into ``adapters_folder``, which the server can read, and
    loaded under a name that is never used again. A server beyond this machine needs a key.
    """

    adapters_folder: str  # where adapters are written for the server, which reads them there
    url: str = "http://127.0.0.1:8000"  # of the server
    served_model: str | None = None  # the host's name there; None is the only one it has
    api_key_file: str | None = None  # file that holds the server's key
    loaded: Annotated[int, Field(ge=1)] = 64  # adapters that the server holds, host.slots or more
    connections: Annotated[int, Field(ge=1)] = 32  # questions on their way at a time
    timeout: PositiveFloat = 120.0  # seconds for one answer
    patience: PositiveFloat = 60.0  # seconds to wait for a server that is full, busy or away
    tolerance: PositiveFloat = 0.1  # nats per token by which server and kernel may differ

    adapters_path: ClassVar[str] = ""
    """In front of ``/load_lora_adapter``."""
    load_advice: ClassVar[str] = ""
    """Remedy for a server that loads no adapter."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"url: expected such as http://127.0.0.1:8000, got {self.url!r}")
        if parts.hostname not in ("localhost", "127.0.0.1", "::1") and self.api_key_file is None:
            raise ValueError(
                f"url: {parts.hostname} is beyond this machine, so expected api_key_file, got none"
            )

    @abstractmethod
    def body(self, question: Question, model: str, adapter: str | None) -> tuple[str, object]:
        """Return path and body of a question to an adapter, or to the bare host."""

    @abstractmethod
    def tokens(self, reply: Any) -> Tokens:
        """Return the tokens of a reply."""

    @abstractmethod
    def reports_own(self, question: Question) -> bool:
        """Return whether it reports the model's own log-probabilities, and not those of what is
        left after temperature and truncation."""

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

        return ForwardedBatch(self.host(lambda: kernel.beside(min(slots, self.loaded))))

    def find_model(self) -> str:
        """Return the name of the host on the server.

        Raises:
            HostError: there is none of that name, or several to choose from.
        """
        listed = self._read("/v1/models", None, lambda reply: list(map(dict, reply["data"])))
        hosts = [one["id"] for one in listed if one.get("parent") is None]
        model = self.served_model or (hosts[0] if len(hosts) == 1 else None)
        if model not in hosts:
            raise HostError(
                f"expected {self.url} to serve {self.served_model or 'one model'}, got "
                f"{', '.join(hosts) or 'none'}: set host.engine.served_model, or start it with "
                "another model"
            )
        return str(model)

    def ask(self, question: Question, model: str, adapter: str | None) -> Tokens:
        """Return an answer up to its end.

        Raises:
            HostError: there is no answer, or no sound one.
        """
        if not question.limit:
            return []
        tokens = self._read(*self.body(question, model, adapter), self.tokens)
        ends = (place for place, (one, _) in enumerate(tokens, 1) if one in question.ends)
        tokens = tokens[: next(ends, None)]
        if not 0 < len(tokens) <= question.limit or any(isnan(score) for _, score in tokens):
            raise HostError(
                f"expected an answer of 1 to {question.limit} tokens with their log-probabilities "
                f"from {self.url}, got {tokens!r:.60}: is it another version?"
            )
        return tokens

    def call(self, path: str, body: object = None) -> bytes:
        """Return the reply to a call: POST with a body, GET without. One that finds the server
        full, busy or away is repeated.

        Raises:
            HostError: the server refused it, or no reply came in time.
        """
        deadline, pause = monotonic() + self.patience, 0.05
        while True:
            try:
                status, reply = self._once(path, body)
                trouble = f"status {status}: {_short(reply)}"
            except TimeoutError:
                status, trouble = 0, f"none within {self.timeout:g} s: raise host.engine.timeout"
            except (OSError, HTTPException) as error:
                status, trouble = 503, f"none ({error or type(error).__name__}): start it"
            if status == 200:
                return reply
            if status not in BUSY or monotonic() + pause > deadline:
                kind = LostError if status in LOST else HostError
                raise kind(f"expected an answer from {self.url}{path}, got {trouble}")
            sleep(pause)
            pause = min(2 * pause, 2.0)

    def _read(self, path: str, body: object, read: Callable[[Any], T]) -> T:
        """Return what is read of a reply of JSON."""
        reply = self.call(path, body)
        try:
            return read(json.loads(reply))
        except (ValueError, TypeError, LookupError) as error:
            raise HostError(
                f"expected a reply that can be read from {self.url}{path}, got {_short(reply)!r}: "
                "is it another kind of server, or a proxy in front of it?"
            ) from error

    def _once(self, path: str, body: object) -> tuple[int, bytes]:
        """Return status and reply of one try. No redirect is followed and no proxy asked, so that
        prompts and the key go to the server that was named and nowhere else."""
        parts, headers = urlsplit(self.url), {"Content-Type": "application/json"}
        if self.api_key_file is not None:
            headers["Authorization"] = f"Bearer {Path(self.api_key_file).read_text().strip()}"
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        with closing(kind(parts.hostname or "", parts.port, timeout=self.timeout)) as connection:
            data = None if body is None else json.dumps(body, allow_nan=False)
            place = parts.path.rstrip("/") + path
            connection.request("GET" if data is None else "POST", place, data, headers)
            response = connection.getresponse()
            return response.status, response.read()


@engines.register("vllm")
@dataclass(frozen=True, kw_only=True)
class Vllm(Server):
    """A vLLM server answers. It must allow loading while it runs
    (VLLM_ALLOW_RUNTIME_LORA_UPDATING=True) and be started with --enable-lora."""

    adapters_path: ClassVar[str] = "/v1"
    load_advice: ClassVar[str] = (
        "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
    )

    def body(self, question: Question, model: str, adapter: str | None) -> tuple[str, object]:
        return "/v1/completions", {
            "model": adapter or model,
            "prompt": list(question.prompt),
            "max_tokens": question.limit,
            "min_tokens": question.decoding.min_new_tokens,
            "seed": question.seed,
            "logprobs": 1,
            "return_token_ids": True,
            **question.sampling,
        }

    def tokens(self, reply: Any) -> Tokens:
        (choice,) = reply["choices"]
        ids, scores = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        return [(int(one), float(score)) for one, score in zip(ids, scores, strict=True)]

    def reports_own(self, question: Question) -> bool:
        return True  # raw, unless --logprobs-mode says otherwise


@engines.register("sglang")
@dataclass(frozen=True, kw_only=True)
class Sglang(Server):
    """An SGLang server answers. It must be started with --enable-lora, --max-lora-rank and
    --lora-target-modules. It is asked by its native call, which takes adapters in every version."""

    load_advice: ClassVar[str] = (
        "start SGLang with --enable-lora, --max-lora-rank and --lora-target-modules"
    )

    def body(self, question: Question, model: str, adapter: str | None) -> tuple[str, object]:
        sampling = {
            "max_new_tokens": question.limit,
            "min_new_tokens": question.decoding.min_new_tokens,
            **question.sampling,
        }
        if question.seed is not None:
            sampling["sampling_seed"] = question.seed
        return "/generate", {
            "input_ids": list(question.prompt),
            "sampling_params": sampling,
            "return_logprob": True,
            "logprob_start_len": -1,
            "lora_path": adapter,
        }

    def tokens(self, reply: Any) -> Tokens:
        found = reply["meta_info"]["output_token_logprobs"]
        return [(int(token), float(score)) for score, token, _ in found]

    def reports_own(self, question: Question) -> bool:
        decoding = question.decoding
        is_plain = decoding.temperature in (0.0, 1.0) and decoding.top_p == 1.0
        return question.seed is None or (is_plain and not decoding.min_new_tokens)


def _short(reply: bytes) -> str:
    """Return the beginning of a reply, in one line."""
    return " ".join(reply[:200].decode("utf-8", "replace").split())
