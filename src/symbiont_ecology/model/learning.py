"""Scoring given answers, and one Adam step for every slot at once.

Slots share one forward and one backward pass; their losses are summed, and since no parameter
belongs to two slots, every gradient is the one that the slot would have had alone. Adam:
arXiv:1412.6980, decoupled decay left at zero (arXiv:1711.05101). Weights come and go as values:
nothing here reads the slot bank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.adapters.adapter import (
    BETA_FIRST,
    BETA_SECOND,
    EPSILON,
    AdapterLayout,
    AdapterWeights,
    OptimizerState,
)
from symbiont_ecology.base.types import LearningBatch, LearningStatistics, Lesson
from symbiont_ecology.model.backend.bank import Learners, SlotBank
from symbiont_ecology.model.backend.lowrank import Adapters
from symbiont_ecology.model.backend.torch_backend import backend_for
from symbiont_ecology.model.budget import MemoryBudget
from symbiont_ecology.model.decoder import Decoder
from symbiont_ecology.model.dropout import Dropout
from symbiont_ecology.model.packing import NEVER, Packing, Text, least_shared, packings


@dataclass(frozen=True, eq=False)
class Reading:
    """A completion as its reader sees it: the log-probability (nats) of every token,
    ``(tokens,)``, and whether it is the likeliest of all tokens there, ``(tokens,)``."""

    log_probabilities: Tensor
    is_likeliest: Tensor


@dataclass(frozen=True)
class Example:
    """A prompt and its completion as token ids, for one owner.

    To learn from it: the share of each completion token in the owner's loss, ``weights (tokens,)``;
    a ``name`` that tells the examples of one owner apart; the owner's dropout and its seed.
    """

    prompt: np.ndarray
    completion: np.ndarray
    owner: int
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    name: int = 0
    dropout: float = 0.0
    seed: int = 0


def read(
    decoder: Decoder, bank: SlotBank, examples: Sequence[Example], budget: MemoryBudget
) -> list[Reading]:
    """Return what each example's completion is to its owner, on the CPU."""
    nothing = torch.zeros(0)
    readings = [Reading(nothing, nothing.bool()) for _ in examples]
    rows = [row for row, example in enumerate(examples) if len(example.completion)]
    some = [examples[row] for row in rows]
    with torch.no_grad():
        for numbers, packing in budget.paced(_pieces(decoder, some, budget.forward_tokens)):
            piece = [some[number] for number in numbers]
            logits, targets = _logits(decoder, piece, packing, bank.gather)
            losses = F.cross_entropy(logits, targets, reduction="none")
            are_likeliest = (logits.argmax(1) == targets).cpu()
            counts = [len(example.completion) for example in piece]
            parts = torch.split(-losses.cpu(), counts), torch.split(are_likeliest, counts)
            for number, *reading in zip(numbers, *parts, strict=True):
                readings[rows[number]] = Reading(*reading)
    return readings


def check_lessons(batch: LearningBatch, weights: Mapping[int, AdapterWeights]) -> None:
    """Refuses a batch in which something is missing (``HostKernel.learn``)."""
    for lesson in batch.lessons:
        if lesson.slot not in weights or lesson.slot not in batch.learning_rates:
            raise ValueError(f"expected weights and a learning rate for slot {lesson.slot}")
        tokens = len(lesson.completion)
        if isinstance(lesson.weight, tuple) and len(lesson.weight) != tokens:
            raise ValueError(
                f"expected one weight for a lesson, or one for each of {tokens} completion tokens "
                f"of it, got {len(lesson.weight)}"
            )


def learning_step(
    decoder: Decoder,
    layout: AdapterLayout,
    batch: LearningBatch,
    budget: MemoryBudget,
    *,
    weights: Mapping[int, AdapterWeights],
    optimizer_state: Mapping[int, OptimizerState],
    prompts: Mapping[str, np.ndarray],
) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
    """Make a step of every slot that has lessons; the others come back as they are
    (``HostKernel.learn``). ``prompts`` are token ids by text."""
    new_weights = dict(weights)
    new_states = {slot: optimizer_state.get(slot, OptimizerState()) for slot in weights}
    lessons = [lesson for lesson in batch.lessons if lesson.completion]
    if not lessons:
        return new_weights, new_states, LearningStatistics()
    slots = sorted({lesson.slot for lesson in lessons})
    tokens = dict.fromkeys(slots, 0)
    for lesson in lessons:
        tokens[lesson.slot] += len(lesson.completion)
    olds = [new_weights[slot] for slot in slots]
    learners = learners_of(decoder, layout, olds)
    examples = _examples(lessons, batch, tokens, prompts)
    losses = add_gradients(decoder, learners, examples, budget)
    norms, sick = {}, []
    for slot, old, gradient, loss in zip(slots, olds, learners.gradients(), losses, strict=True):
        norm = gradient.norm()
        # As torch.nn.utils.clip_grad_norm_ does it.
        gradient *= (batch.clip / (norm + 1e-6)).clamp_(max=1.0)
        new, new_state = _adam(old, new_states[slot], gradient, batch.learning_rates[slot])
        if torch.isfinite(loss) and torch.isfinite(norm) and np.isfinite(new.vector.sum()):
            new_weights[slot], new_states[slot] = new, new_state
        else:
            sick.append(slot)
        norms[slot] = float(norm)
    loss_of = dict(zip(slots, losses.tolist(), strict=True))
    return new_weights, new_states, LearningStatistics(loss_of, norms, tokens, tuple(sick))


