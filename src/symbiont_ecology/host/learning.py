"""Scoring given answers, and one Adam step for every slot at once.

Slots share one forward and one backward pass; their losses are summed, and since no parameter belongs to
two slots, every gradient is the one that the slot would have had alone. Adam: arXiv:1412.6980, decoupled
decay left at zero (arXiv:1711.05101). Weights come and go as values: nothing here reads the slot bank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, Arrangement, Site, SlotBank
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.packing import Text, chunks, pack
from symbiont_ecology.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights, Memory

BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8
FORWARD_TOKENS = 2048
"""Tokens per forward: twice as many were no faster, and activations grow with it."""


def token_log_probabilities(
    decoder: Decoder,
    texts: Sequence[Text],
    completions: Sequence[np.ndarray],
    owners: Sequence[int],
    adapters: Callable[[Sequence[int]], Adapters],
) -> Tensor:
    """Log-probability (nats) of every completion token, ``(tokens,)``, row after row."""
    packing = pack(texts, owners, decoder.device)
    targets = torch.from_numpy(np.concatenate(completions)).to(decoder.device)
    logits = decoder.logits(packing, adapters(packing.owners))
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def score(
    decoder: Decoder,
    bank: SlotBank,
    prompts: Sequence[np.ndarray],
    completions: Sequence[np.ndarray],
    slots: Sequence[int],
    max_batch_tokens: int,
) -> list[Tensor]:
    """Log-probabilities of each completion's tokens, one tensor per row."""
    found = [torch.zeros(0, device=decoder.device) for _ in prompts]
    wanted = [row for row, completion in enumerate(completions) if len(completion)]
    texts = [Text(prompts[row], completions[row][:-1]) for row in wanted]
    owners = [slots[row] for row in wanted]
    with torch.no_grad():
        for piece in chunks(texts, owners, min(max_batch_tokens, FORWARD_TOKENS)):
            rows = [wanted[index] for index in piece]
            values = token_log_probabilities(
                decoder,
                [texts[index] for index in piece],
                [completions[row] for row in rows],
                [slots[row] for row in rows],
                bank.gather,
            )
            for row, one in zip(rows, values.split([len(completions[row]) for row in rows]), strict=True):
                found[row] = one
    return found


def learn(
    decoder: Decoder,
    layout: AdapterLayout,
    batch: LearningBatch,
    weights: Mapping[int, AdapterWeights],
    memory: Mapping[int, Memory],
    encode: Callable[[str], np.ndarray],
    max_batch_tokens: int,
) -> tuple[dict[int, AdapterWeights], dict[int, Memory], LearningStatistics]:
    """One step for every slot that has lessons; the others come back as they are (``HostKernel.learn``)."""
    lessons = [lesson for lesson in batch.lessons if lesson.completion]
    new_weights = dict(weights)
    new_memory = {slot: memory.get(slot, Memory()) for slot in weights}
    if not lessons:
        return new_weights, new_memory, LearningStatistics()
    slots = sorted({lesson.slot for lesson in lessons})
    tokens = {slot: sum(len(one.completion) for one in lessons if one.slot == slot) for slot in slots}
    pupils = _Pupils(decoder, layout, [(new_weights[slot], new_memory[slot]) for slot in slots])
    gradients, losses = _gradients(decoder, pupils, lessons, slots, tokens, encode, max_batch_tokens)
    norms = gradients.norm(dim=1)
    gradients *= (batch.clip / (norms + 1e-6)).clamp_(max=1.0)[:, None]  # as torch.nn.utils.clip_grad_norm_
    pupils.step(gradients, [batch.learning_rates[slot] for slot in slots])

    is_well = torch.isfinite(losses) & torch.isfinite(norms) & torch.isfinite(pupils.vectors).all(dim=1)
    for index, slot in enumerate(slots):
        if is_well[index]:
            new_weights[slot], new_memory[slot] = pupils.leave(index)
    statistics = LearningStatistics(
        loss=dict(zip(slots, losses.tolist(), strict=True)),
        gradient_norm=dict(zip(slots, norms.tolist(), strict=True)),
        tokens=tokens,
        sick=tuple(slot for index, slot in enumerate(slots) if not is_well[index]),
    )
    return new_weights, new_memory, statistics


