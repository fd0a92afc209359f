"""Scoring given answers, and one Adam step for every slot at once.

Slots share one forward and one backward pass; their losses are summed, and since no parameter
belongs to two slots, every gradient is the one that the slot would have had alone. Adam:
arXiv:1412.6980, decoupled decay left at zero (arXiv:1711.05101). Weights come and go as values:
nothing here reads the slot bank.
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
from symbiont_ecology.host.packing import Packing, Text, chunks, pack_texts
from symbiont_ecology.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights, OptimizerState

BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.95, 1e-8


@dataclass(frozen=True)
class Example:
    """A prompt and its completion as token ids; ``name`` tells the replies of one owner apart."""

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
    replies: Sequence[Example],
    adapters: Callable[[Sequence[int]], Adapters],
    dropout: Callable[[Packing], Dropout | None] = lambda packing: None,
) -> Tensor:
    """Log-probability (nats) of every completion token, ``(tokens,)``, reply after reply."""
    packing = pack_texts(
        [reply.text for reply in replies], [reply.owner for reply in replies], decoder.device
    )
    targets = torch.from_numpy(np.concatenate([reply.completion for reply in replies])).to(
        decoder.device
    )
    logits = decoder.logits(packing, adapters(packing.owners), dropout(packing))
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def score(
    decoder: Decoder, bank: SlotBank, replies: Sequence[Example], budget: MemoryBudget
) -> list[Tensor]:
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


def _pieces(
    replies: Sequence[Example], wanted: Sequence[int], max_tokens: int
) -> Iterator[list[int]]:
    """The wanted replies in pieces that one forward pass takes."""
    texts, owners = [replies[row].text for row in wanted], [replies[row].owner for row in wanted]
    for piece in chunks(texts, owners, max_tokens):
        yield [wanted[index] for index in piece]


def learning_step(
    decoder: Decoder,
    layout: AdapterLayout,
    batch: LearningBatch,
    weights: Mapping[int, AdapterWeights],
    optimizer_state: Mapping[int, OptimizerState],
    encode: Callable[[str], np.ndarray],
    budget: MemoryBudget,
) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
    """One step for every slot that has lessons; the others come back as they are
    (``HostKernel.learn``)."""
    lessons = [lesson for lesson in batch.lessons if lesson.completion]
    new_weights = dict(weights)
    new_states = {slot: optimizer_state.get(slot, OptimizerState()) for slot in weights}
    if not lessons:
        return new_weights, new_states, LearningStatistics()
    slots = sorted({lesson.slot for lesson in lessons})
    tokens = dict.fromkeys(slots, 0)
    for lesson in lessons:
        tokens[lesson.slot] += len(lesson.completion)
    pupils = [(new_weights[slot], new_states[slot]) for slot in slots]
    arrangement = arrangement_of(decoder.sites, layout, max(one.rank for one, _ in pupils))
    arena = torch.from_numpy(np.stack([arrangement.laid(one) for one, _ in pupils])).to(
        decoder.device
    )
    gradients, losses = _gradients(
        decoder, arrangement, arena, _replies(lessons, slots, tokens, encode), batch, slots, budget
    )
    norms, sick = {}, []
    for slot, (old, past), row, loss in zip(slots, pupils, gradients, losses, strict=True):
        gradient = arrangement.collected(row, old)
        norm = gradient.norm()
        gradient *= (batch.clip / (norm + 1e-6)).clamp_(
            max=1.0
        )  # as torch.nn.utils.clip_grad_norm_
        new, memory_then = _adam(old, past, gradient, batch.learning_rates[slot])
        if torch.isfinite(loss) and torch.isfinite(norm) and np.isfinite(new.vector.sum()):
            new_weights[slot], new_states[slot] = new, memory_then
        else:
            sick.append(slot)
        norms[slot] = float(norm)
    loss_of = dict(zip(slots, losses.tolist(), strict=True))
    return new_weights, new_states, LearningStatistics(loss_of, norms, tokens, tuple(sick))


def _replies(
    lessons: Sequence[Lesson],
    slots: Sequence[int],
    tokens: Mapping[int, int],
    encode: Callable[[str], np.ndarray],
) -> list[tuple[Example, float]]:
    """Each lesson as a reply of a pupil, and its share in that pupil's loss per completion
    token."""
    place = {slot: index for index, slot in enumerate(slots)}
    found, seen = [], Counter[int]()
    for lesson in lessons:
        completion = np.array(lesson.completion, dtype=np.int64)
        reply = Example(encode(lesson.prompt), completion, place[lesson.slot], seen[lesson.slot])
        seen[lesson.slot] += 1
        found.append((reply, lesson.weight / tokens[lesson.slot]))
    return found


def _gradients(
    decoder: Decoder,
    arrangement: Arrangement,
    arena: Tensor,
    shared: Sequence[tuple[Example, float]],
    batch: LearningBatch,
    slots: Sequence[int],
    budget: MemoryBudget,
) -> tuple[Tensor, Tensor]:
    """Gradients of each slot's loss as arena rows ``(slots, size)``, and the losses
    ``(slots,)``."""
    replies = [reply for reply, _ in shared]
    losses = torch.zeros(len(slots), device=decoder.device)
    factors, gradients = arena.to(decoder.dtype), torch.zeros_like(arena)

    def present(owners: Sequence[int]) -> Adapters:
        """The factors of some pupils, with their share of the gradient buffer."""
        low, high = (
            owners[0],
            owners[-1] + 1,
        )  # every slot has lessons, and they come in the order of slots
        return Adapters(tuple(arrangement.factors(factors[low:high], gradients[low:high])))

    for rows in _pieces(replies, range(len(replies)), budget.learning_tokens):
        piece = [replies[row] for row in rows]
        counts = [len(reply.completion) for reply in piece]
        weight = np.repeat(np.array([shared[row][1] for row in rows], dtype=np.float32), counts)
        owner = np.repeat([reply.owner for reply in piece], counts)
        with torch.enable_grad():
            found = token_log_probabilities(
                decoder, piece, present, partial(_dropout, piece, batch, slots)
            )
            terms = -torch.from_numpy(weight).to(decoder.device) * found
            terms.sum().backward()  # type: ignore[no-untyped-call]
        losses.index_add_(0, torch.from_numpy(owner).to(decoder.device), terms.detach())
    return gradients, losses


def _adam(
    weights: AdapterWeights, optimizer_state: OptimizerState, gradient: Tensor, rate: float
) -> tuple[AdapterWeights, OptimizerState]:
    """One step of one slot, where the gradient is: all of it fits a processor's cache."""
    device, step = gradient.device, optimizer_state.step + 1
    past = [optimizer_state.first, optimizer_state.second]
    first, second = (
        torch.zeros_like(gradient) if one is None else torch.from_numpy(one.copy()).to(device)
        for one in past
    )
    first.lerp_(gradient, 1 - BETA_FIRST)
    second.mul_(BETA_SECOND).addcmul_(gradient, gradient, value=1 - BETA_SECOND)
    spread = second.sqrt().div_((1 - BETA_SECOND**step) ** 0.5).add_(EPSILON)
    vector = torch.from_numpy(weights.vector.copy()).to(device)
    vector.addcdiv_(first, spread, value=-rate / (1 - BETA_FIRST**step))
    then = OptimizerState(step, first.cpu().numpy(), second.cpu().numpy(), optimizer_state.notes)
    return AdapterWeights(weights.layout, weights.rank, weights.scaling, vector.cpu().numpy()), then


def _dropout(
    replies: Sequence[Example], batch: LearningBatch, slots: Sequence[int], packing: Packing
) -> Dropout | None:
    if not batch.dropout:
        return None
    seeds = [batch.dropout_seeds[slots[reply.owner]] for reply in replies]
    return Dropout.of(packing, batch.dropout, seeds, [reply.name for reply in replies])


@lru_cache(maxsize=16)
def arrangement_of(sites: tuple[Site, ...], layout: AdapterLayout, rank: int) -> Arrangement:
    """How learners lie."""
    return Arrangement(sites, layout, rank)
