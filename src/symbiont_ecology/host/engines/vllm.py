"""vLLM (Kwon et al. 2023, arXiv:2309.06180): its OpenAI-like completions with token ids.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-loras 32 \\
        --max-cpu-loras 64 --max-lora-rank 8

Fields as of vLLM 0.27 (``return_token_ids`` is there since 0.10.2).
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

LEGAL_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What ``--max-lora-rank`` may be."""


class VllmReply(BaseModel):
    """The parts of a completion that are read."""

    class Choice(BaseModel):
        """One answer."""

        class Scores(BaseModel):
            """What is known of its tokens."""

            token_logprobs: list[FiniteFloat]

        token_ids: list[NonNegativeInt]
        logprobs: Scores

    choices: list[Choice]


@engines.register("vllm")
@dataclass(frozen=True, kw_only=True)
class Vllm(AnsweringServer):
    """A vLLM server answers. It must allow loading while it runs
    (VLLM_ALLOW_RUNTIME_LORA_UPDATING=True) and be started with --enable-lora."""

    adapters_path: ClassVar[str] = "/v1"
    load_advice: ClassVar[str] = (
        "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
    )

    def body(self, asked: Asked, model: str, adapter: str | None) -> tuple[str, dict[str, object]]:
        """A completion; the adapter is the model."""
        decoding = asked.decoding
        return "/v1/completions", {
            "model": adapter or model,
            "prompt": list(asked.prompt),
            "max_tokens": asked.limit,
            "min_tokens": decoding.min_new_tokens,
            "temperature": asked.temperature,
            "top_p": decoding.top_p if asked.seed is not None else 1.0,
            "seed": asked.seed,
            "stop": list(decoding.stop),
            "stop_token_ids": list(asked.ends),
            "logprobs": 1,
            "return_token_ids": True,
            # What a model's generation_config.json would otherwise bring.
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }

    def ask(self, endpoint: Endpoint, asked: Asked, model: str, adapter: str | None) -> Answered:
        """The first choice."""
        reply = endpoint.ask(VllmReply, *self.body(asked, model, adapter))
        ids, scores = [], []
        for choice in reply.choices[:1]:
            ids, scores = choice.token_ids, choice.logprobs.token_logprobs
        return Answered(tuple(ids), tuple(scores))

    def reports_own(self, decoding: Decoding) -> bool:
        """Always: its log-probabilities are raw unless --logprobs-mode says otherwise."""
        return True

    @classmethod
    def start(
        cls, model: str, adapters: Mapping[str, Path], rank: int, endings: Sequence[str]
    ) -> list[str]:
        """``vllm serve``; ranks that it does not know are rounded up."""
        legal = next((size for size in LEGAL_RANKS if size >= rank), rank)
        return [
            *("vllm", "serve", model, "--host", "127.0.0.1", "--port", "8000", "--enable-lora"),
            *("--max-lora-rank", str(legal), "--max-loras", str(min(len(adapters), MOST_TOGETHER))),
            *("--max-cpu-loras", str(len(adapters))),
            *("--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items())),
        ]

    @classmethod
    def example(cls, adapter: str, prompt: str, limit: int) -> tuple[str, dict[str, object]]:
        """A greedy completion."""
        body = {"model": adapter, "prompt": prompt, "max_tokens": limit, "temperature": 0}
        return "/v1/completions", body
