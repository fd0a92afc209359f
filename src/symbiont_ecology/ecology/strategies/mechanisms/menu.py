"""A menu of phrases: an organelle is founded with each, and verdicts say whom it pleases.

Where replies are open, a bare model is hardly ever accepted, and then there is nothing to learn
from. A phrase in front of the question gets the first replies accepted, and an organelle learns
from what its users accepted, whoever said it. Users are taken to be of *kinds*: a kind is whom one
of the living pleases most. How often a kind accepts what each of them says is known from all users'
verdicts (expectation maximisation, Dempster et al. 1977), and each user's kind from its own. So
what pleased others who agree with a user is tried on it first. A question goes to who pleases a
kind that is drawn (posterior sampling, Thompson 1933).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma, log
from typing import Any, ClassVar

import numpy as np
from pydantic import NonNegativeInt

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.events import Event
from symbiont_ecology.base.types import TURN_END, Item, OrganelleId
from symbiont_ecology.ecology import Decision, Found, Serve, User
from symbiont_ecology.ecology.clusters import MIN_ACCEPTED
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.strategies import StrategyContext, Want, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.ecology.users import NOBODY

NOTE = "menu"
"""The note of the state in which the kinds are kept."""
PLEASED, OTHERS = (1.0, 1.0), (0.3, 2.7)
"""Accepted and refused replies that are taken to be known before any are: of the organelle that
pleases a kind most, and of each other one."""
ROUNDS, WRONG = 5, 0.03
"""Of expectation maximisation; and the least rate at which a verdict is taken to be wrong."""
SHARPNESS = 2.0
"""Times that a user's own verdicts count where a kind is drawn: users judge little."""
MIN_REFUSED = 8
"""Answers without an accepted one, after which a user needs somebody new."""
MAX_COMPARED = 10
"""The newest verdicts of a user on its server that are compared with those of others."""
MIN_EVIDENCE = 4.0
"""Evidence, in nats, from which on users of one organelle are of two kinds."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of users, one for each of the living: ``rates (kinds, living)`` are those at which a
    kind accepts what each of them says, ``shares (kinds,)`` how many users are of it."""

    names: tuple[OrganelleId, ...]
    rates: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, users: Iterable[User], names: Sequence[OrganelleId]) -> Kinds:
        """Return the kinds that explain the verdicts of all users best.

        Of two organelles each pleases one of two users, and both agree with the third:

        >>> from symbiont_ecology.ecology.users import RememberedAnswer
        >>> def answer(who: str, is_accepted: bool) -> RememberedAnswer:
        ...     return RememberedAnswer("chat", "any", "", (1,), is_accepted, who)
        >>> anna = User(answers=(answer("o1", True), answer("o2", False)) * 4)
        >>> ben = User(answers=(answer("o1", False), answer("o2", True)) * 4)
        >>> kinds = Kinds.of([anna, ben], ["o1", "o2"])
        >>> [kinds.server(user) for user in (anna, ben)]
        ['o1', 'o2']
        """
        size = len(names)
        prior = np.where(np.eye(size, dtype=bool)[..., None], PLEASED, OTHERS)
        judged = [counts for user in users if (counts := _counts(user, names)).any()]
        counts = np.array(judged).reshape(len(judged), size, 2)
        known, shares = prior, np.full(size, 1 / max(size, 1))
        for _ in range(ROUNDS):
            kinds = cls(tuple(names), _rates(known), shares)
            chances = np.array([kinds._chances(one) for one in counts]).reshape(len(counts), size)
            known = prior + np.einsum("uk,uac->kac", chances, counts)
            shares = (chances.sum(0) + 1) / (len(counts) + size)
        return cls(tuple(names), _rates(known), shares)

    @classmethod
    def read(cls, note: Any, names: Sequence[OrganelleId]) -> Kinds:
        """Return what was written, for those who live now; of a newborn nothing is known."""
        rates, shares = (note["rates"], note["shares"]) if note else ({}, {})
        usual = PLEASED[0] / sum(PLEASED), OTHERS[0] / sum(OTHERS)
        rows = [
            [rates.get(kind, {}).get(name, usual[kind != name]) for name in names] for kind in names
        ]
        least = min(shares.values(), default=1.0)
        return cls(tuple(names), np.array(rows), np.array([shares.get(k, least) for k in names]))

    def written(self) -> dict[str, Any]:
        """Return it as a note."""
        rows = zip(self.names, self.rates.round(4).tolist(), strict=True)
        rates = {kind: dict(zip(self.names, row, strict=True)) for kind, row in rows}
        shares = self.shares.round(4).tolist()
        return {"rates": rates, "shares": dict(zip(self.names, shares, strict=True))}

    def chances(self, user: User) -> np.ndarray:
        """Return how likely a user is of each kind, by its own verdicts, ``(kinds,)``."""
        return self._chances(_counts(user, self.names))

    def has_judged(self, user: User) -> bool:
        """Return true if a user judged what one of these said."""
        return any(answer.organelle_id in self.names for answer in user.answers)

    def server(self, user: User) -> OrganelleId:
        """Return who pleases a user most, as far as is known."""
        return self.names[int(np.argmax(self.chances(user) @ self.rates))]

    def drawn(self, user: User, generator: np.random.Generator) -> OrganelleId:
        """Return who pleases a kind that the user may be of."""
        chances = self._chances(SHARPNESS * _counts(user, self.names))
        kind = generator.choice(len(chances), p=chances)
        return self.names[int(np.argmax(self.rates[kind]))]

    def _chances(self, counts: np.ndarray) -> np.ndarray:
        said = np.stack([np.log(self.rates), np.log1p(-self.rates)], -1)
        likely = np.einsum("kac,ac->k", said, counts) + np.log(self.shares)
        weights = np.exp(likely - likely.max())
        chances: np.ndarray = weights / weights.sum()
        return chances