def _gradients(
    decoder: Decoder,
    pupils: _Pupils,
    lessons: Sequence[Lesson],
    slots: Sequence[int],
    tokens: Mapping[int, int],
    encode: Callable[[str], np.ndarray],
    max_batch_tokens: int,
) -> tuple[Tensor, Tensor]:
    """Gradients ``(slots, parameters)`` of each slot's loss, and the losses ``(slots,)``."""
    place = {slot: index for index, slot in enumerate(slots)}
    owners = [place[lesson.slot] for lesson in lessons]
    completions = [np.array(lesson.completion, dtype=np.int64) for lesson in lessons]
    texts = [
        Text(encode(lesson.prompt), completion[:-1])
        for lesson, completion in zip(lessons, completions, strict=True)
    ]
    share = torch.tensor([lesson.weight / tokens[lesson.slot] for lesson in lessons], device=decoder.device)
    losses = torch.zeros(len(slots), device=decoder.device)
    # Weights are read and gradients written with the scaling in B; undone once, at the end.
    factors, gradients = pupils.scaled(decoder.dtype), torch.zeros_like(pupils.vectors)
    for piece in chunks(texts, owners, min(max_batch_tokens, FORWARD_TOKENS)):
        own = [owners[row] for row in piece]
        counts = torch.tensor([len(completions[row]) for row in piece], device=decoder.device)
        weight = share[torch.from_numpy(piece).to(decoder.device)].repeat_interleave(counts)
        with torch.enable_grad():
            terms = -weight * token_log_probabilities(
                decoder,
                [texts[row] for row in piece],
                [completions[row] for row in piece],
                own,
                lambda present: pupils.adapters(factors, gradients, present),
            )
            terms.sum().backward()  # type: ignore[no-untyped-call]
        losses.index_add_(
            0, torch.tensor(own, device=decoder.device).repeat_interleave(counts), terms.detach()
        )
    return gradients.mul_(pupils.multipliers), losses


class _Pupils:
    """Slots in learning, padded with zeros to one rank: weights and moments ``(slots, arena row)``.

    Padding stays exactly zero: its gradient is a product with the other factor's padding, which is zero.
    """

    def __init__(
        self, decoder: Decoder, layout: AdapterLayout, before: Sequence[tuple[AdapterWeights, Memory]]
    ) -> None:
        self._before = before
        self._arrangement = arrange(decoder.sites, layout, max(weights.rank for weights, _ in before))
        arrays = np.zeros((3, len(before), self._arrangement.size), dtype=np.float32)
        for row, (weights, memory) in enumerate(before):
            index = self._arrangement.index(weights.rank)
            for target, source in zip(arrays, (weights.vector, memory.first, memory.second), strict=True):
                if source is not None:
                    target[row, index] = source
        self.vectors, self._first, self._second = torch.from_numpy(arrays).to(decoder.device)
        scaling = np.array([[weights.scaling] for weights, _ in before], dtype=np.float32)
        self.multipliers = torch.from_numpy(np.where(self._arrangement.is_b, scaling, np.float32(1.0))).to(
            decoder.device
        )

    def scaled(self, dtype: torch.dtype) -> Tensor:
        """The weights as they multiply, with each slot's scaling in B and in the host's precision."""
        return (self.vectors * self.multipliers).to(dtype)

    def adapters(self, factors: Tensor, gradients: Tensor, present: Sequence[int]) -> Adapters:
        """Views for consecutive pupils, whose gradients a backward pass adds to ``gradients``."""
        low, high = present[0], present[-1] + 1
        assert list(present) == list(range(low, high)), "lessons are chunked in the order of their slots"
        return self._arrangement.factors(factors[low:high], gradients[low:high])

    def step(self, gradients: Tensor, rates: Sequence[float]) -> None:
        """Adam with a step count and a rate for each slot."""
        counts = torch.tensor([memory.step + 1 for _, memory in self._before], dtype=torch.float64)
        first_left, second_left = 1 - BETA_FIRST**counts, 1 - BETA_SECOND**counts
        size = (torch.tensor(rates, dtype=torch.float64) / first_left).to(self.vectors)[:, None]
        self._first.mul_(BETA_FIRST).add_(gradients, alpha=1 - BETA_FIRST)
        self._second.mul_(BETA_SECOND).addcmul_(gradients, gradients, value=1 - BETA_SECOND)
        spread = self._second.sqrt().div_(second_left.sqrt().to(self.vectors)[:, None]).add_(EPSILON)
        self.vectors -= size * self._first / spread

    def leave(self, index: int) -> tuple[AdapterWeights, Memory]:
        """The new values of one slot, at its own rank."""
        old, past = self._before[index]
        places = self._arrangement.index(old.rank)
        vector, first, second = (
            np.ascontiguousarray(one[index].cpu().numpy()[places])
            for one in (self.vectors, self._first, self._second)
        )
        memory = Memory(past.step + 1, first, second, past.notes)
        return AdapterWeights(old.layout, old.rank, old.scaling, vector), memory


@lru_cache(maxsize=16)
def arrange(sites: tuple[Site, ...], layout: AdapterLayout, rank: int) -> Arrangement:
    """How learners lie: members apart, since block-diagonal zeros would be learned with."""
    return Arrangement(sites, layout, rank, widest=0)
