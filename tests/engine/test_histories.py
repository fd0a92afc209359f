"""Any history of trials, and any of users: nothing is lost, doubled or told to the wrong one."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lives import FAMILIES, adapter, apply, founded
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.events import Born, Event, Gated, Proposed
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import (
    Assignment,
    Decision,
    EcologyState,
    Judge,
    Outcome,
    ProposeChild,
    Retire,
    Rollout,
)
from symbiont_ecology.ecology.gate import PairedCounts
from symbiont_ecology.ecology.strategies.mechanisms.merging import has_parents, with_new_counts
from symbiont_ecology.ecology.users import MAX_ANSWERS, SHARED, RememberedAnswer, User

WHO = st.integers(0, 99)
"""The place of somebody among those who are there."""
CELLS = tuple(f"{family}/short" for family in FAMILIES[:3])


class Trials(RuleBasedStateMachine):
    """Three organelles, and whoever comes of their trials.

    Beside the state there is what must be true of it: who is on trial, what everyone answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        adapters = [adapter(seed) for seed in range(3)]
        self.state, self.world = founded(Path(self.folder.name), adapters, FAMILIES[:3])
        self.trials: dict[str, Counter[tuple[str, str, int]]] = {}
        """Of everyone on trial: how often it did better (1), alike or worse (-1) than a parent,
        by parent, home and how."""
        self.events: list[Event] = []
        self.asked = 0

    def teardown(self) -> None:
        """Nothing stays on the disk."""
        self.folder.cleanup()

    def somebody(self, place: int) -> str:
        living = list(self.state.population)
        return living[place % len(living)]

    def challenger(self, place: int) -> Any:
        return self.state.challengers[list(self.trials)[place % len(self.trials)]]

    def do(self, decision: Decision) -> list[Event]:
        events = apply(decision, self.state, self.world)
        self.events += events
        return events

    def propose(self, decision: Decision) -> None:
        """Whoever is proposed is on trial, and so far has shown nothing."""
        before = set(self.state.challengers)
        (event,) = self.do(decision) or [None]
        new = set(self.state.challengers) - before
        assert new == ({event.id} if isinstance(event, Proposed) else set())
        self.trials |= {name: Counter() for name in new}

    # What may happen.

    @precondition(lambda self: len(self.trials) < 5 and len(self.state.population) > 1)
    @rule(one=WHO, other=WHO)
    def a_child_is_proposed(self, one: int, other: int) -> None:
        """Of one or two parents, each at home somewhere."""
        cells = {self.somebody(one): CELLS[:2], self.somebody(other): CELLS[1:]}
        name = "svd" if len(cells) == 2 else "svd_noise"
        child = ProposeChild(cells, operators.build(name), name, {})
        poor = [name for name in cells if self.state.ledger.balance(name) < self.part(len(cells))]
        before = self.state.ledger.balances.copy()
        self.propose(child)
        balances = self.state.ledger.balances
        if poor:
            assert balances == before
        else:
            paid = {name: before[name] - balances[name] for name in before}
            assert paid == {name: (name in cells) * self.part(len(cells)) for name in before}
            newest = self.state.challengers[list(self.trials)[-1]]
            assert newest.genome.rank <= 4

    def part(self, parents: int) -> int:
        return self.world.prices.dowry // parents

    @precondition(lambda self: bool(self.trials))
    @rule(whom=WHO, verdicts=st.lists(st.sampled_from((0.0, 0.5, 1.0)), min_size=3, max_size=3))
    def questions_are_answered(self, whom: int, verdicts: list[float]) -> None:
        """By a challenger and its parents, and by all others with the same verdict: it is not
        theirs."""
        challenger = self.challenger(whom)
        if not has_parents(challenger, self.state):
            return
        self.asked += 1
        everyone = (challenger.id, *challenger.parents)
        outcomes = []
        for cell in CELLS:
            said = dict(zip(everyone, verdicts, strict=False))
            outcomes += [self.outcome(name, cell, verdict) for name, verdict in said.items()]
            others = [name for name in self.state.population if name not in everyone]
            outcomes += [self.outcome(name, cell, 1.0) for name in others]
            for parent in challenger.parents:
                how = int(np.sign(said[challenger.id] - said[parent]))
                self.trials[challenger.id][parent, how] += 1
        newest = with_new_counts(challenger, outcomes)
        assert self.do(Judge(newest, "go on")) == []

    def outcome(self, who: str, cell: str, verdict: float) -> Outcome:
        family, _, depth = cell.partition("/")
        item = Item(f"q{self.asked}", family, depth, "", f"{self.asked}", 4, verifier=str)
        rollout = Rollout(item, who, (), np.zeros(0), "", verdict, verdict, Cost())
        return Outcome(Assignment(who, (item,), purpose="probation"), (rollout,))

    @precondition(lambda self: bool(self.trials))
    @rule(whom=WHO, is_admitted=st.booleans())
    def a_trial_ends(self, whom: int, is_admitted: bool) -> None:
        """An orphan is always rejected, as mechanisms do."""
        challenger, state = self.challenger(whom), self.state
        alive = has_parents(challenger, state)
        verdict = "admit" if is_admitted and alive else "reject"
        decision = Judge(challenger, verdict)  # type: ignore[arg-type]
        living, balances = dict(state.population), state.ledger.balances.copy()
        events = self.do(decision)
        best = challenger.against_the_better
        (gated,) = (event for event in events if isinstance(event, Gated))
        counts = best.wins, best.ties, best.losses
        assert gated == Gated(state.generation, challenger.id, verdict, *counts)
        del self.trials[challenger.id]
        changed = {name for name, one in state.population.items() if living.get(name) is not one}
        if verdict == "reject":
            assert [type(event) for event in events] == [Gated]
            assert not changed
            self.dowry_is_back(challenger, balances)
            return
        assert [type(event) for event in events] == [Gated, Born]
        assert changed == {challenger.id}
        assert state.population[challenger.id].genome.weights == challenger.genome.weights
        assert state.ledger.balances == balances

    def dowry_is_back(self, challenger: Any, before: dict[str, int]) -> None:
        """In equal parts, to those who are still there."""
        after = self.state.ledger.balances
        part = before[challenger.id] // len(challenger.parents)
        expected = {name: one + part * (name in challenger.parents) for name, one in before.items()}
        del expected[challenger.id]
        assert after == expected

    @precondition(lambda self: len(self.state.population) > 1)
    @rule(one=WHO)
    def somebody_dies(self, one: int) -> None:
        """Its trials go on, as those of an orphan."""
        self.do(Retire(self.somebody(one), "reset"))

    @rule(one=WHO, amount=st.integers(0, 400_000))
    def somebody_gets_poor(self, one: int, amount: int) -> None:
        """Into debt if need be."""
        self.state.ledger.charge(self.somebody(one), amount)

    @rule()
    def time_passes(self) -> None:
        """A generation."""
        self.state.generation += 1

    # What is always true.

    @invariant()
    def energy_sums_to_zero_and_everybody_has_one_account(self) -> None:
        """Children on trial own their dowry."""
        assert self.state.ledger.total == 0
        everybody = self.state.population.keys() | self.state.challengers.keys()
        assert set(self.state.ledger.balances) == everybody

    @invariant()
    def who_is_on_trial_is_known_and_its_answers_are_counted_once(self) -> None:
        """For each parent."""
        assert list(self.state.challengers) == list(self.trials)
        for name, answered in self.trials.items():
            found = self.state.challengers[name].counts
            for parent in self.state.challengers[name].parents:
                won, even, lost = (answered[parent, how] for how in (1, 0, -1))
                assert found.get(parent, PairedCounts()) == PairedCounts(won, even, lost)

    @invariant()
    def a_trial_begins_and_ends_once(self) -> None:
        """Nobody is judged who was not proposed, or twice."""
        begun = [event.id for event in self.events if isinstance(event, Proposed)]
        ended = [event.id for event in self.events if isinstance(event, Gated)]
        assert len(set(begun)) == len(begun)
        assert len(set(ended)) == len(ended)
        assert set(begun) - set(ended) == set(self.trials)
        assert set(ended) <= set(begun)

    @invariant()
    def all_weights_that_are_named_are_there(self) -> None:
        """Of the living, of those on trial, of elites."""
        for being in (*self.state.population.values(), *self.state.challengers.values()):
            assert self.world.store.weights(being.genome.weights).rank == being.genome.rank
        holders = {elite.organelle_id for elite in self.state.archive.elites.values()}
        assert holders <= {f"o{number}" for number in range(1, self.state.next_id + 1)}


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
        assert after.server == (who or before.last)

    @invariant()
    def it_remembers_its_own_newest_answers_in_their_order(self) -> None:
        """A change cuts off what is older."""
        for name, user in getattr(self, "state", EcologyState(seed=0)).users.items():
            said = self.said[name]
            assert user.asked == len(said)
            assert user.last == (said[-1].organelle_id if said else "")
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
Trials.TestCase.settings = settings(AT_ANY_SPEED, max_examples=25, stateful_step_count=25)
Users.TestCase.settings = settings(AT_ANY_SPEED, max_examples=40, stateful_step_count=20)
TestTrials = Trials.TestCase
TestUsers = Users.TestCase
