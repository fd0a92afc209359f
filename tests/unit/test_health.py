from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from symbiont_ecology.analysis.health import Design, Health, examine
from symbiont_ecology.events import (
    Acted,
    BatchShrunk,
    Born,
    Event,
    GenerationEnded,
    Learned,
    Quarantined,
    Retired,
    Settled,
    WarmStarted,
)
from symbiont_ecology.types import BlobRef

SAMPLES = 4
REF = BlobRef("0" * 64)
CELLS = ("math.add/short", "math.add/medium", "string.sort/short")


@dataclass(frozen=True)
class Life:
    """A run made up for a test: everyone answers three questions of every cell in each
    generation."""

    generations: int = 6
    organelles: int = 4
    cells: Sequence[str] = CELLS
    chance: float = 0.3
    taught: float = 0.4
    hopeless: Sequence[str] = ()
    lessons: int = 5
    loss: Sequence[float] = (0.1,)
    cost: int = 20_000
    revenue: int = 15_000
    traits: float | None = 0.005
    seed: int = 0

    def events(self) -> Iterator[Event]:
        """The log, in its order."""
        generator = np.random.default_rng(self.seed)
        traits = {"learning_rate": self.traits} if self.traits else {}
        everyone = [f"o{number + 1}" for number in range(self.organelles)]
        for organelle_id in everyone:
            yield Born(0, organelle_id, "founder", (), REF, traits)
        for generation in range(self.generations):
            for organelle_id in everyone:
                for cell in self.cells:
                    share = self.taught if generation and self.lessons else self.chance
                    share = 0.0 if cell in self.hopeless else share
                    rewards = tuple(map(float, generator.random(3 * SAMPLES) < share))
                    yield Acted(
                        generation,
                        organelle_id,
                        cell,
                        ("a", "b", "c"),
                        rewards,
                        SAMPLES,
                        99,
                        50,
                        10**6,
                        "practice",
                    )
            for organelle_id in everyone if self.lessons else ():
                loss = self.loss[min(generation, len(self.loss) - 1)]
                yield Learned(generation, organelle_id, self.lessons, 20, 10**6, loss, 0.05, REF)
            for organelle_id in everyone:
                yield Settled(generation, organelle_id, 1, self.revenue, self.cost, 500, 5_000)
            yield self.end(generation)

    def end(self, generation: int) -> GenerationEnded:
        """The last event of a generation, each of which takes 100 FLOPs."""
        return GenerationEnded(
            generation, self.organelles, 0, 0, 0.3, 3, 100 * (generation + 1), 0, 9, 2
        )


def health(life: Life, *, more: Sequence[Event] = (), **design: object) -> Health:
    """The verdict on a life with ``more`` events in it, each at the end of its generation."""
    events: list[Event] = []
    for event in life.events():
        if isinstance(event, GenerationEnded):
            events += [late for late in more if late.generation == event.generation]
        events.append(event)
    verdict = examine(events, Design(**design))  # type: ignore[arg-type]
    json.dumps(verdict.record(), allow_nan=False)
    assert all(finding.seen and finding.mend for finding in verdict.findings)
    return verdict


def names(verdict: Health) -> list[tuple[str, str]]:
    """Severity and name of what was verdict."""
    return [(finding.severity, finding.name) for finding in verdict.findings]


def test_a_run_that_earns_and_learns_is_healthy() -> None:
    verdict = health(Life())
    assert not verdict.is_sick
    assert verdict.findings == ()
    assert verdict.generations == 6
    assert verdict.record()["verdict"] == "healthy"


def test_a_policy_that_collapses_is_a_learning_rate_too_high() -> None:
    verdict = health(Life(taught=0.02, traits=0.5))
    assert names(verdict) == [("sick", "learning rate too high")]
    assert "before a first update" in verdict.findings[0].seen
    assert verdict.findings[0].mend == "lower strategy.learning_rate: try 0.01 instead of 0.5"


