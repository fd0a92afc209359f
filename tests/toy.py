"""A host small enough for a thousand generations in a test: a real softmax policy, without torch.

It answers a terse prompt with one of the family's three conventions, or with nonsense. Logits are a
habit of the payload plus ΔW · x, where x stands for the family and ΔW = scaling · B · A is a real
LoRA adapter. So rollouts, gradients, Adam's moments and slots are what they are on a language
model, only smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Lesson,
    Request,
    last_turn,
)
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.model.sketches import Sketcher
from symbiont_ecology.run.build import build_runtime
from symbiont_ecology.run.config import LoopConfig, RunConfig
from symbiont_ecology.run.runtime import Runtime
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.config import TasksConfig, UsersConfig
from symbiont_ecology.tasks.synthetic.family import SyntheticTask

FEATURES, OPTIONS = 12, 4
END = 1
LAYOUT = AdapterLayout((("policy", FEATURES, OPTIONS),))


class Crash(BaseException):
    """A death that nothing catches, like SIGKILL, but in one process."""


@dataclass(frozen=True)
class ToyShape(HostShape):
    """The toy's sizes, as far as costs depend on them."""

    layers: int = 1
    hidden: int = FEATURES
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 6
    feed_forward: int = 0
    vocab: int = 128
    max_positions: int = 1 << 30
    linear_parameters: int = 2000
    parameters: int = 0


