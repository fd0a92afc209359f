"""The host kernel: one frozen language model, many adapters, every verb a batched call.

    kernel = HostKernel.from_pretrained("embedded", slots=16)
    slot = kernel.attach("my-peft-folder")
    kernel.generate(["12+7="], slots=slot)

The base weights never change. Slots are a cache: what lives is the ``AdapterWeights`` that a caller
keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from symbiont_ecology.adapters.adapter import AdapterWeights, OptimizerState
from symbiont_ecology.adapters.peft_files import read_peft, warn_of_base, write_peft
from symbiont_ecology.base.errors import AdapterError, HostError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.registry import DATE, MAX_SLOTS
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Request,
)
from symbiont_ecology.model.backend.bank import Arrangement, SlotBank
from symbiont_ecology.model.backend.torch_backend import backend_for
from symbiont_ecology.model.budget import MemoryBudget, Output, within
from symbiont_ecology.model.codec import TextCodec, Texts
from symbiont_ecology.model.decoder import Decoder, digest_of, layout_of, norms_of
from symbiont_ecology.model.decoding import Observer, Writer, uniforms_of
from symbiont_ecology.model.learning import Example, Reading, check_lessons, learning_step, read
from symbiont_ecology.model.loading import (
    find_device,
    find_dtype,
    keep_freed_memory,
    load_decoder,
    read_model_config,
)
from symbiont_ecology.model.locating import find_folder
from symbiont_ecology.model.sketches import embeddings, sketcher_of, sketches


class HostKernel:
    """A frozen causal language model with ``slots`` places for adapters of at most ``rank``.

    Slot numbers run from 0; ``HOST_SLOT`` (-1) is the host without adapter. Make one with
    ``from_pretrained``. Every verb raises ``HostError`` for a slot that does not exist, a prompt
    without tokens, or a row longer than the host's positions. ``codec`` is text to token ids and
    back; its ``encode`` and ``encode_answers`` are the kernel's, too.
    """

    def __init__(
        self,
        decoder: Decoder,
        codec: TextCodec,
        *,
        slots: int,
        rank: int,
        targets: Sequence[str] | None = None,
        memory_mb: float = 2048,
    ) -> None:
        self.name_or_path = str(codec.folder)
        self.slots = slots
        self.rank = rank
        self.layout = layout_of(decoder, targets)
        self._decoder, self.shape, self.codec = decoder, decoder.shape, codec
        codec.vocab = decoder.shape.vocab
        self.encode, self.encode_answers = codec.encode, codec.encode_answers
        self._fingerprints: dict[bool, str] = {}  # by ``is_chat``
        device, dtype = decoder.device, decoder.dtype
        self._budget = MemoryBudget(memory_mb, decoder.shape, dtype.itemsize, device.type == "cpu")
        self.longest_lesson = self._budget.longest_lesson
        """Tokens of a prompt and its answer that there is room and memory to learn from."""
        arrangement = Arrangement(decoder.sites, self.layout, rank)
        backend = backend_for(device, dtype)
        self._new_bank = partial(backend.bank, arrangement, device=device, dtype=dtype)
        self._bank = self._new_bank(slots=slots)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        slots: int = 16,
        rank: int = 8,
        targets: Sequence[str] | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        memory_mb: float = 2048,
        is_chat: bool = False,
        date: str = DATE,
        prefer_fused: bool = True,
    ) -> HostKernel:
        """Loads a host: ``"embedded"``, a local folder, or a name on the Hugging Face hub.

        Args:
            name_or_path: a local folder wins over the hub; ``HF_HUB_OFFLINE`` is honoured.
            slots: adapters held at once.
            rank: the largest rank that a slot can hold.
            targets: endings of module names that carry adapters, such as ``["q_proj", "v_proj"]``;
                all linear modules of the decoder layers when None.
            device: a torch device.
            dtype: ``float32``, ``bfloat16``, ``float16``, ``int8``; adapters learn in float32.
            memory_mb: megabytes that a batch may take beside host and slots; larger batches go in
                pieces.
            is_chat: puts every prompt into the host's chat template.
            date: the day that a chat template prints as today's, such as 2026-01-01.
            prefer_fused: False computes a Llama-like host through transformers as well.

        Raises:
            HostError: the host cannot be found or read.
        """
        if not (1 <= slots <= MAX_SLOTS and rank >= 1 and memory_mb > 0):
            raise HostError(
                f"expected 1 to {MAX_SLOTS} slots, a rank of 1 or more and memory_mb > 0, got "
                f"slots={slots}, rank={rank}, memory_mb={memory_mb}"
            )
        keep_freed_memory()  # before the first large allocation
        place, precision = find_device(device), find_dtype(dtype)
        folder = find_folder(name_or_path)
        config = read_model_config(folder)
        codec = TextCodec(folder, config, is_chat=is_chat, date=date)
        decoder = load_decoder(folder, config, place, precision, prefer_fused=prefer_fused)
        return cls(decoder, codec, slots=slots, rank=rank, targets=targets, memory_mb=memory_mb)

    @property
    def memory_mb(self) -> float:
        """Megabytes that a batch may take; halved whenever the device turned out to have less."""
        return self._budget.megabytes

    @property
    def modules(self) -> tuple[tuple[str, int, int], ...]:
        """All linear modules of the decoder layers, adapted or not: ``(name, d_in, d_out)``."""
        return layout_of(self._decoder).modules

    def fingerprint(self, *, is_fresh: bool = False) -> str:
        """Return the hash (hex) of all that decides an answer: every base weight, config,
        tokenizer, chat template.

        It never changes, and is the same on every path through a host. It is kept once it is known;
        ``is_fresh`` computes it from the weights as they are.
        """
        is_chat = self.codec.is_chat
        if is_fresh or is_chat not in self._fingerprints:
            self._fingerprints[is_chat] = digest_of(self._decoder, self.codec.identity())
        return self._fingerprints[is_chat]

    @cached_property
    def norms(self) -> Mapping[str, float]:
        """‖W‖ (Frobenius) of every adapted module's base weights, by name."""
        return norms_of(self._decoder, self.layout)

    def check(self, weights: AdapterWeights) -> None:
        """Refuses an adapter that ``place`` would refuse."""
        self._bank.check(weights)

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Puts an adapter into a slot; free when the slot already holds this very object.

        Raises:
            AdapterError: its rank is larger than the kernel's, or it belongs to another layout.
        """
        self._bank.place(self._slot(slot), weights)

    def weights_of(self, slot: int) -> AdapterWeights:
        """Return the adapter in a slot.

        Raises:
            HostError: the slot is empty.
        """
        weights = self._bank.held(self._slot(slot))
        if weights is None:
            raise HostError(f"expected an adapter in slot {slot}, found none: place one first")
        return weights

    def attach(self, peft_folder: str | Path) -> int:
        """Reads a LoRA folder of PEFT or mlx-lm into the first free slot and returns its number.

        Raises:
            AdapterError: the folder cannot be used, or no slot is free.
        """
        free = [slot for slot in range(self.slots) if self._bank.held(slot) is None]
        if not free:
            raise AdapterError(f"expected a free slot, all {self.slots} are taken: detach one")
        self.place(free[0], read_peft(peft_folder, self.layout))
        warn_of_base(peft_folder, self.name_or_path)
        return free[0]

    def detach(self, slot: int) -> None:
        """Empties a slot: it then answers as the bare host.

        Raises:
            HostError: the slot is empty.
        """
        self.weights_of(slot)
        self._bank.place(slot, None)

    def export(self, slot: int, folder: str | Path, *, model_card: str = "") -> None:
        """Writes a slot's adapter as a PEFT folder that ``PeftModel.from_pretrained`` loads."""
        adapted = set(self.layout.modules)
        unadapted = [module[0] for module in self.modules if module not in adapted]
        write_peft(
            folder,
            self.weights_of(slot),
            base_model=self.name_or_path,
            unadapted=unadapted,
            fan_in_fan_out=self._decoder.fan_in_fan_out,
            model_card=model_card,
        )

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
        observer: Observer | None = None,
    ) -> Completions:
        """Answer every row in one batch, whichever slots they belong to.

        Args:
            rows: prompts; ``slot`` may be ``HOST_SLOT``.
            draws: one generator per row; a row without one answers greedily, as all do when the
                decoding is greedy. A row's text depends on its own generator alone.
            decoding: the rule that picks tokens.
            observer: sees the low-rank terms of every step, and may change them. Prompts then have
                two tokens or more.
        """
        for row in rows:
            self._known(row.slot)
        limits = [row.max_new_tokens for row in rows]
        if min(limits, default=0) < 0:
            raise HostError(f"expected max_new_tokens >= 0, got {min(limits)}")
        prompts = self.encode([row.prompt for row in rows])
        check_lengths(self.shape, map(len, prompts), limits)
        if observer is not None and min(map(len, prompts), default=2) < 2:
            raise HostError("expected prompts of two tokens or more to observe, got one of one")
        draws = draws_of(draws, len(rows), is_drawn=decoding.temperature > 0)
        uniforms = uniforms_of(draws, limits)
        host = self._decoder, self._bank, self.codec

        def write(budget: MemoryBudget) -> Completions:
            writer = Writer(*host, budget, rows, prompts, uniforms, decoding, observer)
            return writer.completions()

        return self._within_memory(write)

    def yield_between_pieces(self, between: Callable[[], None]) -> None:
        """Calls this between pieces of learning, scoring, sketching and embedding. It may use what
        ``decoding_parts`` and ``with_own_slots`` made, and no verb of the kernel."""
        self._budget = replace(self._budget, between=between)

    def decoding_parts(self, slots: int) -> tuple[Decoder, SlotBank, MemoryBudget]:
        """Return what writes rows, with so many slots of its own: for a service, which writes them
        token by token."""
        return self._decoder, self._new_bank(slots=slots), self._budget

    def with_own_slots(self, slots: int) -> HostKernel:
        """Return the same host with so many slots of its own. It may be used where
        ``yield_between_pieces`` says."""
        kernel = copy(self)
        kernel.slots = slots
        kernel._bank = self._new_bank(slots=slots)
        kernel.yield_between_pieces(lambda: None)
        return kernel

    def generate(
        self,
        prompts: Sequence[str],
        slots: int | Sequence[int],
        max_new_tokens: int = 16,
        min_new_tokens: int = 0,
    ) -> list[str]:
        """Return greedy answers as text; ``slots`` is one slot for all prompts or one for each."""
        rows = [
            Request(prompt, slot, max_new_tokens)
            for prompt, slot in zip(prompts, slot_of_each(slots, prompts), strict=True)
        ]
        return list(self.rollout(rows, None, Decoding(min_new_tokens=min_new_tokens)).texts)

    def score(
        self, prompts: Texts, completions: Texts, slots: int | Sequence[int]
    ) -> list[torch.Tensor]:
        """Return the log-probability (nats) of each completion's tokens given its prompt: one 1-D
        tensor per row.

        A prompt is tokenised with special tokens, a completion without, and the ids are joined;
        both may also be given as ids.
        """
        readings = self.read(prompts, completions, slots)
        return [reading.log_probabilities for reading in readings]

    def read(self, prompts: Texts, completions: Texts, slots: int | Sequence[int]) -> list[Reading]:
        """Score completions, and tell which of their tokens are the likeliest."""
        examples = self._examples(prompts, completions, slots)
        return self._within_memory(partial(read, self._decoder, self._bank, examples))

    def _examples(
        self, prompts: Texts, completions: Texts, slots: int | Sequence[int]
    ) -> list[Example]:
        owners = [self._known(slot) for slot in slot_of_each(slots, prompts)]
        if len(completions) != len(prompts):
            raise HostError(
                f"expected a completion for each of {len(prompts)} prompts, got {len(completions)}"
            )
        prompt_ids = self.codec.ids(prompts, is_prompt=True)
        completion_ids = self.codec.ids(completions, is_prompt=False)
        check_lengths(self.shape, map(len, prompt_ids), (len(ids) - 1 for ids in completion_ids))
        return list(map(Example, prompt_ids, completion_ids, owners))

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Return what each answer would teach the bare host, as unit vectors ``(rows,
        dimensions)``.

        Their cosine says whether two answers teach the same (``model.sketches``). Slots stay out.
        """
        sketcher = sketcher_of(self.layout, self.rank, self.shape)
        answers = self._examples(prompts, completions, HOST_SLOT)
        return self._within_memory(partial(sketches, self._decoder, sketcher, answers))

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Return embeddings of answers that the bare host has read, ``(rows, dimensions)``
        (``model.sketches``). Slots stay out."""
        answers = self._examples(prompts, completions, HOST_SLOT)
        return self._within_memory(partial(embeddings, self._decoder, answers))

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        """Make a clipped Adam step of every slot with lessons: one forward, one backward for all.

        Pure: the slots of the kernel are neither read nor written, so place what comes back. Slots
        without lessons come back as they were. A slot whose loss, gradient or new weights are not
        finite gets its old weights and optimizer state back and is named in ``statistics.sick``;
        its neighbours do not notice.

        Raises:
            ValueError: a lesson's slot has no weights or no learning rate, or a lesson has weights
                for another number of tokens than its completion has.
            AdapterError: an adapter has a larger rank than the kernel, or another layout.
        """
        check_lessons(batch, weights)
        for adapter in weights.values():
            self.check(adapter)
        texts = list(dict.fromkeys(lesson.prompt for lesson in batch.lessons))
        prompts = dict(zip(texts, self.encode(texts), strict=True))
        lengths = (len(prompts[lesson.prompt]) for lesson in batch.lessons)
        check_lengths(self.shape, lengths, (len(lesson.completion) for lesson in batch.lessons))
        step = partial(learning_step, self._decoder, self.layout, batch, prompts=prompts)
        return self._within_memory(partial(step, weights=weights, optimizer_state=optimizer_state))

    def _within_memory(self, work: Callable[[MemoryBudget], Output]) -> Output:
        """Does the work in pieces that fit, and remembers how small they had to be."""
        output, self._budget = within(self._budget, work)
        return output

    def _slot(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise HostError(f"expected a slot from 0 to {self.slots - 1}, got {slot}")
        return slot

    def _known(self, slot: int) -> int:
        return slot if slot == HOST_SLOT else self._slot(slot)


def slot_of_each(slots: int | Sequence[int], prompts: Sequence[object]) -> list[int]:
    """Return one slot per row, where all rows may share one.

    Raises:
        HostError: one text came instead of a list, or not as many slots as prompts.
    """
    if isinstance(prompts, str):
        raise HostError("expected a list of prompts, got one text: put it in a list")
    if isinstance(slots, int | Integral):
        return [int(slots)] * len(prompts)
    if len(slots) != len(prompts):
        raise HostError(f"expected one slot for each of {len(prompts)} prompts, got {len(slots)}")
    return [int(slot) for slot in slots]


def check_lengths(shape: HostShape, prompts: Iterable[int], answers: Iterable[int]) -> None:
    """Check that every prompt has room for its answer; both are numbers of tokens.

    Raises:
        HostError: one has not.
    """
    longest = max((sum(pair) for pair in zip(prompts, answers, strict=True)), default=0)
    if longest > shape.max_positions:
        raise HostError(
            f"expected at most {shape.max_positions} tokens for prompt and answer, "
            f"got {longest}: shorten the prompt or max_new_tokens"
        )


def draws_of(
    draws: Sequence[np.random.Generator | None] | None, rows: int, *, is_drawn: bool
) -> Sequence[np.random.Generator | None]:
    """Return one generator per row, None for those that draw nothing.

    Raises:
        ValueError: something is drawn, and there are not as many generators as rows.
    """
    if not is_drawn:
        return [None] * rows
    if draws is None or len(draws) != rows:
        raise ValueError(
            f"expected one generator for each of {rows} sampled rows, got {draws and len(draws)}"
        )
    return draws
