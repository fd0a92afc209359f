"""One population on our kernel, and the same one on PEFT, from text to text."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F

from symbiont_ecology.adapters.adapter import BETA_FIRST, AdapterWeights, OptimizerState
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.model.backend.torch_backend import TorchBackend
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.model.locating import EMBEDDED_FOLDER
from symbiont_ecology.model.packing import Text, chunks, pack_texts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hosts import make_host

RANK = 8
PROMPT_TOKENS = (40, 56)
NEW_TOKENS = 16
LETTERS = list("abcdefghijklmnopqrstuvwxyz 0123456789")
SHAPES: dict[str, dict[str, Any]] = {
    "small": {
        "hidden_size": 384,
        "layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 1024,
        "vocab_size": 4096,
    },
    "Qwen3-0.6B shape": {
        "hidden_size": 1024,
        "layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "max_position_embeddings": 4096,
        "initializer_range": 0.02,
    },
    "tiny": {},  # of about the embedded host's shape
}
"""Random hosts by name, made when they are needed; ``embedded`` is the one that ships."""


def host_folder(name: str, workplace: Path) -> Path:
    """Return the folder of a host, made in ``workplace`` unless it ships with the package."""
    if name == "embedded":
        return (
            EMBEDDED_FOLDER if EMBEDDED_FOLDER.is_dir() else make_host(workplace / name, layers=5)
        )
    folder = workplace / name.replace(" ", "-")
    return folder if folder.is_dir() else make_host(folder, **SHAPES[name])


def sentences(lengths: Sequence[int], generator: np.random.Generator) -> list[str]:
    """Return random prompts of so many tokens, beginning token included, for a host of letters."""
    return ["".join(generator.choice(LETTERS, size=length - 1)) for length in lengths]


class Population:
    """Adapters in the slots of our kernel, and rows for them.

    ``rows_each`` are the rows of every slot (a number, or one for each), ``lengths`` the prompts'
    tokens (first and last of a range to draw from, or one for each row), ``ranks`` the adapters' (a
    number, or one for each), ``new_tokens`` the length of every answer. ``options`` go to
    ``HostKernel.from_pretrained``.
    """

    def __init__(
        self,
        folder: Path,
        organelles: int,
        rows_each: int | Sequence[int],
        lengths: tuple[int, int] | Sequence[int] = PROMPT_TOKENS,
        ranks: int | Sequence[int] = RANK,
        new_tokens: int = NEW_TOKENS,
        **options: Any,
    ) -> None:
        generator = np.random.default_rng(0)
        self.folder = folder
        self.organelles = organelles
        self.new_tokens = new_tokens
        ranks = [ranks] * organelles if isinstance(ranks, int) else ranks
        self.kernel = HostKernel.from_pretrained(
            folder, slots=organelles, rank=max(ranks), **options
        )
        self.adapters = [
            AdapterWeights.random(self.kernel.layout, rank, 2.0, generator, b_std=0.05)
            for rank in ranks
        ]
        for slot, weights in enumerate(self.adapters):
            self.kernel.place(slot, weights)
        counts = [rows_each] * organelles if isinstance(rows_each, int) else rows_each
        self.slots = [slot for slot, count in enumerate(counts) for _ in range(count)]
        if isinstance(lengths, tuple):
            lengths = generator.integers(lengths[0], lengths[1] + 1, size=len(self.slots)).tolist()
        self.prompts = sentences(lengths, generator)

    def rows_of(self, slot: int) -> list[int]:
        """Return the numbers of a slot's rows."""
        return [row for row, owner in enumerate(self.slots) if owner == slot]

    def ours(self, limits: Sequence[int] = ()) -> Completions:
        """Answer all slots in one batch; each answer is as long as its limit, or ``new_tokens``."""
        return self._rollout(self.slots, limits)

    def bare(self, limits: Sequence[int] = ()) -> Completions:
        """Answer the same rows in the same loop, without any adapter: the limit."""
        return self._rollout([HOST_SLOT] * len(self.slots), limits)

    def learn(self) -> None:
        """Take an Adam step for every organelle, on its prompts after their first eight letters."""
        slots = range(self.organelles)
        batch = LearningBatch(self._lessons, dict.fromkeys(slots, 1e-3))
        self.kernel.learn(
            batch, dict(enumerate(self.adapters)), dict.fromkeys(slots, OptimizerState())
        )

    def gradient(self, slot: int) -> np.ndarray:
        """Return the gradient of a slot's loss: its first moment after an unclipped step."""
        lessons = tuple(lesson for lesson in self._lessons if lesson.slot == slot)
        batch = LearningBatch(lessons, {slot: 0.0}, clip=1e9)
        _, optimizer_state, _ = self.kernel.learn(
            batch, {slot: self.adapters[slot]}, {slot: OptimizerState()}
        )
        first = optimizer_state[slot].first
        assert first is not None
        return first / (1 - BETA_FIRST)

    def log_probabilities(self, slot: int) -> np.ndarray:
        """Return those of every token of a slot's prompts after the first letter."""
        prompts = [self.prompts[row] for row in self.rows_of(slot)]
        starts = [prompt[:1] for prompt in prompts]
        rest = [prompt[1:] for prompt in prompts]
        return torch.cat(self.kernel.score(starts, rest, slot)).cpu().numpy()

    def bare_learn(self) -> None:
        """Go forward and back to the embeddings through the decoder without adapters: the limit."""
        decoder = self.kernel._decoder
        no_adapters = (None,) * len(decoder.sites)
        prompts = self.kernel.encode([lesson.prompt for lesson in self._lessons])
        answers = [np.array(lesson.completion, dtype=np.int64) for lesson in self._lessons]
        texts = [Text(prompt, answer[:-1]) for prompt, answer in zip(prompts, answers, strict=True)]
        for piece in chunks(texts, self.slots, self.kernel._budget.learning_tokens):
            packing = pack_texts(
                [texts[row] for row in piece], [self.slots[row] for row in piece], decoder.device
            )
            targets = torch.from_numpy(np.concatenate([answers[row] for row in piece])).to(
                decoder.device
            )
            with torch.enable_grad():
                F.cross_entropy(decoder.logits(packing, no_adapters).float(), targets).backward()  # type: ignore[no-untyped-call]

    def bare_learn_by_torch(self) -> None:
        """Do the same where torch computes what lies between the large products."""
        with patch.object(self.kernel._decoder, "_learning", TorchBackend()):
            self.bare_learn()

    @cached_property
    def _lessons(self) -> tuple[Lesson, ...]:
        answers = [prompt[8:] for prompt in self.prompts]
        ids = self.kernel.codec.tokenizer(answers, add_special_tokens=False)["input_ids"]
        return tuple(
            Lesson(prompt[:8], tuple(answer), slot)
            for prompt, answer, slot in zip(self.prompts, ids, self.slots, strict=True)
        )

    def _rollout(self, slots: Sequence[int], limits: Sequence[int]) -> Completions:
        lengths = limits or [self.new_tokens] * len(slots)
        rows = [Request(*row) for row in zip(self.prompts, slots, lengths, strict=True)]
        return self.kernel.rollout(rows, None, Decoding(min_new_tokens=max(lengths)))


