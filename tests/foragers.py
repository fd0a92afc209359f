"""Organelles that remember, users that answers were given to, and whole worlds of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import Genome, Organelle
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.success import SuccessPosterior
from symbiont_ecology.ecology.users import RememberedAnswer, User

FAMILIES = ("math.add", "logic.bool")
DIRECTIONS = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 4)))[0].T


def answered(
    server: str,
    direction: int,
    *,
    accepted: bool = True,
    family: str = FAMILIES[0],
    confidence: float = 0.9,
) -> RememberedAnswer:
    """An answer of some kind."""
    said = {"organelle_id": server, "confidence": confidence}
    answer = RememberedAnswer(family, "short", "1+1", (1,), accepted, **said)
    return answer.sketched(DIRECTIONS[direction])


def organelle(name: str, *memories: RememberedAnswer) -> Organelle:
    return Organelle(name, Genome("w", 4, {}), "m", (), "founder", 0, "w").remembering(memories)


def state_of(
    living: Sequence[Organelle], dormant: Sequence[Organelle] = (), **users: User
) -> EcologyState:
    state = EcologyState(seed=0, users=dict(users))
    state.population = {one.id: one for one in living}
    state.dormant = {one.id: one for one in dormant}
    for name, user in users.items():
        for server in {answer.organelle_id for answer in user.answers}:
            given = [one for one in user.answers if one.organelle_id == server]
            right = sum(one.is_accepted for one in given)
            posterior = SuccessPosterior(float(right), float(len(given) - right))
            state.posteriors.setdefault(server, {})[name] = posterior
    return state


def fed(count: int, refused: int = 0, server: str = "o1") -> User:
    """It accepted so many answers of its server, and refused others."""
    eaten = [answered(server, 0)] * count
    return User(server, answers=(*eaten, *[answered(server, 1, accepted=False)] * refused))


NAMES = ("o1", "o2", "o3", "o4")
answers = st.builds(
    answered,
    st.sampled_from(NAMES),
    st.integers(0, 3),
    accepted=st.booleans(),
    family=st.sampled_from(FAMILIES),
    confidence=st.sampled_from((0.3, 0.9, 0.99)),
)
places = st.builds(
    lambda chosen, given: User(chosen, answers=tuple(given)),
    st.sampled_from((*NAMES, "dead", "")),
    st.lists(answers, max_size=7),
)
worlds = st.builds(
    lambda users, memories, dreams: state_of(
        [organelle(name, *(memories if name == "o2" else ())) for name in NAMES[:3]],
        [organelle("o4", *dreams)] if dreams else [],
        **{f"h{number}": user for number, user in enumerate(users)},
    ),
    st.lists(places, min_size=1, max_size=6),
    st.lists(answers, max_size=3),
    st.lists(answers, max_size=3),
)


def drawn_world(number: int, families: Sequence[str]) -> EcologyState:
    """Users of two kinds. An organelle is of one of them, and most users have one of their kind."""
    draw = Draw(number)("world")
    kind_of = {name: int(draw.integers(2)) for name in NAMES}

    def user() -> User:
        """Some of its answers pleased it, by kind or by chance."""
        chosen, given = str(draw.choice((*NAMES[:3], "dead"))), []
        kind = kind_of.get(chosen, 0) if draw.random() < 0.8 else int(draw.integers(2))
        for _ in range(draw.integers(1, 9)):
            server, family = str(draw.choice(NAMES)), str(draw.choice(families))
            is_right = (kind_of[server] == kind) == (draw.random() < 0.8)
            sure = float(draw.choice((0.2, 0.5, 0.9)))
            at = kind if is_right else kind_of[server]
            given.append(answered(server, at, accepted=is_right, family=family, confidence=sure))
        return User(chosen, answers=tuple(given))

    memories = [answered("o9", int(draw.integers(4))) for _ in range(draw.integers(5))]
    return state_of(
        [organelle("o1"), organelle("o2", *memories[:2]), organelle("o3")],
        [organelle("o4", *memories)] if memories else [],
        **{f"h{place}": user() for place in range(8)},
    )
