"""Any history of users: nothing is lost, doubled or told to the wrong one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.users import MAX_ANSWERS, SHARED, RememberedAnswer, User


class Users(RuleBasedStateMachine):
    """Three users that are answered by three organelles, and change their minds."""

    NAMES = ("anna", "bert", "cleo")

    @initialize(is_alone=st.booleans())
    def begin(self, is_alone: bool) -> None:
        """With one family there is nothing that kinds could agree about by chance."""
        self.shared = 0.0 if is_alone else SHARED
        self.families = ("math.add",) if is_alone else ("math.add", "logic.bool", "string.sort")
        self.state = EcologyState(seed=0)
        self.said: dict[str, list[RememberedAnswer]] = defaultdict(list)

    @rule(
        name=st.sampled_from(NAMES),
        who=st.sampled_from(("o1", "o2", "o3")),
        family=st.integers(0, 2),
        pattern=st.sampled_from(("yes", "no", "yes no", "no yes", "yes yes no")),
        times=st.integers(1, 9),
        confidence=st.sampled_from((0.0, 0.2, 0.9, 1.0)),
    )
    def it_is_answered(
        self, name: str, who: str, family: int, pattern: str, times: int, confidence: float
    ) -> None:
        """Some times, always by the same organelle."""
        for said in times * pattern.split():
            answer = RememberedAnswer(
                self.families[family % len(self.families)],
                "short",
                f"question {len(self.said[name])}",
                (1,),
                said == "yes",
                organelle_id=who,
                confidence=confidence,
            )
            users = self.state.users
            others = {one: user for one, user in users.items() if one != name}
            before = users.get(name, User())
            frozen = replace(before)
            users[name] = after = before.after(answer, self.shared)
            self.said[name].append(answer)
            assert before == frozen  # what was is as it was
            assert {one: users[one] for one in others} == others
            whole = min(len(before.answers) + 1, MAX_ANSWERS)
            assert after.has_changed_from(before) == (len(after.answers) < whole)
            if answer.is_accepted or not before.accepted:
                assert not after.has_changed_from(before)  # a yes is no news, nor a no after none

    @rule(name=st.sampled_from(NAMES), who=st.sampled_from(("o1", "o2", "")))
    def it_gets_another_server(self, name: str, who: str) -> None:
        """What it remembers stays."""
        before = self.state.users.get(name, User())
        self.state.users[name] = after = replace(before, chosen=who)
        assert (after.answers, after.asked) == (before.answers, before.asked)
        assert after.server == (who or replace(before, chosen="").server)

    @invariant()
    def it_remembers_its_own_newest_answers_in_their_order(self) -> None:
        """A change cuts off what is older."""
        for name, user in getattr(self, "state", EcologyState(seed=0)).users.items():
            said = self.said[name]
            assert user.asked == len(said)
            assert user.server in (user.chosen, said[-1].organelle_id if said else "")
            count = len(user.answers)
            assert count == 0 if not said else 1 <= count <= MAX_ANSWERS
            assert list(user.answers) == said[len(said) - count :]
            accepted = [one for one in user.answers if one.is_accepted]
            assert list(user.accepted) == accepted

    @invariant()
    def it_trusts_by_its_own_verdicts(self) -> None:
        """Nothing is known of strangers; who was only right is trusted, who was only wrong is
        not."""
        for user in getattr(self, "state", EcologyState(seed=0)).users.values():
            assert user.trust("stranger", self.shared) == 0
            for who in {answer.organelle_id for answer in user.answers}:
                given = [one for one in user.answers if one.organelle_id == who]
                verdicts = {one.is_accepted for one in given}
                trust = user.trust(who, self.shared)
                assert np.isfinite(trust)
                if verdicts == {True}:
                    assert trust >= 0
                if verdicts == {False}:
                    assert trust <= 0


AT_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Examples take as long as the machine lets them."""
Users.TestCase.settings = settings(AT_ANY_SPEED, max_examples=40, stateful_step_count=20)
TestUsers = Users.TestCase
