"""Scoring given answers, and one Adam step for every slot at once.

Slots share one forward and one backward pass; their losses are summed, and since no parameter belongs to
two slots, every gradient is the one that the slot would have had alone. Adam: arXiv:1412.6980, decoupled
decay left at zero (arXiv:1711.05101). Weights come and go as values: nothing here reads the slot bank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, SlotBank, stack
from symbiont_ecology.host.decoder import Decoder, pad_right
from symbiont_ecology.host.tiles import Tiling, tile_rows
from symbiont_ecology.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights, Memory

BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8
FORWARD_TOKENS = 2048
"""Tokens per forward: twice as many were no faster, and activations grow with it."""


@dataclass(frozen=True)
class Answer:
    """A prompt's and its completion's token ids as one array; the completion begins at ``start`` (> 0)."""

    ids: np.ndarray
    start: int


def token_log_probabilities(decoder: Decoder, answers: Sequence[Answer], adapters: Adapters) -> Tensor:
    """Log-probability (nats) of every completion token, ``(tokens,)``, answer after answer."""
    counts = np.array([len(answer.ids) - answer.start for answer in answers])
    is_real = np.arange(counts.max()) < counts[:, None]
    starts = np.array([answer.start for answer in answers])
    # The token at a position is predicted one position before it.
    wanted = np.where(is_real, starts[:, None] - 1 + np.arange(counts.max()), starts[:, None] - 1)
    targets = np.concatenate([answer.ids[answer.start :] for answer in answers])
    inputs = pad_right([answer.ids[:-1] for answer in answers], decoder.device)
    spots, real, right = (torch.from_numpy(one).to(decoder.device) for one in (wanted, is_real, targets))
    logits = decoder.logits_at(inputs, spots, real, adapters)
    return -F.cross_entropy(logits.float(), right, reduction="none")


def chunks(tiling: Tiling, lengths: Sequence[int], max_tokens: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """``(first tile, tile after the last, their rows)`` in pieces of at most ``max_tokens`` with padding."""
    rows = tiling.rows.reshape(-1, tiling.height)
    low, widest = 0, 0
    for tile, members in enumerate(rows):
        longest = max(lengths[row] for row in members)
        if tile > low and max(widest, longest) * (tile + 1 - low) * tiling.height > max_tokens:
            yield low, tile, rows[low:tile].reshape(-1)
            low, widest = tile, 0
        widest = max(widest, longest)
    yield low, len(rows), rows[low:].reshape(-1)


def score(
    decoder: Decoder, bank: SlotBank, answers: Sequence[Answer], slots: Sequence[int], max_batch_tokens: int
) -> list[Tensor]:
    """Log-probabilities of each completion's tokens, one tensor per answer."""
    wanted = [index for index, answer in enumerate(answers) if len(answer.ids) > answer.start]
    found = [torch.zeros(0, device=decoder.device) for _ in answers]
    if not wanted:
        return found
    tiling = tile_rows([slots[index] for index in wanted])
    lengths = [len(answers[index].ids) for index in wanted]
    with torch.no_grad():
        for low, high, rows in chunks(tiling, lengths, min(max_batch_tokens, FORWARD_TOKENS)):
            batch = [wanted[row] for row in rows]
            values = token_log_probabilities(
                decoder, [answers[index] for index in batch], bank.gather(tiling.slots[low:high])
            )
            counts = [len(answers[index].ids) - answers[index].start for index in batch]
            for index, one in zip(batch, torch.split(values, counts), strict=True):
                found[index] = one
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
    pupils = _Pupils.stacked(
        layout, [(new_weights[slot], new_memory[slot]) for slot in slots], decoder.device
    )
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
    answers = []
    for lesson in lessons:
        prompt = encode(lesson.prompt)
        answers.append(
            Answer(np.concatenate([prompt, np.array(lesson.completion, dtype=np.int64)]), len(prompt))
        )
    place = {slot: index for index, slot in enumerate(slots)}
    tiling = tile_rows([place[lesson.slot] for lesson in lessons])
    # A row that only fills its tile weighs nothing.
    share = np.array([lesson.weight / tokens[lesson.slot] for lesson in lessons], dtype=np.float32)[
        tiling.rows
    ]
    share = np.where(tiling.is_real, share, np.float32(0.0))
    gradients, losses = torch.zeros_like(pupils.vectors), pupils.scaling.new_zeros(len(slots))
    begin = 0
    limit = min(max_batch_tokens, FORWARD_TOKENS)
    for low, high, rows in chunks(tiling, [len(answer.ids) for answer in answers], limit):
        owners = torch.tensor(tiling.slots[low:high], device=decoder.device)
        leaf = pupils.vectors[owners].requires_grad_()
        adapters = stack(
            decoder.sites, pupils.layout, leaf, pupils.scaling[owners], pupils.rank, decoder.dtype
        )
        batch = [answers[row] for row in rows]
        counts = torch.tensor([len(answer.ids) - answer.start for answer in batch], device=decoder.device)
        weight = (
            torch.from_numpy(share[begin : begin + len(rows)]).to(decoder.device).repeat_interleave(counts)
        )
        begin += len(rows)
        with torch.enable_grad():
            terms = -weight * token_log_probabilities(decoder, batch, adapters)
            terms.sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradients.index_add_(0, owners, leaf.grad)
        losses.index_add_(
            0, owners.repeat_interleave(tiling.height).repeat_interleave(counts), terms.detach()
        )
    return gradients, losses


