"""Is a run healthy? Findings in plain words, read from the events of its first generations.

A finding is *sick* where more generations would not help. It is a *warn* where something is lost,
but the run still does its work. Each says what was seen and which key of the config to change.
Shares have 95 % Wilson intervals (Wilson 1927). A question counts once, however many rollouts
answered it, because rollouts of one question are not independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TypeVar

from symbiont_ecology import events as kinds
from symbiont_ecology.config import RunConfig
from symbiont_ecology.economics import Prices
from symbiont_ecology.learning import learning_rules
from symbiont_ecology.learning.rules import NoLearning
from symbiont_ecology.statistics import Interval, wilson
from symbiont_ecology.strategies import strategies
from symbiont_ecology.types import cell_family

RARE_ROLLOUTS, RARE_QUESTIONS = 0.06, 0.15
"""Upper bounds of the rollouts that are right, and of the questions that any rollout solves. Below
both a family is out of reach. Two questions per generation, answered once, are enough in thirty
generations."""
LUCKY = 1  # solved questions that may be an accident
SOLVED = 0.95  # lower bound of right answers before learning; above it nothing is left to learn
DIVERGED = 2  # growth of the loss on gold answers that is too much
SANE = 0.01  # a learning rate that is often low enough
PAYS_FOR = 3  # rollouts that a right answer should pay for, with all that they cost
POOR = 0.5  # share of its spending that a population must earn once all founders are bankrupt
POISONED = 0.25  # share of organelles in quarantine that is more than an accident
UNTAUGHT = ("founder", "pioneer", "newcomer", "coloniser")
"""Who is born with weights that nobody taught, or with a copy of others."""

_Kind = TypeVar("_Kind", bound=kinds.Event)


@dataclass(frozen=True)
class Design:
    """What a run is meant to do, as far as its event log cannot say it."""

    prices: Prices = field(default_factory=Prices)
    learns: bool = True  # whether its learning rule teaches anything; not so in the frozen control
    sees_gold: bool = False  # whether it learns from gold answers, so it needs no right answer
    is_mortal: bool = True  # whether bankrupt organelles die
    flip_at: float | None = None  # training FLOPs at which the right answers change; judged until


def design_of(config: RunConfig) -> Design:
    """What a run with that config is meant to do."""
    rule, flip = learning_rules.build(config.learning_rule), config.tasks.flip
    return Design(
        prices=config.economy,
        learns=not isinstance(rule, NoLearning),
        sees_gold=rule.sees_gold,
        is_mortal=strategies.build(config.strategy).is_mortal,
        flip_at=None if flip is None else flip.at_flops,
    )


@dataclass(frozen=True)
class HealthFinding:
    """Something that is wrong: what was seen, and which key to change in which direction."""

    name: str
    severity: str  # sick or warn
    seen: str
    mend: str


@dataclass(frozen=True)
class HealthMeasures:
    """The numbers behind a verdict: energy in mATP, shares of right questions with intervals, in
    which a question counts by its marks. ``solved`` counts families in which a reply was right."""

    rollouts: int
    right_before_learning: Interval | None
    right_after_learning: Interval | None
    families: Mapping[str, Interval]
    solved: int
    lessons: int
    earned: int
    spent: int
    founders: int
    births: int
    bankrupt: int
    train_flops: int


@dataclass(frozen=True)
class Health:
    """The verdict on the first generations of a run."""

    generations: int
    findings: tuple[HealthFinding, ...]
    measured: HealthMeasures

    @property
    def is_sick(self) -> bool:
        """Whether it would be a waste to go on with this config."""
        return any(finding.severity == "sick" for finding in self.findings)

    def record(self) -> dict[str, object]:
        """The verdict as plain values."""
        return {"schema": 2, "verdict": "sick" if self.is_sick else "healthy", **asdict(self)}


def examine(events: Iterable[kinds.Event], design: Design) -> Health:
    """Looks for what is known to go wrong. Pure: equal events give an equal verdict."""
    log = _Log(events, design)
    findings = [*_harmful_learning(log)]
    if not findings:  # bankruptcies and wrong answers would only follow from it
        findings = [*_starvation(log), *_out_of_reach(log)]
    findings += [*_useless_learning(log), *_hardware(log)]
    findings.sort(key=lambda finding: finding.severity)  # the sick first
    return Health(len(log.ends), tuple(findings), log.measured)


class _Log:
    """The events of a run up to a flip, sorted by what the checks ask for."""

    def __init__(self, events: Iterable[kinds.Event], design: Design) -> None:
        self.design, self.events = design, [*events]
        flip_at = design.flip_at or math.inf
        flips = [e.generation for e in self.of(kinds.GenerationEnded) if e.train_flops >= flip_at]
        self.events = [e for e in self.events if not flips or e.generation <= flips[0]]
        self.ends, self.updates = self.of(kinds.GenerationEnded), self.of(kinds.Learned)
        rates = [birth.traits.get("learning_rate", 0.0) for birth in self.of(kinds.Born)]
        self.rate = next(filter(None, rates), 0.0) if design.learns else 0.0
        acts = [act for act in self.of(kinds.Acted) if act.verdicts]  # gold answers are only read
        self.practice = [act for act in acts if act.purpose == "practice"]
        self.families = _grouped(self.practice, lambda act: cell_family(act.cell))
        self.untaught, self.taught = _by_learning(self.events)
        self.measured = self._measures()

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def _measures(self) -> HealthMeasures:
        births, books = self.of(kinds.Born), self.of(kinds.Settled)
        shares = _compared(self.untaught, self.taught)
        first = _share(self.untaught) if self.untaught else None
        return HealthMeasures(
            rollouts=sum(len(act.verdicts) for act in self.practice),
            right_before_learning=shares[0] if shares else first,
            right_after_learning=shares[1] if shares else None,
            families={name: _share(acts) for name, acts in self.families.items()},
            solved=sum(_solved(acts) > 0 for acts in self.families.values()),
            lessons=sum(update.lessons for update in self.updates),
            earned=sum(book.revenue for book in books),
            spent=sum(book.spent for book in books),
            founders=sum(not birth.parents and birth.generation == 0 for birth in births),
            births=sum(bool(birth.parents) for birth in births),
            bankrupt=sum(death.cause == "bankrupt" for death in self.of(kinds.Retired)),
            train_flops=self.ends[-1].train_flops if self.ends else 0,
        )


_Acts = Sequence[kinds.Acted]


def _by_learning(events: Sequence[kinds.Event]) -> tuple[_Acts, _Acts]:
    """Answers of weights before their first update, and after it. A child that an operator made is
    in neither until its first update; a copy has learned what its elite had. Nor is the bare host
    after a warm start: learning did not begin with it."""
    is_warm = any(isinstance(event, kinds.WarmStarted) for event in events)
    # By organelle, and by weights.
    is_taught: dict[str, bool | None] = {"host": None if is_warm else False}
    acts: dict[bool | None, list[kinds.Acted]] = defaultdict(list)
    for event in events:
        if isinstance(event, kinds.Born):
            if event.operator in UNTAUGHT:
                is_taught.setdefault(event.weights, False)
            is_taught[event.id] = is_taught.get(event.weights)
        elif isinstance(event, kinds.Learned):
            is_taught[event.id] = is_taught[event.weights] = True
        elif isinstance(event, kinds.Acted) and event.verdicts:
            acts[is_taught.get(event.id)].append(event)
    return acts[False], acts[True]


def _grouped(acts: _Acts, key: Callable[[kinds.Acted], str]) -> dict[str, list[kinds.Acted]]:
    groups: dict[str, list[kinds.Acted]] = defaultdict(list)
    for act in sorted(acts, key=key):
        groups[key(act)].append(act)
    return groups


def _questions(acts: _Acts) -> int:
    return sum(len(act.verdicts) // act.samples for act in acts)


def _share(acts: _Acts) -> Interval:
    """The share of right questions; one counts by the mean mark of its rollouts."""
    return wilson(sum(sum(act.verdicts) / act.samples for act in acts), _questions(acts))


def _rollouts(acts: _Acts) -> Interval:
    """The share of right rollouts."""
    verdicts = [verdict for act in acts for verdict in act.verdicts]
    return wilson(sum(verdicts), len(verdicts))


def _solved(acts: _Acts) -> int:
    """Questions that at least one rollout answered right: with half of the marks or more."""
    starts = [(act, start) for act in acts for start in range(0, len(act.verdicts), act.samples)]
    return sum(max(act.verdicts[start : start + act.samples]) >= 0.5 for act, start in starts)


def _is_hopeless(acts: _Acts) -> bool:
    """Whether practically nobody solves these questions, and there were enough to say so."""
    solved = wilson(_solved(acts), _questions(acts))
    return solved.high < RARE_QUESTIONS and _rollouts(acts).high < RARE_ROLLOUTS


def _compared(before: _Acts, after: _Acts) -> tuple[Interval, Interval] | None:
    """Shares of right questions before and after, on the same mix of cells: the mix of after."""
    old, new = (_grouped(acts, lambda act: act.cell) for acts in (before, after))
    shared = [act for act in after if act.cell in old]
    if not _questions(shared):
        return None
    weights = {cell: _questions(new[cell]) / _questions(shared) for cell in new if cell in old}
    share = sum(weight * _share(old[cell]).estimate for cell, weight in weights.items())
    # So many questions would give a share that is as certain, if they had come in this mix.
    size = round(1 / sum(weight**2 / _questions(old[cell]) for cell, weight in weights.items()))
    # The weights may add up to a little more than 1.
    return wilson(min(share, 1.0) * size, size), _share(shared)


def _fall(before: _Acts, after: _Acts, change: str) -> str:
    """What was seen, if the share of right questions fell for certain; else nothing."""
    shares = _compared(before, after)
    if shares is None or shares[1].high >= shares[0].low:
        return ""
    old, new = map(_percent, shares)
    return f"right on {old} of questions before {change}, on {new} since"


def _harmful_learning(log: _Log) -> Iterator[HealthFinding]:
    """Fewer right answers after an update than before, or in the last third of the generations than
    before it; or a loss on gold answers that grows."""
    if not (log.rate and log.updates):
        return
    last = len(log.ends) - max(len(log.ends) // 3, 1)
    early = [act for act in log.practice if act.generation < last]
    late = [act for act in log.practice if act.generation >= last]
    seen = _fall(log.untaught, log.taught, "a first update")
    seen = seen or _fall(early, late, "the last third of the time")
    first = median(u.loss for u in log.updates if u.generation == log.updates[0].generation)
    loss = median(u.loss for u in log.updates[-max(len(log.updates) // 3, 1) :])
    if not seen and log.design.sees_gold and loss > DIVERGED * first:
        seen = f"the loss on gold answers was {first:.2g} nats per token at first, now {loss:.2g}"
    if seen:
        yield HealthFinding("learning rate too high", "sick", seen, _slower(log))


def _starvation(log: _Log) -> Iterator[HealthFinding]:
    """A right answer pays less than a rollout costs; or all founders are bankrupt, and little was
    earned."""
    numbers, prices = log.measured, log.design.prices
    if not (log.design.is_mortal and log.practice):
        return
    right = sum(sum(act.verdicts) for act in log.practice)
    pay = numbers.earned / right if right else prices.price(0.0)
    cost, is_poor = numbers.spent / numbers.rollouts, numbers.earned < POOR * numbers.spent
    are_bankrupt = numbers.bankrupt >= numbers.founders and not _is_hopeless(log.practice)
    if cost >= pay or (is_poor and are_bankrupt):
        seen = (
            f"a rollout costs {cost:.0f} mATP with lessons, rent and ticket, a right answer pays "
            f"{pay:.0f}, and {100 * right / numbers.rollouts:.0f} % of the rollouts are right"
        )
        mend = (
            f"raise economy.base and economy.highest ({prices.base} and {prices.highest}) until it "
            f"pays about {PAYS_FOR * cost:.0f}, or lower economy.rollout ({prices.rollout})"
        )
        yield HealthFinding("everyone starves", "sick", seen, mend)


def _out_of_reach(log: _Log) -> Iterator[HealthFinding]:
    """Families that practically nobody solves."""
    hopeless = {name: acts for name, acts in log.families.items() if _is_hopeless(acts)}
    for name, acts in hopeless.items():
        solved, verdicts = _solved(acts), [verdict for act in acts for verdict in act.verdicts]
        seen = f"{sum(verdicts):.0f} right in {len(verdicts)} rollouts to {_questions(acts)} "
        seen += f"questions, so at most {100 * _rollouts(acts).high:.1f} % are (95 % Wilson)"
        mend = f"take {name} out of tasks.families"
        if len(hopeless) == len(log.families):
            mend = "give tasks.style the form that the host knows, or take easier tasks"
        is_sick = log.rate > 0 and not log.design.sees_gold and solved <= LUCKY
        title = f"{'hardly anybody' if solved else 'nobody'} solves {name}"
        yield HealthFinding(title, "sick" if is_sick else "warn", seen, mend)


def _useless_learning(log: _Log) -> Iterator[HealthFinding]:
    """Learning that teaches nothing, or has nothing to teach."""
    right, share = _rollouts(log.practice).estimate, _share(log.untaught)
    if log.rate and log.practice and not log.measured.lessons and not _is_hopeless(log.practice):
        seen = f"{100 * right:.0f} % of rollouts were right, and there was not a single lesson"
        mend = "lower what a lesson takes (learning_rule.accept), or raise strategy.samples"
        if right in (0, 1):
            mend = f"take {'harder' if right else 'easier'} tasks, or another tasks.style"
        yield HealthFinding("nobody learns", "sick", seen, mend)
    if log.rate and not log.design.sees_gold and share.low >= SOLVED:
        seen = f"{_percent(share)} of questions are right before any lesson"
        mend = "take harder tasks.families, longer tasks.depths or a smaller host.model"
        yield HealthFinding("nothing left to learn", "sick", seen, mend)


def _hardware(log: _Log) -> Iterator[HealthFinding]:
    """Numbers that became infinite or NaN, and memory that ran out."""
    if quarantines := log.of(kinds.Quarantined):
        count = len(log.of(kinds.Born))
        seen = f"{len(quarantines)} of {count} organelles quarantined: {quarantines[-1].reason}"
        slower = f"{_slower(log)}; " if log.rate else ""
        mend = f"{slower}take bfloat16 or float32 instead of host.dtype=float16"
        severity = "sick" if len(quarantines) >= POISONED * count else "warn"
        yield HealthFinding("numbers that are not finite", severity, seen, mend)
    if shrinks := log.of(kinds.BatchShrunk):
        room = f"{shrinks[-1].memory_mb:.0f}"
        seen = f"memory ran out in {len(shrinks)} generations; batches now take {room} MB"
        mend = f"set host.memory_mb={room}, lower host.slots, or set host.is_checkpointing=true"
        yield HealthFinding("out of memory", "warn", seen, mend)


def _slower(log: _Log) -> str:
    rate = f"{min(log.rate / 10, SANE):.2g}"
    return f"lower strategy.learning_rate: try {rate} instead of {log.rate:.2g}"


def _percent(share: Interval) -> str:
    return f"{100 * share.estimate:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