def test_what_rises_and_falls_again_is_a_learning_rate_too_high() -> None:
    up, down = Life(generations=12, taught=0.9), Life(generations=12, taught=0.3, seed=1)
    events = [event for event in up.events() if event.generation < 8]
    events += [event for event in down.events() if event.generation >= 8]
    verdict = examine(events, Design())
    assert names(verdict) == [("sick", "learning rate too high")]
    assert "before the last third" in verdict.findings[0].seen


def test_who_is_founded_anew_has_learned_what_its_elite_had() -> None:
    asked = ("math.add/short", ("a",) * 20)
    right, wrong = (1.0,) * 20, (0.0,) * 20
    learned, traits = BlobRef("1" * 64), {"learning_rate": 0.5}
    events = [
        Born(0, "o1", "founder", (), REF, traits),
        Acted(0, "o1", *asked, right, 1, 99, 50, 10**6, "practice"),
        Learned(0, "o1", 5, 20, 10**6, 0.1, 0.05, learned),
        Life().end(0),
        Born(1, "o2", "refounded", (), REF, traits),
        Born(1, "o3", "refounded", (), learned, traits),
        Acted(1, "o2", *asked, right, 1, 99, 50, 10**6, "practice"),
        Acted(1, "o3", *asked, wrong, 1, 99, 50, 10**6, "practice"),
        Life().end(1),
    ]
    verdict = examine(events, Design())
    assert names(verdict) == [("sick", "learning rate too high")]
    before, after = verdict.measured.right_before_learning, verdict.measured.right_after_learning
    assert before is not None
    assert after is not None
    assert (before.estimate, after.estimate) == (1, 0)


@pytest.mark.parametrize("operator", ["founder", "pioneer", "newcomer", "coloniser"])
def test_who_is_born_without_parents_has_learned_nothing_until_its_first_update(
    operator: str,
) -> None:
    asked, traits = ("math.add/short", ("a",) * 20), {"learning_rate": 0.5}
    learned = BlobRef("1" * 64)
    events = [
        Born(0, "o1", operator, (), REF, traits),
        Acted(0, "o1", *asked, (1.0,) * 20, 1, 99, 50, 10**6, "practice"),
        Learned(0, "o1", 5, 20, 10**6, 0.1, 0.05, learned),
        Life().end(0),
        Born(1, "o2", operator, (), learned, traits),
        Acted(1, "o2", *asked, (0.0,) * 20, 1, 99, 50, 10**6, "practice"),
        Life().end(1),
    ]
    measured = examine(events, Design()).measured
    before, after = measured.right_before_learning, measured.right_after_learning
    assert before is not None
    assert after is not None
    assert (before.estimate, after.estimate) == (1, 0)


def test_after_a_warm_start_the_bare_host_is_not_what_learning_began_with() -> None:
    asked, traits = ("math.add/short", ("a",) * 20), {"learning_rate": 0.5}
    right, wrong = (1.0,) * 20, (0.0,) * 20
    events = [
        Acted(0, "host", *asked, wrong, 1, 99, 50, 10**6, "probe"),
        WarmStarted(0, 4, ("a",) * 4, 32, 10**6, 0.1, REF),
        Born(0, "o1", "founder", (), REF, traits),
        Acted(0, "o1", *asked, right, 1, 99, 50, 10**6, "practice"),
        Learned(0, "o1", 5, 20, 10**6, 0.1, 0.05, BlobRef("1" * 64)),
        Life().end(0),
        Acted(1, "o1", *asked, wrong, 1, 99, 50, 10**6, "practice"),
        Life().end(1),
    ]
    verdict = examine(events, Design())
    assert names(verdict) == [("sick", "learning rate too high")]
    before = verdict.measured.right_before_learning
    assert before is not None
    assert before.estimate == 1


def test_a_collapse_hides_what_follows_from_it() -> None:
    verdict = health(Life(chance=0.4, taught=0.0, revenue=100, cost=90_000))
    assert names(verdict) == [("sick", "learning rate too high")]


