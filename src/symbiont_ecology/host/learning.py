"""Scoring given answers, and one Adam step for every slot at once.

Slots share one forward and one backward pass; their losses are summed, and since no parameter belongs to
two slots, every gradient is the one that the slot would have had alone. Adam: arXiv:1412.6980, decoupled
decay left at zero (arXiv:1711.05101). Weights come and go as values: nothing here reads the slot bank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, Arrangement, Site, SlotBank
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.dropout import Dropout
from symbiont_ecology.host.packing import Packing, Text, chunks, pack
from symbiont_ecology.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights, Memory

BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8


@dataclass(frozen=True)
class Reply:
    """A prompt and its completion as token ids, and whose they are; ``name`` tells an owner's replies apart."""

    prompt: np.ndarray
    completion: np.ndarray
    owner: int
    name: int = 0

    @property
    def text(self) -> Text:
        """What the host reads: the last token of a completion predicts nothing."""
        return Text(self.prompt, self.completion[:-1])


def token_log_probabilities(
    decoder: Decoder,
    replies: Sequence[Reply],
    adapters: Callable[[Sequence[int]], Adapters],
    dropout: Callable[[Packing], Dropout | None] = lambda packing: None,
) -> Tensor:
    """Log-probability (nats) of every completion token, ``(tokens,)``, reply after reply."""
    packing = pack([reply.text for reply in replies], [reply.owner for reply in replies], decoder.device)
    targets = torch.from_numpy(np.concatenate([reply.completion for reply in replies])).to(decoder.device)
    logits = decoder.logits(packing, adapters(packing.owners), dropout(packing))
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def score(decoder: Decoder, bank: SlotBank, replies: Sequence[Reply], budget: MemoryBudget) -> list[Tensor]:
    """Log-probabilities of each completion's tokens, one tensor per reply."""
    found = [torch.zeros(0, device=decoder.device) for _ in replies]
    wanted = [row for row, reply in enumerate(replies) if len(reply.completion)]
    with torch.no_grad():
        for rows in _pieces(replies, wanted, budget.forward_tokens):
            piece = [replies[row] for row in rows]
            values = token_log_probabilities(decoder, piece, bank.gather)
            counts = [len(reply.completion) for reply in piece]
            for row, one in zip(rows, torch.split(values, counts), strict=True):
                found[row] = one
    return found


def _pieces(replies: Sequence[Reply], wanted: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """The wanted replies in pieces that one forward pass takes."""
    texts, owners = [replies[row].text for row in wanted], [replies[row].owner for row in wanted]
    for piece in chunks(texts, owners, max_tokens):
        yield [wanted[index] for index in piece]


def learn(
    decoder: Decoder,
    layout: AdapterLayout,
    batch: LearningBatch,
    weights: Mapping[int, AdapterWeights],
    memory: Mapping[int, Memory],
    encode: Callable[[str], np.ndarray],
    budget: MemoryBudget,
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
    gradients, losses = _gradients(decoder, pupils, _replies(lessons, slots, encode), batch, slots, budget)
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


def _replies(
    lessons: Sequence[Lesson], slots: Sequence[int], encode: Callable[[str], np.ndarray]
) -> list[tuple[Reply, float]]:
    """Each lesson as a reply of a pupil, and its share in that pupil's loss per completion token."""
    place = {slot: index for index, slot in enumerate(slots)}
    tokens, seen = Counter[int](), Counter[int]()
    for lesson in lessons:
        tokens[lesson.slot] += len(lesson.completion)
    found = []
    for lesson in lessons:
        completion = np.array(lesson.completion, dtype=np.int64)
        reply = Reply(encode(lesson.prompt), completion, place[lesson.slot], seen[lesson.slot])
        seen[lesson.slot] += 1
        found.append((reply, lesson.weight / tokens[lesson.slot]))
    return found


def _gradients(
    decoder: Decoder,
    pupils: _Pupils,
    shared: Sequence[tuple[Reply, float]],
    batch: LearningBatch,
    slots: Sequence[int],
    budget: MemoryBudget,
) -> tuple[Tensor, Tensor]:
    """Gradients ``(slots, arena row)`` of each slot's loss, and the losses ``(slots,)``."""
    replies = [reply for reply, _ in shared]
    losses = torch.zeros(len(slots), device=decoder.device)
    factors, gradients = pupils.scaled(decoder.dtype), torch.zeros_like(pupils.vectors)
    for rows in _pieces(replies, range(len(replies)), budget.learning_tokens):
        piece = [replies[row] for row in rows]
        counts = [len(reply.completion) for reply in piece]
        weight = np.repeat(np.array([shared[row][1] for row in rows], dtype=np.float32), counts)
        owner = np.repeat([reply.owner for reply in piece], counts)
        with torch.enable_grad():
            found = token_log_probabilities(
                decoder,
                piece,
                partial(pupils.adapters, factors, gradients),
                partial(_dropout, piece, batch, slots),
            )
            terms = -torch.from_numpy(weight).to(decoder.device) * found
            terms.sum().backward()  # type: ignore[no-untyped-call]
        losses.index_add_(0, torch.from_numpy(owner).to(decoder.device), terms.detach())
    return gradients.mul_(pupils.multipliers), losses  # the scaling is in B on both ways


def _dropout(
    replies: Sequence[Reply], batch: LearningBatch, slots: Sequence[int], packing: Packing
) -> Dropout | None:
    if not batch.dropout:
        return None
    seeds = [batch.dropout_seeds[slots[reply.owner]] for reply in replies]
    return Dropout.of(packing, batch.dropout, seeds, [reply.name for reply in replies])


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
        scaled: Tensor = self.vectors * self.multipliers
        return scaled.to(dtype)

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
