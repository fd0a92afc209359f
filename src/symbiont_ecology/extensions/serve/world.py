"""The world of a service: its users ask what they like, and their verdicts are what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.errors import DataError, RunError
from symbiont_ecology.base.fence import FaultError, Fence
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import (
    Item,
    LoggedReply,
    OrganelleId,
    as_line,
    in_turns,
    judged_elsewhere,
    last_turn,
    prepend_phrase,
)
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.strategies import StrategyContext, strategies
from symbiont_ecology.extensions.serve.journal import JudgedReply
from symbiont_ecology.extensions.serve.messages import Ask
from symbiont_ecology.extensions.serve.tasks import ServiceUsers
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.tasks.mixture import TYPED, TaskMixture

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel


def judged_items(
    judged: Sequence[JudgedReply], tasks: TaskMixture, kernel: HostKernel, phrases: Sequence[str]
) -> tuple[Item, ...]:
    """Return items of judged replies, each with the reply, the verdict on it, and its author.

    Replies behind which the kernel cannot learn are left out: one that fills all positions has no
    room for its end. ``phrases`` may stand in front of a prompt.
    """
    items = [_judged_item(one, tasks) for one in judged]
    longest = kernel.longest_lesson
    return tuple(item for item in items if _lesson_tokens(item, kernel, phrases) <= longest)


def _judged_item(judged: JudgedReply, tasks: TaskMixture) -> Item:
    answer, verdict = judged.answer, judged.verdict
    text, known = answer.replies[verdict.choice], answer.log_probabilities
    score = known[verdict.choice] if known else None
    reply = LoggedReply(text, verdict.is_accepted, answer.organelle, score)
    item = typed_item(answer.user, answer.family, answer.prompt, tasks)
    return replace(item, logged=reply)


def _lesson_tokens(item: Item, kernel: HostKernel, phrases: Sequence[str]) -> int:
    """Return the tokens of prompt and reply as they are learned, behind the longest phrase."""
    assert item.logged is not None
    prompts = [prepend_phrase(phrase, item.prompt) for phrase in ("", *phrases)]
    (reply,) = kernel.encode_answers([item.logged.text])
    return max(map(len, kernel.encode(prompts))) + len(reply)


@dataclass(frozen=True)
class ServingSnapshot:
    """The run between two generations: the living with their weights, and who serves which user.

    A generation changes the state while the service goes on answering. So it answers from a
    snapshot, which no generation touches.
    """

    context: GenerationContext
    weights: Mapping[OrganelleId, AdapterWeights]

    @classmethod
    def of(cls, context: GenerationContext) -> ServingSnapshot:
        """Return a copy of all that decides who is asked."""
        state = context.state
        copy = replace(
            state,
            population=dict(state.population),
            dormant=dict(state.dormant),
            users=dict(state.users),
            posteriors={name: dict(posterior) for name, posterior in state.posteriors.items()},
        )
        weights = {
            name: context.store.weights(o.genome.weights) for name, o in state.population.items()
        }
        return cls(replace(context, state=copy), weights)

    def takers(self, asks: Sequence[Ask]) -> list[OrganelleId]:
        """Choose who answers each request: the strategy's own choice of a server for the user, as
        in a generation, with an allocator's draw for users without one; else the bare host.

        Raises:
            RunError: the strategy fails.
        """
        run, world = self.context, self.context.tasks.users
        assert world is not None
        typed = (typed_item(ask.user, ask.family, ask.prompt, run.tasks, ask.limit) for ask in asks)
        items = tuple(replace(item, id=str(place)) for place, item in enumerate(typed))
        users = ServiceUsers(world.config, items)
        # Not the generation's own draw: users who come one by one must not all meet the same.
        draw = Draw(int(_chance().integers(1 << 63)), run.state.generation)
        context = replace(run.strategy_context, tasks=replace(run.tasks, users=users), draw=draw)
        try:
            with Fence() as fence:
                takers = fence(self._chosen, context)
        except FaultError as error:
            # Its text may quote words of users.
            part, kind = strategies.called(run.strategy), type(error.__cause__ or error).__name__
            raise RunError(f"nobody was chosen to answer: {part} raised {kind}") from error
        return [takers.get(item.id, HOST) for item in items]

    def _chosen(self, context: StrategyContext) -> dict[str, OrganelleId]:
        """Return the strategy's choice for each item, by its id."""
        takers = {
            item.id: assignment.organelle_id
            for assignment in self.context.strategy.ask(context)
            for item in assignment.items
        }
        for organelle_id in set(takers.values()):
            self.adapter(organelle_id)
        return takers

    def adapter(self, organelle_id: OrganelleId) -> AdapterWeights | None:
        """Return the weights of an organelle; None for the bare host.

        Raises:
            DataError: it does not live any more.
        """
        if organelle_id == HOST:
            return None
        if organelle_id not in self.weights:
            raise DataError(f"{organelle_id} does not live any more: GET /v1/models names who does")
        return self.weights[organelle_id]


def typed_item(user: str, family: str, prompt: str, tasks: TaskMixture, limit: int = 0) -> Item:
    """Return the item of a prompt that a user typed; ``prompt`` is as the host is asked."""
    depth = tasks.depths_of(tasks.families[family])[0]
    return Item(
        id=f"{family}/{depth}/{TYPED}/{prompt}",
        family=family,
        depth=depth,
        question=last_turn(prompt),
        prompt=prompt,
        reply_limit=limit,
        verifier=judged_elsewhere,
        user=user,
    )


def family_of(named: str, tasks: TaskMixture) -> str:
    """Return the family of a question: the one that the request names, or the first one.

    Raises:
        DataError: the request names none that there is.
    """
    if named:
        if named not in tasks.families:
            names = ", ".join(tasks.names)
            raise DataError(
                f"metadata.family: expected one of {names}, got {named!r:.80};"
                f"{did_you_mean(named, tasks.names)} leave it out for the first"
            )
        return named
    return tasks.names[0]


def prompt_of(said: Sequence[str], family: str, tasks: TaskMixture, *, is_chat: bool) -> str:
    """Return a conversation as the host is asked: a question alone in the run's own style, several
    turns as they are. A host without chat template reads each turn as a line of its own."""
    *before, question = said
    if before and is_chat:
        return in_turns(*said)
    item = typed_item("", family, question, tasks)
    alone = tasks.as_asked(replace(item, family="")).prompt
    if not before:
        return alone
    return in_turns(*map(as_line, before), last_turn(alone))


def generator_of(seed: int | None, choice: int) -> np.random.Generator:
    """Return the generator of a reply: the same for a seed, chance for none."""
    return _chance() if seed is None else Draw(seed)("reply", choice)


@cache
def _chance() -> np.random.Generator:
    """Return the generator of draws that nobody repeats."""
    return np.random.default_rng()
