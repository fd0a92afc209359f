"""Organelles that remember, and habitats that answers were given to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symbiont_ecology.ecology import Genome, Organelle
from symbiont_ecology.ecology.habitats import Habitat, RememberedAnswer
from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.ecology.state import EcologyState

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
    answer = RememberedAnswer(
        family, "short", "1+1", (1,), accepted, organelle_id=server, confidence=confidence
    )
    return answer.sketched(DIRECTIONS[direction])


def organelle(name: str, *memories: RememberedAnswer) -> Organelle:
    return Organelle(name, Genome("w", 4, {}), "m", (), "founder", 0, "w").remembering(memories)


def state_of(
    living: Sequence[Organelle], dormant: Sequence[Organelle] = (), **habitats: Habitat
) -> EcologyState:
    state = EcologyState(seed=0, habitats=dict(habitats))
    state.population = {one.id: one for one in living}
    state.dormant = {one.id: one for one in dormant}
    for name, habitat in habitats.items():
        for server in {answer.organelle_id for answer in habitat.answers}:
            given = [one for one in habitat.answers if one.organelle_id == server]
            right = sum(one.is_accepted for one in given)
            posterior = SuccessPosterior(float(right), float(len(given) - right))
            state.posteriors.setdefault(server, {})[name] = posterior
    return state