def _rates(counts: np.ndarray) -> np.ndarray:
    rates: np.ndarray = np.clip(counts[..., 0] / counts.sum(-1), WRONG, 1 - WRONG)
    return rates


def displeased(users: Mapping[str, User], server: OrganelleId) -> tuple[str, ...]:
    """Return those users of an organelle that accept it less often than the others do, if that
    explains their newest verdicts so much better that they are of another kind; nobody if not."""
    said = {
        name: verdicts[-MAX_COMPARED:]
        for name, user in users.items()
        if (verdicts := [one.is_accepted for one in user.answers if one.organelle_id == server])
    }
    order = sorted(said, key=lambda name: sum(said[name]) / len(said[name]))
    sums = np.cumsum([(sum(said[name]), len(said[name])) for name in order], 0).reshape(-1, 2)
    evidence = [
        _log_marginal(*below) + _log_marginal(*(sums[-1] - below)) - _log_marginal(*sums[-1])
        for below in sums[:-1]
    ]
    best = int(np.argmax(evidence)) if evidence else 0
    is_sure = evidence and evidence[best] > MIN_EVIDENCE + log(len(evidence))
    return tuple(order[: best + 1]) if is_sure else ()


def _log_marginal(accepted: float, count: float) -> float:
    """Return the log-probability of verdicts at one rate of which nothing is known, in nats."""
    return lgamma(accepted + 1) + lgamma(count - accepted + 1) - lgamma(count + 2)


def _counts(user: User, names: Sequence[OrganelleId]) -> np.ndarray:
    """Return how often a user accepted, and refused, what each of these said, ``(names, 2)``."""
    counts, place = np.zeros((len(names), 2)), {name: row for row, name in enumerate(names)}
    for answer in user.answers:
        if answer.organelle_id in place:
            counts[place[answer.organelle_id], int(not answer.is_accepted)] += 1
    return counts


@dataclass(frozen=True)
class NoteKinds(Decision):
    """The state keeps which kinds of users there are."""

    written: Mapping[str, Any]

    def apply(self, context: ApplyContext) -> list[Event]:
        context.state.notes[NOTE] = dict(self.written)
        return []


@mechanisms.register("menu")
@dataclass(frozen=True)
class Menu(Mechanism):
    """Founds an organelle with each phrase, and finds out by verdicts whom it pleases. For worlds
    of users. Users whom it pleases less than others get an organelle of their own. A phrase whose
    organelle died is tried again if a user is pleased by nobody."""

    phrases: tuple[str, ...] = ()  # each is read in front of every question of its organelle
    initial_steps: NonNegativeInt = 4  # learning steps of a newborn before it answers anything
    wants: ClassVar[frozenset[Want]] = frozenset({"servers"})
    worlds: ClassVar[frozenset[World]] = frozenset({"users"})

    def __post_init__(self) -> None:
        if TURN_END in "".join(self.phrases):
            raise ConfigError("menu.phrases: expected text without U+001D, which parts turns")

    def found(self, context: StrategyContext, room: Room) -> list[Decision]:
        return [self._founder(phrase, context, room) for phrase in self.phrases[: room.places]]

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        state = context.state
        if not state.population:
            return None
        kinds = Kinds.read(state.notes.get(NOTE), list(state.population))
        user = state.users.get(item.user, User())
        if user.chosen in kinds.names and not kinds.has_judged(user):
            return user.chosen  # by a log of what others said
        return kinds.drawn(user, context.draw("menu", item.id, earlier))

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Note the kinds; return who is served by others, and who is born."""
        state = context.state
        kinds = Kinds.of(state.users.values(), list(state.population))
        servers = {
            name: kinds.server(user) if user.accepted and kinds.names else NOBODY
            for name, user in state.users.items()
            if user.chosen not in kinds.names or kinds.has_judged(user)
        }
        moved = {name: who for name, who in servers.items() if who != state.users[name].chosen}
        births = [*self._parted(servers, context, room), *self._anew(context, room)]
        return [NoteKinds(kinds.written()), Serve(moved), *births[: room.places]]

    def _parted(
        self, servers: Mapping[str, OrganelleId], context: StrategyContext, room: Room
    ) -> Iterator[Decision]:
        """Yield a newborn, with the phrase of their server, for users that it pleases less than its
        others. It learns what they accepted."""
        state, phrases = context.state, {_operator(phrase): phrase for phrase in self.phrases}
        for who, organelle in state.population.items():
            users = {name: state.users[name] for name, server in servers.items() if server == who}
            few = displeased(users, who)
            if sum(len(users[name].accepted) for name in few) >= MIN_ACCEPTED:
                founder = self._founder(phrases.get(organelle.operator, ""), context, room)
                yield replace(founder, users=few, parents=(who,), initial_steps=self.initial_steps)

    def _anew(self, context: StrategyContext, room: Room) -> Iterator[Decision]:
        """Yield a founder with a phrase that nobody alive has, if somebody is pleased by nobody."""
        state = context.state
        living = {organelle.operator for organelle in state.population.values()}
        lost = [phrase for phrase in self.phrases if _operator(phrase) not in living]
        refusing = (len(u.answers) >= MIN_REFUSED and not u.accepted for u in state.users.values())
        if lost and (not living or any(refusing)):
            yield self._founder(lost[state.generation % len(lost)], context, room)

    @staticmethod
    def _founder(phrase: str, context: StrategyContext, room: Room) -> Found:
        return Found(dict(room.traits), context.rank, operator=_operator(phrase), phrase=phrase)


def _operator(phrase: str) -> str:
    return f"phrase: {phrase.strip()}" if phrase else "founder"