def test_the_loss_on_gold_answers_must_not_rise() -> None:
    assert health(Life(loss=(0.4, 0.3, 0.2)), sees_gold=True).findings == ()
    verdict = health(Life(loss=(0.4, 0.9, 3.0)), sees_gold=True)
    assert names(verdict) == [("sick", "learning rate too high")]
    assert "0.4 nats per token" in verdict.findings[0].seen
    assert (
        health(Life(loss=(0.4, 0.9, 3.0))).findings == ()
    )  # advantages may have any sign and size


def test_a_control_that_learns_nothing_by_design_is_healthy() -> None:
    assert health(Life(lessons=0), learns=False).findings == ()
    assert health(Life(lessons=0, traits=None)).findings == ()  # nobody has a learning rate


def test_what_counts_as_right_may_change_and_is_not_judged_then() -> None:
    before, after = Life(taught=0.6), Life(taught=0.0)
    events = [event for event in before.events() if event.generation < 3]
    events += [event for event in after.events() if event.generation >= 3]
    assert examine(events, Design()).is_sick
    verdict = examine(events, Design(flip_at=300))
    assert not verdict.is_sick
    assert verdict.generations == 3
    assert examine(events, Design(flip_at=0)).generations == 6  # it was so from the beginning


def test_prices_below_cost_starve_everyone() -> None:
    verdict = health(Life(revenue=2_000), is_mortal=True)
    assert names(verdict) == [("sick", "everyone starves")]
    assert "a rollout costs 569 mATP" in verdict.findings[0].seen
    assert "a right answer pays 151" in verdict.findings[0].seen
    assert "economy.base and economy.highest (1500 and 2400)" in verdict.findings[0].mend
    assert names(health(Life(revenue=0))) == [("sick", "everyone starves")]
    assert health(Life(revenue=2_000), is_mortal=False).findings == ()


def test_founders_who_all_go_broke_for_little_starve() -> None:
    broke = [Retired(3, f"o{number + 1}", "bankrupt", 3, -5) for number in range(4)]
    assert health(Life(revenue=8_500), more=broke[:3]).findings == ()
    verdict = health(Life(revenue=8_500), more=broke)
    assert names(verdict) == [("sick", "everyone starves")]
    assert "a right answer pays 644, and 37 % of the rollouts are right" in verdict.findings[0].seen
    assert health(Life(revenue=15_000), more=broke).findings == ()


def test_a_family_that_nobody_solves_is_named_with_its_bound() -> None:
    verdict = health(Life(hopeless=("string.sort/short",)))
    assert names(verdict) == [("sick", "nobody solves string.sort")]
    assert verdict.findings[0].seen.startswith(
        "0 right in 288 rollouts to 72 questions, so at most 1.3 % are (95 % Wilson)"
    )
    assert verdict.findings[0].mend == "take string.sort out of tasks.families"


def test_marks_for_the_form_of_a_reply_solve_nothing() -> None:
    events = [
        replace(event, verdicts=tuple(0.01 for _ in event.verdicts))
        if isinstance(event, Acted) and event.cell == "string.sort/short"
        else event
        for event in Life().events()
    ]
    assert ("sick", "nobody solves string.sort") in names(examine(events, Design()))


def test_a_family_must_be_asked_often_enough_to_be_called_hopeless() -> None:
    few, enough = Life(generations=1, organelles=7), Life(generations=1, organelles=8)
    hopeless = ("string.sort/short",)
    assert names(health(replace(few, hopeless=hopeless))) == []  # 21 questions
    assert names(health(replace(enough, hopeless=hopeless))) == [
        ("sick", "nobody solves string.sort")
    ]


def test_one_lucky_answer_does_not_save_a_family() -> None:
    life = Life(hopeless=("string.sort/short",))
    lucky = Acted(
        1, "o1", "string.sort/short", ("x",), (0.0, 1.0, 0.0, 0.0), 4, 9, 9, 9, "practice"
    )
    assert names(health(life, more=[lucky])) == [("sick", "hardly anybody solves string.sort")]
    assert names(health(life, more=[lucky] * 3)) == [("warn", "hardly anybody solves string.sort")]
    assert names(health(life, more=[lucky] * 20)) == []


