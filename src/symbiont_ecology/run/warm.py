"""Learning before anybody is asked: the warm start of founders, and the first steps of
newborns.

Verdicts alone teach nothing where nothing is ever right. So every founder without parents may begin
with an adapter that has learned a handful of gold examples, instead of the host itself. The
examples are a function of the run's seed, so all arms of a comparison have the same ones. In a
world with users they are answered as the tasks themselves want it, whoever asks. Newborns learn
what their users accepted. The world pays for both, as it pays the dowry; the compute counts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from symbiont_ecology.adapters import AdapterWeights, OptimizerState
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.events import Event, WarmStarted
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, LearningBatch, Lesson, OrganelleId
from symbiont_ecology.ecology.users import (
    DIRECTIONS,
    Basis,
    RememberedAnswer,
    SketchSpace,
    written_vector,
)
from symbiont_ecology.run.act import costs_of
from symbiont_ecology.run.learn import learn_answers
from symbiont_ecology.run.remember import embedded, sketched
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.run.settle import install
from symbiont_ecology.tasks.mixture import TaskMixture

PASSES, BATCH = 8, 8
"""Passes over the examples, and examples of a step. On SmolLM2 16 passes were no better than 8."""
MAX_ANSWERS = 24
"""Answers in one step of a newborn."""


def warm_examples(tasks: TaskMixture, per_cell: int, draw: Draw) -> tuple[Item, ...]:
    """Return different questions of the train split: so many of each cell, or all where it has
    fewer."""
    return tuple(
        item
        for cell in tasks.cells
        for item in tasks.families[cell[0]].distinct(cell[1], per_cell, draw("warm", *cell))
    )


def warm_start(context: GenerationContext) -> list[WarmStarted]:
    """Learn the examples, if the strategy wants some, and keep the adapter for all founders."""
    state, host, strategy = context.state, context.host, context.strategy
    if not strategy.warm:
        return []
    items = warm_examples(context.tasks, strategy.warm, context.draw)
    prompts = [item.prompt for item in items]
    answers = host.encode_answers([item.answer for item in items])
    costs = costs_of(prompts, answers, host, host.shape.learning_flops, context.rank)
    spent, losses = Cost(), list[float]()
    generator = context.draw("warm", "founder")
    weights = {0: AdapterWeights.random(host.layout, context.rank, 1.0, generator)}
    states = {0: OptimizerState()}
    for batch in _batches(len(items), context.draw):
        lessons = tuple(Lesson(prompts[place], answers[place], 0) for place in batch)
        learning_batch = LearningBatch(lessons, {0: strategy.warm_rate})
        weights, states, statistics = host.learn(learning_batch, weights, states)
        spent = sum((costs[place] for place in batch), spent + Cost(calls=1))
        losses.append(statistics.loss.get(0, 0.0))
        if 0 in statistics.sick:
            raise ConfigError(
                f"strategy.warm_rate: {strategy.warm_rate:g} made the weights not finite in step "
                f"{len(losses)} of the warm start: take a smaller one"
            )
    state.spent += spent
    state.warm = context.store.put_weights(weights[0])
    if "sketches" in strategy.wants and host.shape.is_large:  # where it was measured (docs/log.md)
        _keep_examples(items, answers, context)
    names, loss = tuple(item.id for item in items), float(np.mean(losses[-len(losses) // PASSES :]))
    facts = strategy.warm, names, len(items) * PASSES, spent.flops, loss, state.warm
    return [WarmStarted(state.generation, *facts)]


def warm_newborns(
    initial_steps: Mapping[OrganelleId, int], context: GenerationContext
) -> list[Event]:
    """Make so many steps of each newborn on the remembered answers of its users, each step on
    some of them by draw. All newborns of a generation learn in one batch."""
    state = context.state
    answers: dict[OrganelleId, list[RememberedAnswer]] = defaultdict(list)
    for server, answer in state.accepted_answers() if initial_steps else ():
        if server in initial_steps:
            answers[server].append(answer)
    events, steps = list[Event](), range(max(map(initial_steps.__getitem__, answers), default=0))
    for step in steps:
        portions = {}
        for name, own in answers.items():
            if name in state.population and step < initial_steps[name]:  # who fell sick is gone
                order = context.draw("meal", name, step).permutation(len(own))[:MAX_ANSWERS]
                portions[name] = [own[place] for place in order]
        updates = learn_answers(portions, context)
        events += [update.learned for update in updates]
        events += install(updates, state)
    return events


def _keep_examples(
    items: Sequence[Item], ids: Sequence[tuple[int, ...]], context: GenerationContext
) -> None:
    """Keep the examples as if they had been accepted: their sketches, less the mean sketch of the
    family, which says nothing of who wants what. Where all replies are open and the examples are
    enough, also the basis of each family, and their coordinates."""
    answers = [
        RememberedAnswer(
            item.family, item.depth, item.prompt, tokens, is_accepted=True, reply=item.answer
        )
        for item, tokens in zip(items, ids, strict=True)
    ]
    places: dict[str, list[int]] = defaultdict(list)
    for place, answer in enumerate(answers):
        places[answer.family].append(place)
    sketches, families = sketched(answers, context), context.tasks.families
    means = {family: sketches[own].mean(0) for family, own in places.items()}
    examples = [
        answer.sketched(sketch - means[answer.family])
        for answer, sketch in zip(answers, sketches, strict=True)
    ]
    bases = dict[str, Basis]()
    if all(families[name].is_open and len(own) > DIRECTIONS for name, own in places.items()):
        embeddings = embedded(answers, context)
        bases = {family: Basis.of(embeddings[own]) for family, own in places.items()}
        examples = [
            example.located(bases[example.family].coordinates(embedding))
            for example, embedding in zip(examples, embeddings, strict=True)
        ]
    context.state.sketch_space = SketchSpace(
        {family: written_vector(mean) for family, mean in means.items()},
        {family: basis.written() for family, basis in bases.items()},
        tuple(examples),
    )


def _batches(examples: int, draw: Draw) -> list[np.ndarray]:
    """Return the examples of each step by their places; every pass has another order."""
    orders = [draw("warm", "pass", number).permutation(examples) for number in range(PASSES)]
    return [order[start : start + BATCH] for order in orders for start in range(0, examples, BATCH)]
