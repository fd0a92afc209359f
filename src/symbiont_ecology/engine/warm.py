"""The warm start: a few reference answers that one adapter learns before anybody is founded.

Verdicts alone teach nothing where nothing is ever right. So every founder without parents may begin
with an adapter that has learned a handful of gold examples, instead of the host itself. The
examples are a function of the run's seed, so all arms of a comparison have the same ones. In a
world with habitats they are answered as the tasks themselves want it, whoever asks.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from symbiont_ecology.ecology.basis import DIRECTIONS, Basis
from symbiont_ecology.ecology.habitats import RememberedAnswer, written_vector
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.news import with_news
from symbiont_ecology.engine.remember import embedded, sketched
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.events import WarmStarted
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Item, LearningBatch, Lesson
from symbiont_ecology.weights import AdapterWeights, OptimizerState

PASSES, BATCH = 8, 8
"""Passes over the examples, and examples of a step. On SmolLM2 16 passes were no better than 8."""


def warm_examples(tasks: TaskMixture, per_cell: int, draw: Draw) -> tuple[Item, ...]:
    """Different questions of the train split: so many of each cell, or all where it has fewer.

    Raises:
        ConfigError: a task has no reference answers.
    """
    items = [
        item
        for cell in tasks.cells
        for item in tasks.families[cell[0]].distinct(cell[1], per_cell, draw("warm", *cell))
    ]
    if unanswered := [item.family for item in items if not item.answer]:
        raise ConfigError(
            f"strategy.warm: expected tasks with reference answers, {unanswered[0]!r} has none: "
            "leave it out, or set strategy.warm=0"
        )
    return tuple(items)


def warm_start(turn: Turn) -> list[WarmStarted]:
    """Learns the examples, if the strategy wants some, and keeps the adapter for all founders.

    The compute counts as any other does. Nobody pays energy for it: the world does, as it pays the
    dowry of who is founded.
    """
    state, host, strategy = turn.state, turn.host, turn.strategy
    if not strategy.warm:
        return []
    items = warm_examples(turn.tasks, strategy.warm, turn.draw)
    lessons, cost = _lessons(items, turn), Cost()
    generator = turn.draw("warm", "founder")
    weights = {0: AdapterWeights.random(host.layout, turn.rank, 1.0, generator)}
    states, losses = {0: OptimizerState()}, list[float]()
    batches = list(_batches(items, turn.draw))
    turn.tell(f"warm start on {len(items)} examples …")
    for batch in with_news(batches, "warm start", turn.tell):
        pairs = [lessons[item.id] for item in batch]
        rates = {0: strategy.warm_rate}
        learning_batch = LearningBatch(tuple(lesson for lesson, _ in pairs), rates)
        weights, states, statistics = host.learn(learning_batch, weights, states)
        cost += sum((price for _, price in pairs), Cost(calls=1))
        losses.append(statistics.loss.get(0, 0.0))
        if 0 in statistics.sick:
            raise ConfigError(
                f"strategy.warm_rate: {strategy.warm_rate:g} made the weights not finite in step "
                f"{len(losses)} of the warm start: take a smaller one"
            )
    state.spent += cost
    state.warm = turn.store.put_weights(weights[0])
    if strategy.needs_sketches and host.shape.is_wide:  # where it was measured (docs/log.md)
        _read_examples(items, lessons, turn)
    last_pass = losses[-len(losses) // PASSES :]
    return [
        WarmStarted(
            state.generation,
            per_cell=strategy.warm,
            items=tuple(item.id for item in items),
            lessons=len(items) * PASSES,
            flops=cost.flops,
            loss=float(np.mean(last_pass)),
            weights=state.warm,
        )
    ]


def _read_examples(
    items: Sequence[Item], lessons: Mapping[str, tuple[Lesson, Cost]], turn: Turn
) -> None:
    """Keeps the examples as if they had been accepted: their sketches, less the mean sketch of the
    family, which says nothing of who wants what. Where all replies are open and the examples are
    enough, also the basis of each family, and their coordinates."""
    answers = [
        RememberedAnswer(
            item.family,
            item.depth,
            item.prompt,
            lessons[item.id][0].completion,
            is_accepted=True,
            reply=item.answer,
        )
        for item in items
    ]
    places: dict[str, list[int]] = defaultdict(list)
    for place, answer in enumerate(answers):
        places[answer.family].append(place)
    sketches, state = sketched(answers, turn), turn.state
    means = {family: sketches[own].mean(0) for family, own in places.items()}
    examples = [
        answer.sketched(sketch - means[answer.family])
        for answer, sketch in zip(answers, sketches, strict=True)
    ]
    families = turn.tasks.families
    if all(families[name].is_open and len(own) > DIRECTIONS for name, own in places.items()):
        embeddings = embedded(answers, turn)
        bases = {family: Basis.of(embeddings[own]) for family, own in places.items()}
        examples = [
            example.located(bases[example.family].coordinates(embedding))
            for example, embedding in zip(examples, embeddings, strict=True)
        ]
        state.bases = {family: basis.written() for family, basis in bases.items()}
    state.common = {family: written_vector(mean) for family, mean in means.items()}
    state.examples = tuple(examples)


def _lessons(items: Sequence[Item], turn: Turn) -> Mapping[str, tuple[Lesson, Cost]]:
    """The lesson of each example by its id, with what it takes."""
    host, lessons = turn.host, dict[str, tuple[Lesson, Cost]]()
    answers = host.encode_answers([item.answer for item in items])
    lengths = map(len, host.encode([item.prompt for item in items]))
    parameters = host.layout.size(turn.rank)
    for item, ids, read in zip(items, answers, lengths, strict=True):
        flops = host.shape.learning_flops(parameters, read, len(ids))
        cost = Cost.computed(flops, read, len(ids))
        lessons[item.id] = Lesson(item.prompt, ids, 0), cost
    return lessons


def _batches(items: Sequence[Item], draw: Draw) -> Iterator[list[Item]]:
    """The examples of each step; every pass has another order."""
    for number in range(PASSES):
        order = draw("warm", "pass", number).permutation(len(items))
        for start in range(0, len(items), BATCH):
            yield [items[place] for place in order[start : start + BATCH]]