@dataclass
class ToyHost:
    """Fulfils ``engine.runtime.Host``.

    ``poison`` maps the number of a learning call to the slot whose gradient turns NaN in it; the
    call number ``crash_at`` (rollouts, learning and scoring counted together, from 0) never
    returns.
    """

    slots: int = 32
    rank: int = 8
    seed: int = 0
    poison: Mapping[int, int] = field(default_factory=dict)
    crash_at: int | None = None
    memory_mb: float = 64.0
    layout: AdapterLayout = LAYOUT
    shape: ToyShape = field(default_factory=ToyShape)
    rolled: list[int] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)
    scored: list[int] = field(default_factory=list)
    _placed: dict[int, AdapterWeights] = field(default_factory=dict)

    @property
    def norms(self) -> Mapping[str, float]:
        """As if the policy had weights of length 2."""
        return {"policy": 2.0}

    def fingerprint(self) -> str:
        """Two toys with different habits are different hosts."""
        return f"toy-{self.seed}"

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """A start token and one token per letter."""
        return [np.array([0, *map(ord, prompt)]) for prompt in prompts]

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """One token per letter, and the end."""
        return [(*map(ord, answer), END) for answer in answers]

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Copies an adapter into a slot."""
        assert 0 <= slot < self.slots
        self._placed[slot] = weights

    def weights_of(self, slot: int) -> AdapterWeights:
        """What stands in a slot."""
        return self._placed[slot]

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
        observer: Any = None,
    ) -> Completions:
        """One of four replies for every row; greedy when the temperature is 0, or the row has no
        generator. A reply is one decision.
        """
        self._count(self.rolled, len(rows))
        replies, chances = [], []
        for index, (row, draw) in enumerate(zip(rows, draws or [None] * len(rows), strict=True)):
            texts, logits, features = _scene(row.prompt, self.seed)
            if row.slot != HOST_SLOT:
                logits = logits + self._term(row.slot, features, index, observer)
            log_p = _log_softmax(logits)
            if decoding.temperature == 0 or draw is None:
                option = int(np.argmax(log_p))
            else:
                place = np.searchsorted(np.cumsum(np.exp(log_p)), draw.random())
                option = min(int(place), OPTIONS - 1)
            replies.append(_tokens(texts[option], row.max_new_tokens))
            chances.append(log_p[option])
        width = max(map(len, replies), default=0)
        ids = np.zeros((len(rows), width), np.int64)
        log_probabilities = np.zeros((len(rows), width), np.float32)
        for index, reply in enumerate(replies):
            ids[index, : len(reply)] = reply
            log_probabilities[index, 0] = chances[index]
        return Completions(
            tuple("".join(chr(token) for token in reply if token != END) for reply in replies),
            ids,
            log_probabilities,
            np.array([len(reply) for reply in replies]),
            np.array([len(row.prompt) + 1 for row in rows]),
        )

    def _term(self, slot: int, features: np.ndarray, row: int, observer: Any) -> np.ndarray:
        """What an adapter adds to the logits of a row, and an observer (``host.decoding``) to
        that."""
        weights = self._placed[slot]
        if observer is None:
            return weights.delta("policy").astype(np.float64) @ features
        import torch  # so that a toy can do without

        from symbiont_ecology.model.backend.lowrank import Factors, Tiling

        ((_, a, b),) = weights.factors()
        padded = ((0, self.rank - weights.rank), (0, 0))
        a, b = (torch.tensor(np.pad(one, padded))[None] for one in (a, weights.scaling * b.T))
        tiling, x = Tiling((slot,), 1, None, None), torch.tensor(features[None])
        adapters = (Factors(a.double(), (b.double(),), (OPTIONS,)),)
        (term,) = observer(np.array([row]), 0, adapters, tiling)
        return np.asarray(term.add_to(torch.zeros(1, OPTIONS).double(), x, tiling)[0])

    def score(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slots: Sequence[int]
    ) -> list[np.ndarray]:
        """Log-probability of each reply: all of it at its first token, since it is one decision."""
        self._count(self.scored, len(prompts))
        scores = []
        for prompt, completion, slot in zip(prompts, completions, slots, strict=True):
            _, logits, features = _scene(prompt, self.seed)
            if slot != HOST_SLOT:
                logits = logits + self._term(slot, features, 0, None)
            log_p = _log_softmax(logits)
            values = np.zeros(len(completion))
            values[0] = log_p[self._option(prompt, tuple(completion))]
            scores.append(values)
        return scores

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Of the gradient at the bare toy, as every host has it."""
        sketcher, sketches = Sketcher(LAYOUT, 4, self.shape), []
        for prompt, completion in zip(prompts, completions, strict=True):
            lesson = Lesson(prompt, tuple(completion), 0)
            _, gradient = self._gradient([lesson], sketcher.adapter, len(completion))
            sketches.append(sketcher.sketch(gradient))
        return np.array(sketches)

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Which reply it is, and something that depends on the prompt: ``(rows, OPTIONS +
        FEATURES)``."""
        rows = np.zeros((len(prompts), OPTIONS + FEATURES))
        for row, prompt, completion in zip(rows, prompts, completions, strict=True):
            row[self._option(prompt, tuple(completion))] = 1.0
            row[OPTIONS:] = np.random.default_rng(list(prompt.encode())).random(FEATURES)
        return rows

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        """One clipped Adam step for every slot with lessons; a slot that meets a NaN comes back as
        it was."""
        number = len(self.learned)
        self._count(self.learned, len(batch.lessons))
        new_weights, new_states = dict(weights), dict(optimizer_state)
        losses, norms, tokens, sick = {}, {}, {}, []
        for slot in sorted({lesson.slot for lesson in batch.lessons}):
            lessons = [lesson for lesson in batch.lessons if lesson.slot == slot]
            tokens[slot] = sum(len(lesson.completion) for lesson in lessons)
            loss, gradient = self._gradient(lessons, weights[slot], tokens[slot])
            if self.poison.get(number) == slot:
                gradient = gradient * np.nan
            losses[slot], norms[slot] = loss, float(np.linalg.norm(gradient))
            gradient *= min(1.0, batch.clip / (norms[slot] + 1e-6))
            rate = batch.learning_rates[slot]
            after = _adam(weights[slot], optimizer_state[slot], gradient, rate)
            if np.isfinite(after[0].vector).all():
                new_weights[slot], new_states[slot] = after
            else:
                sick.append(slot)
        return new_weights, new_states, LearningStatistics(losses, norms, tokens, tuple(sick))

    def _gradient(
        self, lessons: Sequence[Any], weights: AdapterWeights, tokens: int
    ) -> tuple[float, np.ndarray]:
        ((_, a, b),) = weights.factors()
        delta, loss = weights.delta("policy").astype(np.float64), 0.0
        slope = np.zeros((OPTIONS, FEATURES))
        for lesson in lessons:
            _, habit, features = _scene(lesson.prompt, self.seed)
            log_p = _log_softmax(habit + delta @ features)
            option = self._option(lesson.prompt, lesson.completion)
            weight = np.ravel(lesson.weight)[0]  # the decision is in the first token
            loss -= weight * log_p[option] / tokens
            slope -= weight / tokens * np.outer(np.eye(OPTIONS)[option] - np.exp(log_p), features)
        to_a, to_b = weights.scaling * b.T @ slope, weights.scaling * (slope @ a.T).T
        return float(loss), np.concatenate([to_a.ravel(), to_b.ravel()])

    def _option(self, prompt: str, completion: tuple[int, ...]) -> int:
        """Which of the four replies it is."""
        texts, _, _ = _scene(prompt, self.seed)
        return [_tokens(text, len(completion)) for text in texts].index(completion)

    def _count(self, calls: list[int], rows: int) -> None:
        if len(self.rolled) + len(self.learned) + len(self.scored) == self.crash_at:
            raise Crash
        calls.append(rows)


def toy_config(
    seed: int = 0,
    generations: int = 10,
    families: Sequence[str] = ("math.add", "string.sort", "logic.bool"),
    economy: Prices | None = None,
    checkpoint_every: int = 3,
    train_flops: float | None = None,
    **components: Any,
) -> RunConfig:
    """A run in which organelles learn, breed and die within a dozen generations."""
    economy = economy or toy_prices(dowry=12_000, grace=1, cap=40_000)
    usual = {"strategy": toy_ecology(), "learning_rule": "policy_gradient", "allocator": "thompson"}
    ends = {"generations": generations, "train_flops": train_flops}
    loop = LoopConfig(checkpoint_every=checkpoint_every, **ends)
    parts = usual | components
    users = None
    with suppress(ConfigError):  # a wrong strategy is somebody else's finding
        if "cells" not in strategies.build(parts["strategy"]).worlds:
            users = UsersConfig(count=6, kinds=3, questions=6)
    tasks = TasksConfig(families=tuple(families), depths=("short",), users=users)
    return RunConfig(seed=seed, tasks=tasks, economy=economy, run=loop, **parts)


def toy_prices(**fields: int) -> Prices:
    """Prices at which a toy lives from hand to mouth, so that there are births and deaths."""
    dear = {"ticket": 500, "rent": 10_000, "lowest": 600, "cap": 120_000, "dowry": 30_000}
    return Prices(**(dear | fields))


def toy_ecology(breed_at: int = 20_000, least: int = 4, **fields: Any) -> dict[str, Any]:
    """The ecology in small, everybody asked alike; other fields as in ``strategies.ecology``."""
    breeding = {"at": breed_at, "mutation": "svd_noise"}
    small: dict[str, Any] = {"founders": 4, "capacity": 7, "questions": 3, "samples": 3}
    small["mechanisms"] = {"breeding": breeding, "refounding": {"least": least}}
    usual = {"kind": "ecology", "curriculum": "even", "learning_rate": 0.1, "aging": 0.0}
    return {**usual, **small, **fields}


def toy_runtime(
    folder: Path, config: RunConfig | None = None, host: ToyHost | None = None
) -> Runtime:
    """All parts of a run around a toy host."""
    return build_runtime(config or toy_config(), host or ToyHost(), folder)


@lru_cache(maxsize=50_000)
def _scene(prompt: str, seed: int) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """What could be replied to a prompt, how the habit leans, and what the adapter sees of it."""
    name, _, payload = last_turn(prompt).rstrip("\n").partition(": ")
    draw = Draw(seed)
    habit = 1.5 * draw("habit", prompt).standard_normal(OPTIONS)
    features = draw("family", name).standard_normal(FEATURES)
    features *= np.sqrt(FEATURES) / np.linalg.norm(features)
    task = tasks.build(name) if name in tasks.names() else None
    answers = task.answers(payload) if isinstance(task, SyntheticTask) else ("a", "b", "c")
    return (*answers, "?"), habit, features


def _tokens(text: str, limit: int) -> tuple[int, ...]:
    return (*map(ord, text), END)[:limit]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    normalised: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return normalised


def _adam(
    weights: AdapterWeights, optimizer_state: OptimizerState, gradient: np.ndarray, rate: float
) -> tuple[AdapterWeights, OptimizerState]:
    step, notes = optimizer_state.step + 1, optimizer_state.notes
    first, second = 0.1 * gradient, 0.05 * gradient**2
    if optimizer_state.first is not None and optimizer_state.second is not None:
        first = 0.9 * optimizer_state.first + first
        second = 0.95 * optimizer_state.second + second
    move = rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.95**step)) + 1e-8)
    grown = replace(weights, vector=(weights.vector - move).astype(np.float32))
    moments = first.astype(np.float32), second.astype(np.float32)
    return grown, OptimizerState(step, *moments, notes)
