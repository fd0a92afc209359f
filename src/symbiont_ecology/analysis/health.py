"""Is a run healthy? Findings in words, from the events of its first generations alone.

A finding says what was seen, in numbers, and which key of the config mends it. *Sick* is what more
generations would not mend by themselves; *warn* is what costs something but lets the run do its
work. What a log cannot say, such as that nobody is meant to learn, comes as a ``Design``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from symbiont_ecology.analysis.evidence import Design, Evidence, compared
from symbiont_ecology.events import Event, GenerationEnded
from symbiont_ecology.statistics import Interval

LUCKY = 1  # solved questions that are an accident
SOLVED = (
    0.95  # lower bound of the questions that the host solves from which nothing is left to learn
)
UPDATES = (1, 2, 3)  # after which the learned are compared with those who have learned nothing yet
MARGIN, MOST_ROLLOUTS = (
    2,
    3,
)  # rollouts that a right answer should pay for, with all that belongs to them
POOR = 0.5  # part of its spending that a population must earn when all its founders went broke
POISONED = 0.25  # part of all organelles whose quarantine is more than an accident
DIVERGED = 2  # growth of a loss that is too much


@dataclass(frozen=True)
class HealthFinding:
    """Something that is wrong: what was seen, and which key mends it in which direction."""

    name: str
    severity: str  # sick or warn
    seen: str
    mend: str


@dataclass(frozen=True)
class Health:
    """The verdict on so many generations. What was measured: energy in mATP, shares with
    intervals."""

    generations: int
    findings: tuple[HealthFinding, ...]
    measured: Mapping[str, Any]

    @property
    def is_sick(self) -> bool:
        """Whether going on as it is would be a waste."""
        return any(finding.severity == "sick" for finding in self.findings)

    def record(self) -> dict[str, Any]:
        """The verdict as plain values."""
        verdict = "sick" if self.is_sick else "healthy"
        return {"schema": 1, "verdict": verdict, **asdict(self)}


def examine(events: Iterable[Event], design: Design) -> Health:
    """Looks for everything that is known to go wrong. Pure: equal events give an equal verdict."""
    seen = Evidence(design)
    for event in _before_flip(events, design.flip_at):
        seen.add(event)
    is_learning = design.learns and seen.rate is not None
    findings = _worse(seen) if is_learning else []
    if (
        not findings
    ):  # it starves everyone and hides every success, so the next two would follow from it
        findings += _starvation(seen) if design.is_mortal else []
        findings += _beyond_reach(seen, is_learning and not design.sees_gold)
    findings += _quarantines(seen)
    if is_learning:
        findings += _no_lessons(seen) if not seen.count["lessons"] else []
        findings += _nothing_left(seen) if not design.sees_gold else []
        findings += _thin_evidence(seen) if not (findings or design.sees_gold) else []
    findings += (_standstill(seen) if design.breed_at is not None else []) + _memory(seen)
    findings.sort(key=lambda finding: finding.severity)  # the sick first
    return Health(seen.generations, tuple(findings), seen.measured())


def _before_flip(events: Iterable[Event], flip_at: float | None) -> Iterator[Event]:
    """The events of the generations that began before what counts as right changed, if it changed
    at all."""
    for event in events:
        yield event
        if isinstance(event, GenerationEnded) and flip_at and event.train_flops >= flip_at:
            return


def _worse(seen: Evidence) -> list[HealthFinding]:
    """Whether learning harms: the taught are right less often than the untaught, or than they were
    at their best, or the loss on gold answers rises."""
    new = seen.answers[0]
    pairs = [(new, seen.learned(n), "before a first update", f"after {n} or more") for n in UPDATES]
    pairs += [
        (seen.third(n), seen.third(2), f"in third {n + 1} of the time", "in the last")
        for n in (0, 1)
    ]
    norms, losses = ([median(kept[g]) for g in sorted(kept)] for kept in (seen.norms, seen.losses))
    late = median(losses[-max(len(losses) // 3, 1) :]) if losses else 0.0
    found = ""
    for before, after, when, then in pairs:
        shares = compared(before, after)
        if shares is not None and shares[1].high < shares[0].low and not found:
            found = f"right on {_percent(shares[0])} of questions {when}, on {_percent(shares[1])} {then}"
    if seen.design.sees_gold and losses and late > DIVERGED * losses[0]:
        found = f"the loss on gold answers began at {losses[0]:.2g} nats per token and is {late:.2g} now"
    if not found or not norms:
        return []
    found += (
        f"; median gradient norm {norms[0]:.2g} at first, {max(norms):.2g} at most; {seen.deaths}"
    )
    return [HealthFinding("learning rate too high", "sick", found, seen.slower)]


def _quarantines(seen: Evidence) -> list[HealthFinding]:
    lived = sum(seen.count[how] for how in ("founders", "births", "refounded"))
    if not seen.quarantined:
        return []
    found = (
        f"{len(seen.quarantined)} of {lived} organelles quarantined: {seen.quarantined[-1].reason}"
    )
    mend = f"{seen.slower}; instead of host.dtype=float16 take bfloat16 or float32"
    severity = "sick" if len(seen.quarantined) >= POISONED * lived else "warn"
    return [HealthFinding("numbers that are not finite", severity, found, mend)]


def _starvation(seen: Evidence) -> list[HealthFinding]:
    """Whether nobody can live off these prices, or nobody does."""
    prices, practice = seen.design.prices, seen.practice
    spent = sum(seen.count[what] for what in ("cost", "rent", "tickets"))
    if not practice.rollouts:
        return []
    pay = seen.count["earned"] / practice.successes if practice.successes else prices.price(0.0)
    each, share = spent / practice.rollouts, practice.successes / practice.rollouts
    if each >= pay:
        found = f"a rollout costs {each:.0f} mATP with its lessons, rent and ticket, and a right answer pays "
        found += f"{pay:.0f}: even who is always right goes broke"
    elif practice.is_beyond_reach:
        return []  # it is not the prices
    elif seen.count["bankrupt"] >= seen.count["founders"] and seen.count["earned"] < POOR * spent:
        found = f"who learns must be right {100 * each / pay:.0f} % of the time to live off it, and the "
        found += f"population is {100 * share:.0f} %"
    else:
        return []
    found += (
        f"; {seen.count['earned'] / 1000:.0f} ATP earned, {spent / 1000:.0f} spent; {seen.deaths}"
    )
    return [HealthFinding("everyone starves", "sick", found, _mend_prices(seen, pay, each, share))]


def _mend_prices(seen: Evidence, pay: float, each: float, share: float) -> str:
    """Prices at which the population as it is would break even, within reason."""
    prices = seen.design.prices
    need = min(max(MARGIN * each, each / max(share, 0.01)), MOST_ROLLOUTS * each)
    now = f"({prices.base} and {prices.highest})"
    words = f"raise economy.base and economy.highest {now} until a right answer pays about {_hint(need)}"
    fixed = (seen.count["rent"] + seen.count["tickets"]) / seen.practice.rollouts
    rollout = prices.rollout * (pay * each / need - fixed) / max(each - fixed, 1e-9)
    if rollout < 1:
        return f"{words}; to lower economy.rollout ({prices.rollout}) is not enough"
    return f"{words}, or lower economy.rollout ({prices.rollout}) to about {_hint(rollout)}"


def _beyond_reach(seen: Evidence, needs_success: bool) -> list[HealthFinding]:
    """Families, and single cells of other families, that practically nobody solves."""
    families = seen.families
    lost = [name for name, tally in families.items() if tally.is_beyond_reach]
    so = "nobody can learn it from verdicts" if needs_success else "it earns nothing"
    findings = []
    for name in lost:
        part = 100 * families[name].rollouts / seen.practice.rollouts
        found = f"{families[name]}; {so}, and it takes {part:.0f} % of all rollouts"
        shorter = "" if f"{name}/short" in seen.cells else ", or shorten tasks.depths"
        mend = f"take {name} out of tasks.families{shorter}"
        if len(lost) == len(families):
            mend = "give tasks.style the form that the host knows, take easier tasks or an abler host.model"
        severity = "sick" if needs_success and families[name].solved <= LUCKY else "warn"
        findings.append(HealthFinding(families[name].solvers(name), severity, found, mend))
    for cell, tally in sorted(seen.cells.items()):
        name, _, depth = cell.rpartition("/")
        if name not in lost and tally.is_beyond_reach:
            found = f"{tally}; {name} is solved at another depth"
            mend = f"take {depth} out of tasks.depths, or {name} out of tasks.families"
            findings.append(HealthFinding(tally.solvers(cell), "warn", found, mend))
    return findings


def _no_lessons(seen: Evidence) -> list[HealthFinding]:
    """Why learning_rule, though it is on, taught nothing at all."""
    successes, rollouts = seen.practice.successes, seen.practice.rollouts
    if not seen.count["trials"] or seen.practice.is_beyond_reach:
        return []  # it was said already
    mend = "lower what a lesson takes (learning_rule.accept), or raise strategy.samples"
    if successes == 0:
        mend = "take easier tasks, or give tasks.style the form that the host knows"
    elif successes == rollouts:
        mend = "take harder tasks.families or longer tasks.depths"
    found = f"{successes:.0f} of {rollouts} rollouts were right, and nobody had a single lesson"
    return [HealthFinding("nobody learns", "sick", found, mend)]


def _nothing_left(seen: Evidence) -> list[HealthFinding]:
    if not seen.first.questions or seen.first.share.low < SOLVED:
        return []
    found = f"{_percent(seen.first.share)} of {seen.first.questions} questions are right before any lesson"
    mend = "take harder tasks.families, longer tasks.depths or a smaller host.model"
    return [HealthFinding("nothing left to learn", "sick", found, mend)]


def _thin_evidence(seen: Evidence) -> list[HealthFinding]:
    judged = sum(one.is_telling for one in seen.families.values())
    if 2 * judged >= len(seen.families):
        return []
    found = f"{judged} of {len(seen.families)} families were solved once or asked often enough to be given up"
    mend = "calibrate for more generations, or raise strategy.questions"
    return [HealthFinding("too little to judge", "warn", found, mend)]


def _standstill(seen: Evidence) -> list[HealthFinding]:
    """Whether energy tells nobody apart: all are as rich as can be, and nobody is born or dies."""
    prices, breed_at = seen.design.prices, seen.design.breed_at or 0
    if breed_at > prices.cap:
        found = f"it takes {breed_at} mATP to breed and nobody can hold more than {prices.cap}"
        mend = f"lower strategy.mechanisms.breeding.at below economy.cap ({prices.cap}), or raise economy.cap"
        return [HealthFinding("nobody can breed", "sick", found, mend)]
    quiet = seen.generations - 1 - seen.last_change if seen.last_change else seen.generations
    is_rich = bool(seen.balances) and min(seen.balances.values()) >= prices.cap
    if not is_rich or quiet < max(seen.generations // 3, 1):
        return []
    found = f"all {len(seen.balances)} organelles are at the cap of {prices.cap} mATP and nobody was born or "
    found += f"died for {quiet} generations: selection has nothing to go by"
    mend = f"lower economy.base and economy.lowest ({prices.base} and {prices.lowest}), or raise "
    mend += f"economy.rollout ({prices.rollout}) or strategy.capacity"
    return [HealthFinding("no energy differences", "sick", found, mend)]


def _memory(seen: Evidence) -> list[HealthFinding]:
    if not seen.shrunk:
        return []
    left = seen.shrunk[-1].memory_mb
    found = f"the device ran out of memory in {len(seen.shrunk)} generations; batches now take {left:.0f} MB"
    mend = f"set host.memory_mb={left:.0f}, lower host.slots, or set host.is_checkpointing=true"
    return [HealthFinding("out of memory", "warn", found, mend)]


def _percent(share: Interval) -> str:
    return f"{100 * share.estimate:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _hint(value: float) -> str:
    """Two significant digits: hints are not results."""
    return f"{float(f'{value:.2g}'):.0f}"