class PeftPopulation:
    """The same adapters in one PEFT model, all of them loaded.

    Sequential sides are run on ``asked`` adapters, spread evenly, and scaled to all of them. Where
    loading takes longer than ``seconds``, it stops at the ``loaded`` first ones.
    """

    def __init__(
        self,
        population: Population,
        workplace: Path,
        asked: int,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        seconds: float = float("inf"),
    ) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.population = population
        self.device = device
        self.folders = [workplace / f"adapter-{slot}" for slot in range(population.organelles)]
        for slot, folder in enumerate(self.folders):
            population.kernel.export(slot, folder)
        model = AutoModelForCausalLM.from_pretrained(population.folder, dtype=getattr(torch, dtype))
        self.tokenizer = AutoTokenizer.from_pretrained(population.folder, padding_side="left")
        # Adapters in the host's precision: PEFT's default, float32, would only slow it down.
        options = {
            "autocast_adapter_dtype": False,
            "torch_device": device,
            "low_cpu_mem_usage": True,
        }
        start = time.monotonic()
        self.model: Any = PeftModel.from_pretrained(
            model.to(device), self.folders[0], adapter_name="0", **options
        )
        self.loaded = 1
        while self.loaded < population.organelles and time.monotonic() - start < seconds:
            self.model.load_adapter(
                self.folders[self.loaded], adapter_name=str(self.loaded), **options
            )
            self.loaded += 1
        self.asked = spread(self.loaded, asked)
        self.model.eval()
        self._optimisers: dict[int, torch.optim.AdamW] = {}

    @property
    def scale(self) -> float:
        """Number of adapters for each one that sequential sides are run on."""
        return self.population.organelles / len(self.asked)

    def one_by_one(self) -> list[Answer]:
        """Answer every prompt alone, under its adapter."""
        answers: list[Answer] = []
        for slot in self.asked:
            self.model.set_adapter(str(slot))
            for prompt in self._prompts_of(slot):
                answers += self._generate([prompt])
        return answers

    def batched(self) -> list[Answer]:
        """Answer each adapter's prompts as one batch, adapter after adapter."""
        answers: list[Answer] = []
        for slot in self.asked:
            self.model.set_adapter(str(slot))
            answers += self._generate(self._prompts_of(slot))
        return answers

    def mixed(self) -> list[Answer]:
        """Answer all rows in one batch with PEFT's ``adapter_names``."""
        names = [str(slot) for slot in self.population.slots]
        return self._generate(self.population.prompts, adapter_names=names)

    def learn(self) -> None:
        """Take the population's step, adapter after adapter; rate 0, so that it can be repeated."""
        for slot in self.asked:
            self.model.set_adapter(str(slot))
            optimiser = self._optimiser(slot)
            self._loss(slot).backward()
            torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
            optimiser.step()
            optimiser.zero_grad()

    def load_and_delete(self) -> None:
        """Load one more adapter from a file, and delete it."""
        self.model.load_adapter(self.folders[0], adapter_name="visitor", torch_device=self.device)
        self.model.delete_adapter("visitor")

    def gradient(self, slot: int) -> np.ndarray:
        """Return the gradient of a slot's loss, laid out as its adapter's vector."""
        self.model.set_adapter(str(slot))
        self._loss(slot).backward()
        factors: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for name, module in self.model.get_base_model().named_modules():
            if hasattr(module, "lora_A"):
                a, b = (part[str(slot)].weight.grad for part in (module.lora_A, module.lora_B))
                factors[name] = a.float().cpu().numpy(), b.float().cpu().numpy()
        self.model.zero_grad()
        layout = self.population.kernel.layout
        return AdapterWeights.from_factors(
            layout, self.population.adapters[slot].rank, 1.0, factors
        ).vector

    def log_probabilities(self, slot: int) -> np.ndarray:
        """Return those of a slot's prompts after the first letter, each prompt read alone."""
        self.model.set_adapter(str(slot))
        pieces = []
        for prompt in self._prompts_of(slot):
            batch = self._tokens([prompt])
            with torch.inference_mode():
                logits = self.model(**batch).logits[0, 1:-1].float()
            pieces.append(-F.cross_entropy(logits, batch["input_ids"][0, 2:], reduction="none"))
        return torch.cat(pieces).cpu().numpy()

    def agreement(self, ours: Completions, theirs: Sequence[Answer]) -> float:
        """Return the share of the asked adapters' rows on which two sides wrote the same tokens."""
        rows = [row for slot in self.asked for row in self.population.rows_of(slot)]
        matches = [
            ours[row].token_ids == answer.tokens for row, answer in zip(rows, theirs, strict=True)
        ]
        return float(np.mean(matches))

    def _loss(self, slot: int) -> Any:
        batch = self._tokens(self._prompts_of(slot), padding_side="right")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        labels[:, :9] = -100  # the beginning token and eight letters
        return self.model(**batch, labels=labels, use_cache=False).loss

    def _optimiser(self, slot: int) -> torch.optim.AdamW:
        """The slot's own optimiser, in torch's fastest form."""
        if slot not in self._optimisers:
            parameters = [weight for weight in self.model.parameters() if weight.requires_grad]
            self._optimisers[slot] = torch.optim.AdamW(
                parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True
            )
        return self._optimisers[slot]

    def _prompts_of(self, slot: int) -> list[str]:
        return [self.population.prompts[row] for row in self.population.rows_of(slot)]

    def _tokens(self, prompts: list[str], **options: Any) -> Any:
        return self.tokenizer(prompts, return_tensors="pt", padding=True, **options).to(self.device)

    def _generate(self, prompts: list[str], **extra: Any) -> list[Answer]:
        return generate(
            self.model, self.tokenizer, self._tokens(prompts), self.population.new_tokens, **extra
        )


