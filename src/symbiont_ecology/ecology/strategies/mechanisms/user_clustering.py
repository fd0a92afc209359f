"""Clusters of users decide who serves whom, and where organelles are born (``ecology.clusters``).

A user moves when another cluster explains its answers better. Where no cluster does, an organelle
is born, which first learns what these users accepted. Where one cluster explains the users of two,
all go to one of them. The other earns nothing any more, and energy does the rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import log
from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt

from symbiont_ecology.base.types import Item, OrganelleId, judged_elsewhere
from symbiont_ecology.ecology import Awaken, Decision, Found, Serve, User
from symbiont_ecology.ecology.clusters import (
    CENTRED_SKETCHES,
    MIN_ACCEPTED,
    ClusterAssignment,
    cluster,
    stats_of,
)
from symbiont_ecology.ecology.strategies import StrategyContext, Want, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.ecology.users import NOBODY, shared_among

SWEEPS, FULL_SWEEP = 2, 5
"""Looks of a user with news for a cluster in a generation; generations from one look of all users
to the next."""


@mechanisms.register("user_clustering", "foraging")
@dataclass(frozen=True)
class UserClustering(Mechanism):
    """Finds out which users want the same; each cluster has an organelle. For worlds of users."""

    initial_steps: NonNegativeInt = 4  # learning steps of a newborn before it answers anything
    move_penalty: NonNegativeFloat = 2.0  # nats by which another cluster must be better
    memory: bool = True  # organelles remember users that changed, and come back for them
    worlds: ClassVar[frozenset[World]] = frozenset({"users"})
    renamed: ClassVar[dict[str, str]] = {"meals": "initial_steps", "loyalty": "move_penalty"}

    @property
    def wants(self) -> frozenset[Want]:  # type: ignore[override]
        """Sketches; and memories, by the knob ``memory``."""
        return frozenset({"sketches", "memories"} if self.memory else {"sketches"})

    def found(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Found one organelle for each cluster among the warm start's examples, which it remembers.
        Nothing links examples of different families, so these must be of one."""
        space, families = context.state.sketch_space, context.tasks.names
        if len(families) > 1:
            return []
        sketched = (replace(example, coordinates="") for example in space.examples)
        groups = cluster([stats_of([one], families) for one in sketched], CENTRED_SKETCHES)
        memories = space.examples
        if space.bases:  # sketches are of another space than coordinates
            memories = tuple(replace(example, sketch="") for example in memories)
        founder = Found(dict(room.traits), context.rank, initial_steps=self.initial_steps)
        return [
            replace(founder, memories=tuple(memories[place] for place in group))
            for group in groups[: room.places]
            if len(group) >= MIN_ACCEPTED
        ]

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Return the user's server; while it has none, the organelle most likely to please it.

        An organelle that pleases nobody yet may be of a kind of its own. Where replies are open, a
        refusal says little: a user that accepted nothing yet puts its next questions to others,
        too. A person who waits for the answer does so one question at a time.
        """
        state = context.state
        user = state.users.get(item.user, User())
        is_served = user.chosen in state.population
        is_waiting = item.logged is None and item.verifier is judged_elsewhere
        earlier += len(user.answers) if is_waiting else 0
        is_open = is_waiting or context.tasks.families[item.family].is_open
        tries_others = earlier and is_open
        if is_served and (user.accepted or not tries_others):
            return user.chosen
        pleased = Counter(
            other.chosen
            for other in state.users.values()
            if other.chosen in state.population and other.accepted
        )
        if not pleased:
            return None
        shared = shared_among(len(context.tasks.names))

        def promise(name: OrganelleId) -> float:
            # Log-odds that it is of the user's kind, and answers well then.
            record = state.record(name, but_for=item.user)
            return user.trust(name, shared) + log(max(pleased[name], 1) * record)

        candidates = [name for name in state.population if name != user.chosen]
        order = sorted(candidates, key=promise, reverse=True)
        order = [user.chosen, *order] if is_served else order
        return order[earlier % len(order) if tries_others else 0]

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Revise the assignment; return who moves, and who is born."""
        assignment = ClusterAssignment.of(context.state, context.tasks.names, self.move_penalty)
        names = list(assignment.with_refusals)
        askers = {
            outcome.assignment.items[0].user: None
            for outcome in context.outcomes
            if outcome.assignment.is_practice
        }
        is_due = context.state.generation % FULL_SWEEP == FULL_SWEEP - 1
        movers = [
            name for name in names if is_due or name in askers or name not in assignment.servers
        ]
        generator = context.draw("forage")  # its old name: old seeds give the same runs
        for _ in range(SWEEPS):
            for place in generator.permutation(len(movers)):
                assignment.move(movers[place])
        assignment.merge()
        return self._decisions(assignment, context, room)

    def _decisions(
        self, assignment: ClusterAssignment, context: StrategyContext, room: Room
    ) -> list[Decision]:
        state, places = context.state, room.places
        moved, decisions = dict[str, OrganelleId](), list[Decision]()
        for server, users in assignment.by_server().items():
            if server in state.population:
                moved |= {name: server for name in users if state.users[name].chosen != server}
            elif server not in state.dormant and not assignment.may_found(*users):
                # Nobody for now: others are tried in turn.
                moved |= {name: NOBODY for name in users if state.users[name].chosen}
            elif places:
                places -= 1
                decisions.append(
                    Awaken(tuple(users), server)
                    if server in state.dormant
                    else Found(
                        dict(room.traits),
                        context.rank,
                        operator="coloniser",
                        users=tuple(users),
                        initial_steps=self.initial_steps,
                    )
                )
        return [Serve(moved), *decisions] if moved else decisions
