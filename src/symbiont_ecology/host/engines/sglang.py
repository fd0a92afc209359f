"""SGLang (Zheng et al. 2024, arXiv:2312.07104): its native ``/generate`` with token ids.

    python -m sglang.launch_server --model-path MODEL --port 8000 --enable-lora \\
        --max-loras-per-batch 33 --max-loaded-loras 64 --max-lora-rank 8 --lora-target-modules all

The native call takes an adapter by ``lora_path`` in every version; the OpenAI-like one ignored
adapters in some. Fields as of SGLang 0.5.18. A seed is honoured by a server that was started with
``--enable-deterministic-inference``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, FiniteFloat, NonNegativeInt

from symbiont_ecology.host.engines import engines
from symbiont_ecology.host.engines.endpoint import Endpoint
from symbiont_ecology.host.engines.server import MOST_TOGETHER, Answered, AnsweringServer, Asked
from symbiont_ecology.types import Decoding


class SglangReply(BaseModel):
    """The parts of a reply that are read."""

    class Meta(BaseModel):
        """What is known of its tokens."""

        output_token_logprobs: list[tuple[FiniteFloat, NonNegativeInt, str | None]]

    meta_info: Meta


@engines.register("sglang")
@dataclass(frozen=True, kw_only=True)
class Sglang(AnsweringServer):
    """An SGLang server answers. It must be started with --enable-lora, --max-lora-rank and
    --lora-target-modules."""

    load_advice: ClassVar[str] = (
        "start SGLang with --enable-lora, --max-lora-rank and --lora-target-modules"
    )

    def body(self, asked: Asked, model: str, adapter: str | None) -> tuple[str, dict[str, object]]:
        """A native call; without an adapter, null."""
        decoding = asked.decoding
        sampling = {
            "temperature": asked.temperature,
            "top_p": decoding.top_p if asked.seed is not None else 1.0,
            "max_new_tokens": asked.limit,
            "min_new_tokens": decoding.min_new_tokens,
            "stop": list(decoding.stop),
            "stop_token_ids": list(asked.ends),
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        if asked.seed is not None:
            sampling["sampling_seed"] = asked.seed
        return "/generate", {
            "input_ids": list(asked.prompt),
            "sampling_params": sampling,
            "return_logprob": True,
            "logprob_start_len": -1,
            "lora_path": adapter,
        }

    def ask(self, endpoint: Endpoint, asked: Asked, model: str, adapter: str | None) -> Answered:
        """The tokens of one prompt, its end included."""
        reply = endpoint.ask(SglangReply, *self.body(asked, model, adapter))
        tokens = reply.meta_info.output_token_logprobs
        return Answered(tuple(token for _, token, _ in tokens), tuple(s for s, _, _ in tokens))

    def reports_own(self, decoding: Decoding) -> bool:
        """Only where nothing changes the distribution: it reports what it sampled from."""
        is_plain = decoding.temperature in (0.0, 1.0) and decoding.top_p == 1.0
        return is_plain and not decoding.min_new_tokens

    @classmethod
    def start(
        cls, model: str, adapters: Mapping[str, Path], rank: int, endings: Sequence[str]
    ) -> list[str]:
        """``sglang.launch_server``; the bare host takes a place in a batch, too."""
        places = min(len(adapters), MOST_TOGETHER) + 1
        return [
            *("python", "-m", "sglang.launch_server", "--model-path", model),
            *("--host", "127.0.0.1", "--port", "8000", "--enable-lora"),
            *("--max-lora-rank", str(rank), "--max-loras-per-batch", str(places)),
            *("--max-loaded-loras", str(max(len(adapters), places))),
            *("--lora-target-modules", *endings),
            *("--lora-paths", *(f"{name}={folder}" for name, folder in adapters.items())),
        ]

    @classmethod
    def example(cls, adapter: str, prompt: str, limit: int) -> tuple[str, dict[str, object]]:
        """A greedy answer."""
        sampling = {"max_new_tokens": limit, "temperature": 0}
        return "/generate", {"text": prompt, "sampling_params": sampling, "lora_path": adapter}