@dataclass(frozen=True)
class Answer:
    """Text and tokens that answer one prompt; random hosts write tokens without letters."""

    text: str
    tokens: tuple[int, ...]


def generate(model: Any, tokenizer: Any, batch: Any, new_tokens: int, **extra: Any) -> list[Answer]:
    """Return greedy answers of exactly ``new_tokens`` by transformers' own ``generate``."""
    with torch.inference_mode():
        ids = model.generate(
            **batch,
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
            **extra,
        )
    new = ids[:, batch["input_ids"].shape[1] :].tolist()
    texts = tokenizer.batch_decode(new, skip_special_tokens=True)
    return [Answer(text, tuple(tokens)) for text, tokens in zip(texts, new, strict=True)]


def spread(count: int, wanted: int) -> list[int]:
    """Return so many of the numbers below ``count``, evenly apart."""
    return sorted({int(place) for place in np.linspace(0, count - 1, min(count, wanted))})


def ends(rows: int, generator: np.random.Generator, mean: int = 12, most: int = 48) -> list[int]:
    """Draw lengths of answers: geometric, a few at the limit, moved until their mean is exact."""
    lengths = generator.geometric(1 / mean, rows).clip(1, most)
    lengths[: max(1, rows // 32)] = most
    while excess := int(lengths.sum()) - mean * rows:
        movable = np.flatnonzero((lengths > 1) & (lengths < most))
        lengths[generator.choice(movable)] += -1 if excess > 0 else 1
    return [int(length) for length in generator.permutation(lengths)]