def test_who_learns_from_gold_answers_needs_no_success() -> None:
    verdict = health(Life(hopeless=("string.sort/short",)), sees_gold=True)
    assert names(verdict) == [("warn", "nobody solves string.sort")]


def test_where_nobody_solves_anything_the_prompt_is_suspected() -> None:
    verdict = health(Life(hopeless=CELLS, lessons=0, revenue=0))
    assert [severity for severity, _ in names(verdict)] == ["sick", "sick"]
    assert all("tasks.style" in finding.mend for finding in verdict.findings)


@pytest.mark.parametrize(
    ("chance", "hint"),
    [(0.4, "learning_rule.accept"), (1.0, "harder tasks"), (0.0, "easier tasks")],
)
def test_plasticity_that_teaches_nothing_is_sick(chance: float, hint: str) -> None:
    verdict = health(Life(generations=1, organelles=2, lessons=0, chance=chance))
    (finding,) = [finding for finding in verdict.findings if finding.name == "nobody learns"]
    assert finding.severity == "sick"
    assert hint in finding.mend


def test_what_is_solved_from_the_start_leaves_nothing_to_learn() -> None:
    life = Life(organelles=9, chance=1.0, taught=1.0, revenue=30_000)
    assert names(health(life)) == [("sick", "nothing left to learn")]
    assert names(health(replace(life, lessons=0), learns=False)) == []
    assert names(health(replace(life, chance=0.9))) == []


def test_quarantines_are_a_warning_until_they_are_many() -> None:
    quarantine = Quarantined(2, "o1", "a loss was not finite")
    assert names(health(Life(organelles=5), more=[quarantine])) == [
        ("warn", "numbers that are not finite")
    ]
    verdict = health(Life(organelles=4), more=[quarantine])
    assert names(verdict) == [("sick", "numbers that are not finite")]
    assert "1 of 4 organelles quarantined: a loss was not finite" in verdict.findings[0].seen


def test_memory_that_ran_out_is_a_warning_with_the_size_that_fits() -> None:
    verdict = health(Life(), more=[BatchShrunk(2, 500.0), BatchShrunk(4, 250.0)])
    assert names(verdict) == [("warn", "out of memory")]
    assert "host.memory_mb=250" in verdict.findings[0].mend


def test_an_unchanging_population_is_hardly_ever_called_sick() -> None:
    lives = [Life(generations=10, organelles=2, taught=0.3, seed=seed) for seed in range(200)]
    assert sum(health(life).is_sick for life in lives) <= 4


def test_the_verdict_depends_on_the_events_alone() -> None:
    events = list(Life(taught=0.0).events())
    assert examine(events, Design()) == examine(iter(events), Design())


def test_a_run_without_a_generation_has_nothing_to_find() -> None:
    assert (
        examine([Born(0, "o1", "founder", (), REF, {"learning_rate": 0.1})], Design()).findings
        == ()
    )


def test_partial_marks_count_as_they_are_and_solve_nothing() -> None:
    asked = ("math.add/short", ("a",) * 6)
    events = [
        Born(0, "o1", "founder", (), REF, {"learning_rate": 0.1}),
        Acted(0, "o1", *asked, (0.4,) * 6, 1, 99, 50, 10**6, "practice"),
        Learned(0, "o1", 5, 20, 10**6, 0.1, 0.05, BlobRef("1" * 64)),
        Life().end(0),
        Acted(1, "o1", *asked, (0.3,) * 6, 1, 99, 50, 10**6, "practice"),
        Life().end(1),
    ]
    measured = examine(events, Design()).measured
    before, after = measured.right_before_learning, measured.right_after_learning
    assert before is not None
    assert after is not None
    assert (before.estimate, after.estimate) == (pytest.approx(0.4), pytest.approx(0.3))
    assert measured.families["math.add"].estimate == pytest.approx(0.35)
    assert measured.solved == 0
    assert examine(Life().events(), Design()).measured.solved == 2