def _examples(
    lessons: Sequence[Lesson],
    batch: LearningBatch,
    tokens: Mapping[int, int],
    prompts: Mapping[str, np.ndarray],
) -> list[Example]:
    """Return each lesson, its owner numbered among the slots that learn."""
    owners = {slot: owner for owner, slot in enumerate(tokens)}
    counts = Counter[int]()
    examples = []
    for lesson in lessons:
        slot = lesson.slot
        completion = np.array(lesson.completion, dtype=np.int64)
        shares = np.array(lesson.weight) / tokens[slot]
        if shares.ndim and len(shares) != len(completion):
            raise ValueError(
                f"expected a weight for each of {len(completion)} completion tokens of a lesson, "
                f"got {len(shares)}: pass one number for all tokens, or one for each"
            )
        weights = np.broadcast_to(shares.astype(np.float32), completion.shape)
        examples.append(
            Example(
                prompts[lesson.prompt],
                completion,
                owners[slot],
                weights,
                name=counts[slot],
                dropout=batch.dropout.get(slot, 0.0),
                seed=batch.dropout_seeds.get(slot, 0),
            )
        )
        counts[slot] += 1
    return examples


def learners_of(
    decoder: Decoder, layout: AdapterLayout, weights: Sequence[AdapterWeights]
) -> Learners:
    """Return these adapters as the fastest back end for the decoder's numbers lets them learn."""
    device, dtype = decoder.device, decoder.dtype
    kind = backend_for(device, dtype, learns=True).learners
    return kind(decoder.sites, layout, weights, device, dtype)


def add_gradients(
    decoder: Decoder,
    learners: Learners,
    examples: Sequence[Example],
    budget: MemoryBudget,
    *,
    learns_from: int = 0,
) -> Tensor:
    """Adds the gradients of each owner's loss to the learners'; returns the losses ``(owners,)``.
    Layers below ``learns_from`` need none."""
    losses = torch.zeros(len(learners.weights))  # on the CPU, where sums come out the same
    for rows, packing in budget.paced(_pieces(decoder, examples, budget.learning_tokens)):
        piece = [examples[row] for row in rows]
        weights = np.concatenate([example.weights for example in piece])
        counts = [len(example.completion) for example in piece]
        owners = np.repeat([example.owner for example in piece], counts)
        with torch.enable_grad():
            # Owners of a piece are consecutive: each one has examples, and these come in order.
            logits, targets = _logits(decoder, piece, packing, learners.adapters, learns_from)
            values = F.cross_entropy(logits, targets, reduction="none")
            terms = torch.from_numpy(weights).to(decoder.device) * values
            terms.sum().backward()  # type: ignore[no-untyped-call]
        losses.index_add_(0, torch.from_numpy(owners), terms.detach().cpu())
    return losses


def _logits(
    decoder: Decoder,
    examples: Sequence[Example],
    packing: Packing,
    adapters_of: Callable[[Sequence[int]], Adapters],
    learns_from: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return logits at every completion token, ``(tokens, vocab)``, and these tokens,
    ``(tokens,)``, example after example."""
    targets = np.concatenate([example.completion for example in examples])
    adapters = adapters_of(packing.owners)
    dropout = None
    if any(example.dropout for example in examples):
        drops = [(example.dropout, example.seed, example.name) for example in examples]
        dropout = Dropout.of(packing, drops)
    logits = decoder.logits(packing, adapters, dropout, learns_from=learns_from).float()
    return logits, torch.from_numpy(targets).to(decoder.device)


def _pieces(
    decoder: Decoder, examples: Sequence[Example], max_tokens: int
) -> Iterator[tuple[np.ndarray, Packing]]:
    """Return examples packed in pieces that one forward pass takes, and which are in each."""
    # The last token of a completion predicts nothing.
    texts = [Text(example.prompt, example.completion[:-1]) for example in examples]
    owners = [example.owner for example in examples]
    # A mask of dropout belongs to a whole prompt.
    is_dropping = any(example.dropout for example in examples)
    least = NEVER if is_dropping else least_shared(decoder.shape)
    return packings(texts, owners, decoder.device, max_tokens, least=least)


def _adam(
    weights: AdapterWeights, optimizer_state: OptimizerState, gradient: Tensor, rate: float
) -> tuple[AdapterWeights, OptimizerState]:
    """Make a step of one slot, where the gradient is: all of it fits a processor's cache."""
    device = gradient.device
    step = optimizer_state.step + 1
    first, second = (
        torch.zeros_like(gradient) if moment is None else torch.from_numpy(moment.copy()).to(device)
        for moment in (optimizer_state.first, optimizer_state.second)
    )
    first.lerp_(gradient, 1 - BETA_FIRST)
    second.mul_(BETA_SECOND).addcmul_(gradient, gradient, value=1 - BETA_SECOND)
    spread = second.sqrt().div_((1 - BETA_SECOND**step) ** 0.5).add_(EPSILON)
    vector = torch.from_numpy(weights.vector.copy()).to(device)
    vector.addcdiv_(first, spread, value=-rate / (1 - BETA_FIRST**step))
    after = OptimizerState(step, first.cpu().numpy(), second.cpu().numpy(), optimizer_state.notes)
    return replace(weights, vector=vector.cpu().numpy()), after
