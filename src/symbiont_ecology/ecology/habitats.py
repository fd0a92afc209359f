"""What is known of a habitat: who serves it, its last answers, and what it said of them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.types import Item, OrganelleId

DIMENSIONS = 256
"""Of a sketch."""
MOST_ANSWERS = 24
"""The newest answers of a habitat that are remembered."""


FOR, AGAINST, TRUST_FADE = 0.6, 1.2, 0.9
"""What a sure answer that is accepted says for an organelle, and a refused one against it, in nats;
part of it that is left after another question."""
BROKEN, SURE, LEAST_KNOWN, SUCCESS_FADE = 0.3, 6.0, 6.0, 0.95
"""Success of a habitat that wants something else now; evidence for that, in nats, which is enough;
verdicts that must be known before; part of their counts that is left after another one."""


@dataclass(frozen=True)
class RememberedAnswer:
    """An answer that a habitat was given, and its verdict.

    ``sketch`` stands for the answer's gradient at the bare host (``host.sketches``): signed bytes
    in base64, or empty if there is none. ``token_ids`` hold the end of answer.
    """

    family: str
    depth: str
    prompt: str
    token_ids: tuple[int, ...]
    is_accepted: bool
    sketch: str = ""

    @property
    def item(self) -> Item:
        """The question, as far as learning asks for it: its verdict is known."""
        return Item("", self.family, self.depth, "", self.prompt, 0, verifier=_no_verdict)

    @property
    def vector(self) -> np.ndarray | None:
        """The sketch as numbers, ``(dimensions,)`` of about unit length; None if there is none."""
        if not self.sketch:
            return None
        return np.frombuffer(base64.b64decode(self.sketch), np.int8).astype(np.float64) / SCALE

    def sketched(self, sketch: np.ndarray) -> RememberedAnswer:
        """The same answer with the sketch of its gradient, a unit vector ``(dimensions,)``."""
        whole = np.clip(np.rint(SCALE * sketch), -127, 127).astype(np.int8)
        return replace(self, sketch=base64.b64encode(whole.tobytes()).decode())


SCALE = 400.0
"""What a unit is in a sketch of bytes. Of 256 numbers of a unit vector hardly one is above 0.3."""


@dataclass(frozen=True)
class Habitat:
    """A place that asks.

    ``chosen`` is the organelle that a strategy chose for it, or empty; ``last`` is who answered it
    last, ``asked`` counts its questions. ``trust`` is what its verdicts say about organelles that
    answered it, in nats; it fades. ``success`` are fading counts of its verdicts. ``alarm`` is how
    much more likely its last verdicts are if it wants something else now, in nats (CUSUM, Page
    1954); ``usual`` is the success rate before.
    """

    chosen: OrganelleId = ""
    last: OrganelleId = ""
    asked: int = 0
    answers: tuple[RememberedAnswer, ...] = ()
    trust: Mapping[OrganelleId, float] = field(default_factory=dict)
    success: SuccessPosterior = field(default_factory=SuccessPosterior)
    alarm: float = 0.0
    usual: float = 0.5

    @property
    def server(self) -> OrganelleId:
        """Whose habitat it is, and who learns what it accepted."""
        return self.chosen or self.last

    @property
    def accepted(self) -> tuple[RememberedAnswer, ...]:
        """Those of its last answers that it accepted."""
        return tuple(answer for answer in self.answers if answer.is_accepted)

    def after(
        self, organelle_id: OrganelleId, answer: RememberedAnswer, confidence: float
    ) -> Habitat:
        """With one more answer, to which that organelle gave a probability of ``confidence``.

        An accepted answer speaks for who gave it, a refused one against, the more the surer it was.
        If success breaks down, what was accepted before is forgotten: the habitat has changed.
        """
        gain = FOR if answer.is_accepted else -AGAINST
        trust = {name: TRUST_FADE * value for name, value in self.trust.items()}
        trust[organelle_id] = trust.get(organelle_id, 0.0) + gain * confidence
        usual = self.usual if self.alarm else self.success.mean
        known = replace(self, last=organelle_id, asked=self.asked + 1, trust=trust, usual=usual)
        alarm, answers = known._alarm(answer.is_accepted), (*self.answers, answer)
        if alarm > SURE and self.success.successes + self.success.failures > LEAST_KNOWN:
            since = next(
                (place for place, old in enumerate(reversed(answers)) if old.is_accepted),
                len(answers),
            )
            trust = {organelle_id: gain * confidence}
            fresh = SuccessPosterior()
            return replace(known, answers=answers[-since:], trust=trust, success=fresh, alarm=0.0)
        verdict = float(answer.is_accepted)
        return replace(
            known,
            answers=answers[-MOST_ANSWERS:],
            success=self.success.faded(SUCCESS_FADE, (verdict,)),
            alarm=alarm,
        )

    def _alarm(self, is_accepted: bool) -> float:
        """After one more verdict: log-likelihood of a broken habitat against what was usual."""
        usual = min(max(self.usual, 0.4), 0.97)
        ratio = BROKEN / usual if is_accepted else (1 - BROKEN) / (1 - usual)
        return max(0.0, self.alarm + math.log(ratio))


def _no_verdict(reply: str) -> object:
    raise RuntimeError("a remembered answer was judged when it was given")