@dataclass
class _Pupils:
    """Slots in learning, padded with zeros to one rank: weights and moments ``(slots, parameters)``.

    Padding stays exactly zero: its gradient is a product with the other factor's padding, which is zero.
    """

    layout: AdapterLayout
    rank: int
    before: Sequence[tuple[AdapterWeights, Memory]]
    vectors: Tensor
    first: Tensor
    second: Tensor
    scaling: Tensor

    @classmethod
    def stacked(
        cls, layout: AdapterLayout, before: Sequence[tuple[AdapterWeights, Memory]], device: torch.device
    ) -> _Pupils:
        """Takes the values in."""
        rank = max(weights.rank for weights, _ in before)
        arrays = np.zeros((3, len(before), layout.size(rank)), dtype=np.float32)
        for index, (weights, memory) in enumerate(before):
            places = _places(layout, weights.rank, rank)
            for target, source in zip(arrays, (weights.vector, memory.first, memory.second), strict=True):
                if source is not None:
                    target[index, places] = source
        vectors, first, second = torch.from_numpy(arrays).to(device)
        scaling = torch.tensor([weights.scaling for weights, _ in before], dtype=torch.float32, device=device)
        return cls(layout, rank, before, vectors, first, second, scaling)

    def step(self, gradients: Tensor, rates: Sequence[float]) -> None:
        """Adam with a step count and a rate for each slot."""
        counts = torch.tensor([memory.step + 1 for _, memory in self.before], dtype=torch.float64)
        first_left, second_left = 1 - BETA_FIRST**counts, 1 - BETA_SECOND**counts
        size = (torch.tensor(rates, dtype=torch.float64) / first_left).to(self.vectors)[:, None]
        self.first.mul_(BETA_FIRST).add_(gradients, alpha=1 - BETA_FIRST)
        self.second.mul_(BETA_SECOND).addcmul_(gradients, gradients, value=1 - BETA_SECOND)
        spread = self.second.sqrt().div_(second_left.sqrt().to(self.vectors)[:, None]).add_(EPSILON)
        self.vectors -= size * self.first / spread

    def leave(self, index: int) -> tuple[AdapterWeights, Memory]:
        """The new values of one slot, at its own rank."""
        old, past = self.before[index]
        places = _places(self.layout, old.rank, self.rank)
        vector, first, second = (
            np.ascontiguousarray(one[index].cpu().numpy()[places])
            for one in (self.vectors, self.first, self.second)
        )
        memory = Memory(past.step + 1, first, second, past.notes)
        return AdapterWeights(self.layout, old.rank, old.scaling, vector), memory


@lru_cache(maxsize=16)
def _places(layout: AdapterLayout, rank: int, wider: int) -> np.ndarray:
    """Where the parameters of a rank-``rank`` vector stand in one of rank ``wider``."""
    spans = []
    for (_, a, b, _, _), (_, wide_a, wide_b, _, _) in zip(
        layout.blocks(rank), layout.blocks(wider), strict=True
    ):
        spans.append(wide_a.start + np.arange(a.stop - a.start))
        spans.append(wide_b.start + np.arange(b.stop - b.start))
    return np.concatenate(spans)
