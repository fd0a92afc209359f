"""Is a run healthy? Findings in words, from the events of its first generations alone.

A finding says what was seen, in numbers, and which key of the config mends it. *Sick* is what more
generations would not mend by themselves; *warn* is what costs something but lets the run do its work.
Shares of questions carry 95 % Wilson intervals. A question counts once however many rollouts it was given,
because rollouts of one question are not independent.

What a log cannot say, such as that nobody is meant to learn, comes as a ``Design``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from symbiont_ecology.economics import Prices
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
)
from symbiont_ecology.statistics import Interval, wilson

RARE_ROLLOUTS, RARE_QUESTIONS = 0.05, 0.15
"""Upper 95 % bounds, of rollouts that are right and of questions that any rollout solves, below which a cell
is beyond reach. Without a single success it takes 73 rollouts to 22 questions to say so."""
ENOUGH_QUESTIONS = 22
SOLVED = 0.95
"""Share of questions, as lower 95 % bound, from which there is nothing left to learn."""
UPDATES = (1, 2, 3)
"""Updates within a life after which the learned are compared with those who have learned nothing yet."""
MARGIN = 2
"""A right answer should pay for so many rollouts with everything that belongs to them."""
POOR = 0.5
"""Part of its spending that a population must earn once everyone whom it was founded with has gone broke."""
POISONED = 0.25
"""Part of all organelles whose quarantine is more than an accident."""


@dataclass(frozen=True)
class Design:
    """What a run is meant to do, as far as its event log cannot say it."""

    prices: Prices = field(default_factory=Prices)
    learns: bool = True
    """Whether its plasticity teaches anything; False for the frozen control."""
    sees_gold: bool = False
    """Whether it learns from gold answers and so needs no success to begin with."""
    is_mortal: bool = True
    """Whether the bankrupt die."""
    breed_at: int | None = None
    """Balance from which an organelle breeds, in mATP; None where nobody is meant to breed."""
    flip_at: float | None = None
    """Training FLOPs at which what counts as right changes; what comes after it is not judged."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: what was seen, and which key mends it in which direction."""

    name: str
    severity: Literal["sick", "warn"]
    seen: str
    mend: str


@dataclass(frozen=True)
class Health:
    """The verdict on the generations that were looked at."""

    generations: int
    findings: tuple[Finding, ...]
    measured: Mapping[str, Any]
    """Energy in mATP; shares with their intervals."""

    @property
    def is_sick(self) -> bool:
        """Whether going on as it is would be a waste."""
        return any(finding.severity == "sick" for finding in self.findings)

    def record(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "schema": 1,
            "verdict": "sick" if self.is_sick else "healthy",
            "generations": self.generations,
            "findings": [asdict(finding) for finding in self.findings],
            "measured": dict(self.measured),
        }


def examine(events: Iterable[Event], design: Design) -> Health:
    """Looks for everything that is known to go wrong. Pure: equal events give an equal verdict."""
    seen = _Seen()
    for event in _before_flip(events, design.flip_at):
        seen.add(event)
    is_learning = design.learns and seen.rate is not None
    collapse = _collapse(seen) + _divergence(seen, design) if is_learning else []
    findings = collapse + _quarantines(seen)
    if not collapse:  # it would starve everyone and hide every success, so these would follow from it
        findings += _starvation(seen, design)
        findings += _beyond_reach(seen, is_learning and not design.sees_gold)
    if is_learning:
        findings += _no_lessons(seen, findings) + _nothing_left(seen, design) + _thin_evidence(seen, design)
    findings += _standstill(seen, design) + _memory(seen)
    findings.sort(key=lambda finding: finding.severity != "sick")
    return Health(seen.generations, tuple(findings), _measured(seen))


@dataclass
class _Tally:
    """Answers, counted by question: ``right`` adds up each question's share of right rollouts."""

    questions: int = 0
    solved: int = 0
    right: float = 0.0
    rollouts: int = 0
    successes: float = 0.0

    def add(self, event: Acted) -> None:
        for start in range(0, len(event.rewards), event.samples):
            rewards = event.rewards[start : start + event.samples]
            self.questions += 1
            self.solved += any(rewards)
            self.right += sum(rewards) / len(rewards)
            self.rollouts += len(rewards)
            self.successes += sum(rewards)

    def __add__(self, other: _Tally) -> _Tally:
        return _Tally(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def share(self) -> Interval:
        return wilson(round(self.right), self.questions)

    @property
    def is_beyond_reach(self) -> bool:
        some = wilson(round(self.successes), self.rollouts).high < RARE_ROLLOUTS
        return some and wilson(self.solved, self.questions).high < RARE_QUESTIONS

    def __str__(self) -> str:
        most = wilson(round(self.successes), self.rollouts).high
        return (
            f"{self.successes:.0f} right in {self.rollouts} rollouts to {self.questions} questions, "
            f"so with 95 % confidence at most {100 * most:.1f} % can be right"
        )


class _Seen:
    """The events, added up."""

    def __init__(self) -> None:
        self.generations = self.founders = self.bankrupt = self.births = self.refounded = self.trials = 0
        self.earned = self.paid = self.rent = self.tickets = self.train_flops = self.lessons = 0
        self.rate: float | None = None
        self.alive: set[str] = set()
        self.lived = 0
        self.cells: dict[str, _Tally] = {}
        self.by_updates: dict[int, dict[str, _Tally]] = {}
        self.practice = _Tally()
        self.tokens_out: dict[bool, list[int]] = {False: [0, 0], True: [0, 0]}
        self.losses: dict[int, list[float]] = {}
        self.norms: dict[int, list[float]] = {}
        self.quarantined: list[Quarantined] = []
        self.shrunk: list[BatchShrunk] = []
        self.balances: dict[str, int] = {}
        self.last_change = 0
        self._updates: dict[str, int] = {"host": 0}

    def add(self, event: Event) -> None:
        match event:
            case Born():
                self._born(event)
            case Acted():
                self._acted(event)
            case Learned():
                self.lessons += event.lessons
                self.losses.setdefault(event.generation, []).append(event.loss)
                self.norms.setdefault(event.generation, []).append(event.gradient_norm)
                self._updates[event.id] = self._updates.get(event.id, 0) + 1
            case Settled():
                self.earned += event.revenue
                self.paid += event.cost
                self.rent += event.rent
                self.tickets += event.tickets
                self.balances[event.id] = event.balance
            case Retired():
                self.bankrupt += event.cause == "bankrupt"
                self.balances.pop(event.id, None)
                self.last_change = event.generation
            case Quarantined():
                self.quarantined.append(event)
            case BatchShrunk():
                self.shrunk.append(event)
            case GenerationEnded():
                self.generations, self.train_flops = event.generation + 1, event.train_flops

    def _born(self, event: Born) -> None:
        self.lived += 1
        if event.parents:
            self.births += 1
            self.last_change = event.generation
        elif self.generations == 0 and not self.trials:
            self.founders += 1
        else:
            self.refounded += 1
        if event.operator == "founder":  # it begins as the host; others bring what somebody learned
            self._updates[event.id] = 0
        if self.rate is None and event.traits.get("learning_rate"):
            self.rate = event.traits["learning_rate"]

    def _acted(self, event: Acted) -> None:
        is_practice = event.purpose == "practice"
        self.trials += is_practice
        if not event.rewards:
            return
        updates = self._updates.get(event.id)
        if updates is not None:
            self.by_updates.setdefault(updates, {}).setdefault(event.cell, _Tally()).add(event)
        if is_practice:
            self.practice.add(event)
            self.cells.setdefault(event.cell, _Tally()).add(event)
            written = self.tokens_out[bool(updates)]
            written[0] += event.tokens_out
            written[1] += len(event.rewards)

    def learned(self, updates: int) -> dict[str, _Tally]:
        """By cell, the answers of those with at least so many updates in their life."""
        total: dict[str, _Tally] = {}
        for count, cells in self.by_updates.items():
            if count >= updates:
                for cell, tally in cells.items():
                    total[cell] = total.get(cell, _Tally()) + tally
        return total

    def spent(self, design: Design) -> int:
        return self.paid + self.rent + self.tickets * design.prices.ticket

    @property
    def families(self) -> dict[str, dict[str, _Tally]]:
        grouped: dict[str, dict[str, _Tally]] = {}
        for cell, tally in sorted(self.cells.items()):
            grouped.setdefault(cell.rpartition("/")[0], {})[cell] = tally
        return grouped


def _before_flip(events: Iterable[Event], flip_at: float | None) -> Iterator[Event]:
    """The events of the generations that began before what counts as right changed, if it changed at all."""
    last: int | None = None
    for event in events:
        if last is not None and event.generation > last:
            return
        yield event
        if isinstance(event, GenerationEnded) and flip_at is not None and event.train_flops >= flip_at > 0:
            last = event.generation


def _compared(before: Mapping[str, _Tally], after: Mapping[str, _Tally]) -> tuple[Interval, Interval] | None:
    """Shares of right answers before and after on the same mix of cells, which is that of after."""
    cells = sorted(before.keys() & after.keys())
    count = sum(after[cell].questions for cell in cells)
    if not count:
        return None
    weights = {cell: after[cell].questions / count for cell in cells}
    share = sum(weights[cell] * before[cell].right / before[cell].questions for cell in cells)
    # As many questions as would tell a share that well if they had come in this mix.
    size = round(1 / sum(weights[cell] ** 2 / before[cell].questions for cell in cells))
    right = round(sum(after[cell].right for cell in cells))
    return wilson(min(round(share * size), size), size), wilson(right, count)


def _collapse(seen: _Seen) -> list[Finding]:
    """Whether learning makes worse: those who learned are right less often than those who have not yet."""
    before = seen.by_updates.get(0, {})
    for updates in UPDATES:
        shares = _compared(before, seen.learned(updates))
        if shares is None or shares[1].high >= shares[0].low:
            continue
        first, rest = _norms(seen)
        short, long = (written / max(count, 1) for written, count in seen.tokens_out.values())
        since = "an update" if updates == 1 else f"{updates} updates"
        return [
            Finding(
                "learning rate too high",
                "sick",
                f"who has not learned yet is right on {_percent(shares[0])} of questions, "
                f"who had {since} or more on {_percent(shares[1])} of the same cells; "
                f"median gradient norm {first:.2g} at first, then {rest:.2g}; "
                f"replies of {short:.1f} tokens, then {long:.1f}; {_deaths(seen)}",
                f"lower strategy.learning_rate: try {seen.rate / 10:.2g} instead of {seen.rate:.2g}"
                if seen.rate
                else "lower strategy.learning_rate",
            )
        ]
    return []


def _divergence(seen: _Seen, design: Design) -> list[Finding]:
    """The same for who learns from gold answers: the loss, which is in nats per token there, rises."""
    if not design.sees_gold or len(seen.losses) < 3:
        return []
    losses = [median(one) for _, one in sorted(seen.losses.items())]
    late = median(losses[-max(len(losses) // 3, 1) :])
    if late <= MARGIN * losses[0]:
        return []
    return [
        Finding(
            "learning rate too high",
            "sick",
            f"the loss on gold answers began at {losses[0]:.3g} nats per token and stands at {late:.3g}",
            f"lower strategy.learning_rate: try {(seen.rate or 0) / 10:.2g} instead of {seen.rate:.2g}",
        )
    ]


def _quarantines(seen: _Seen) -> list[Finding]:
    if not seen.quarantined:
        return []
    count, reason = len(seen.quarantined), seen.quarantined[-1].reason
    return [
        Finding(
            "numbers that are not finite",
            "sick" if count >= POISONED * seen.lived else "warn",
            f"{count} of {seen.lived} organelles were quarantined ({reason})",
            "lower strategy.learning_rate"
            + (f": try {seen.rate / 10:.2g} instead of {seen.rate:.2g}" if seen.rate else "")
            + "; with host.dtype=float16 take bfloat16 or float32",
        )
    ]


def _starvation(seen: _Seen, design: Design) -> list[Finding]:
    """Whether nobody can live off these prices, or nobody does."""
    if not design.is_mortal or not seen.generations:
        return []
    prices, rollouts = design.prices, seen.practice.rollouts
    if not seen.trials:
        return [
            Finding(
                "nobody could pay for a question",
                "sick",
                f"{seen.lived} organelles lived and none of them practised; {_deaths(seen)}",
                f"raise economy.dowry ({prices.dowry} mATP) well above economy.ticket ({prices.ticket})",
            )
        ]
    if not rollouts:
        return []
    spent = seen.spent(design)
    pay = seen.earned / seen.practice.successes if seen.practice.successes else prices.price(0.0)
    each = spent / rollouts
    books = f"{_atp(seen.earned)} ATP earned and {_atp(spent)} spent in all; {_deaths(seen)}"
    if each >= pay:
        return [
            Finding(
                "everyone starves",
                "sick",
                f"a rollout costs {each:.0f} mATP with its lessons, rent and ticket, a right answer pays "
                f"{pay:.0f}: even who is always right goes broke; {books}",
                _mend_prices(seen, design, pay, each),
            )
        ]
    if seen.bankrupt >= seen.founders and seen.earned < POOR * spent:
        return [
            Finding(
                "everyone starves",
                "sick",
                f"an organelle that learns must be right {100 * each / pay:.0f} % of the time to live, "
                f"the population is {100 * seen.practice.successes / rollouts:.0f} %; {books}",
                _mend_prices(seen, design, pay, each),
            )
        ]
    return []


def _mend_prices(seen: _Seen, design: Design, pay: float, each: float) -> str:
    prices = design.prices
    success = max(seen.practice.successes / seen.practice.rollouts, 0.01)
    need = max(MARGIN * each, min(each / success, 4 * each))
    words = (
        f"raise economy.base and economy.highest ({prices.base} and {prices.highest}) until a right answer "
        f"pays about {_round(need):.0f} mATP"
    )
    fixed = (seen.spent(design) - seen.paid) / seen.practice.rollouts
    rollout = prices.rollout * (pay * each / need - fixed) / max(each - fixed, 1e-9)
    if rollout >= 1:
        return f"{words}, or lower economy.rollout ({prices.rollout}) to about {_round(rollout):.0f}"
    return f"{words}; economy.rollout ({prices.rollout}) alone cannot mend it"


def _beyond_reach(seen: _Seen, needs_success: bool) -> list[Finding]:
    """Families, and cells of other families, that practically nobody solves."""
    findings: list[Finding] = []
    families = seen.families
    lost = {name for name, cells in families.items() if sum(cells.values(), _Tally()).is_beyond_reach}
    cause = "with verdicts alone there is nothing to learn from" if needs_success else "it earns nothing"
    if lost and len(lost) == len(families):
        everything = "; ".join(f"{name}: {sum(families[name].values(), _Tally())}" for name in sorted(lost))
        return [
            Finding(
                "nobody solves anything",
                "sick" if needs_success else "warn",
                f"{everything}; {cause}",
                "check that tasks.style suits the host (natural, and is_chat=true for a chat model), "
                "take other tasks.families or shorter tasks.depths, or a larger host.model",
            )
        ]
    for name in sorted(lost):
        total = sum(families[name].values(), _Tally())
        part = 100 * total.rollouts / seen.practice.rollouts
        findings.append(
            Finding(
                f"nobody solves {name}",
                "sick" if needs_success else "warn",
                f"{total}; {cause}, and it took {part:.0f} % of all rollouts",
                f"take {name} out of tasks.families, or shorten tasks.depths",
            )
        )
    hard = [c for name in families.keys() - lost for c, t in families[name].items() if t.is_beyond_reach]
    for cell in sorted(hard):
        name, _, depth = cell.rpartition("/")
        findings.append(
            Finding(
                f"nobody solves {cell}",
                "warn",
                f"{seen.cells[cell]}; {name} is solved at other depths",
                f"take {depth} out of tasks.depths, or {name} out of tasks.families",
            )
        )
    return findings


def _no_lessons(seen: _Seen, found: Iterable[Finding]) -> list[Finding]:
    """Whether plasticity is on and teaches nothing."""
    if seen.lessons or not seen.trials or any(f.name == "nobody solves anything" for f in found):
        return []
    successes, rollouts = seen.practice.successes, seen.practice.rollouts
    if rollouts and successes == rollouts:
        why, mend = "all were right", "take harder tasks.families or longer tasks.depths"
    elif not successes:
        why = "none was right"
        mend = "take easier tasks.families, shorter tasks.depths, or a tasks.style that suits the host"
    else:
        why = f"{successes:.0f} were right"
        mend = "ask less of a lesson: lower plasticity.least or plasticity.accept, raise strategy.samples"
    return [Finding("nobody learns", "sick", f"{rollouts} rollouts, {why}, and not one lesson", mend)]


def _nothing_left(seen: _Seen, design: Design) -> list[Finding]:
    """Whether the host could do it all before it learned anything."""
    start = sum(seen.by_updates.get(0, {}).values(), _Tally())
    if design.sees_gold or not start.questions or start.share.low < SOLVED:
        return []
    return [
        Finding(
            "nothing left to learn",
            "sick",
            f"before its first update the population is right on {_percent(start.share)} of "
            f"{start.questions} questions",
            "take harder tasks.families, longer tasks.depths, or a smaller host.model",
        )
    ]


def _thin_evidence(seen: _Seen, design: Design) -> list[Finding]:
    families = [sum(cells.values(), _Tally()) for cells in seen.families.values()]
    judged = sum(tally.questions >= ENOUGH_QUESTIONS or tally.solved > 0 for tally in families)
    if design.sees_gold or not families or 2 * judged >= len(families):
        return []
    return [
        Finding(
            "too little to judge",
            "warn",
            f"only {judged} of {len(families)} families were solved once or asked {ENOUGH_QUESTIONS} times",
            "calibrate for more --generations, or raise strategy.questions",
        )
    ]


def _standstill(seen: _Seen, design: Design) -> list[Finding]:
    """Whether energy tells nobody apart: everyone is as rich as can be, and nobody is born or dies."""
    prices, breed_at = design.prices, design.breed_at
    if breed_at is None:
        return []
    if breed_at > prices.cap:
        return [
            Finding(
                "nobody can breed",
                "sick",
                f"strategy.breed_at is {breed_at} mATP, economy.cap allows {prices.cap}",
                "lower strategy.breed_at below economy.cap, or raise economy.cap",
            )
        ]
    quiet = seen.generations - 1 - seen.last_change
    is_rich = bool(seen.balances) and min(seen.balances.values()) >= prices.cap
    if not is_rich or seen.births + seen.bankrupt and quiet <= seen.generations // 3:
        return []
    return [
        Finding(
            "no energy differences",
            "sick",
            f"all {len(seen.balances)} organelles are at the cap of {prices.cap} mATP, and nobody was born "
            f"or died in the last {quiet} generations: selection has nothing to choose by",
            f"lower economy.base and economy.lowest ({prices.base} and {prices.lowest}), raise "
            f"economy.rollout ({prices.rollout}), or raise strategy.capacity",
        )
    ]


def _memory(seen: _Seen) -> list[Finding]:
    if not seen.shrunk:
        return []
    last = seen.shrunk[-1]
    return [
        Finding(
            "out of memory",
            "warn",
            f"the device ran out of memory in {len(seen.shrunk)} generations, last in {last.generation}; "
            f"batches go in pieces of {last.memory_mb:.0f} MB since",
            f"set host.memory_mb={last.memory_mb:.0f}, lower host.slots, or host.is_checkpointing=true",
        )
    ]


def _measured(seen: _Seen) -> dict[str, Any]:
    learned = _compared(seen.by_updates.get(0, {}), seen.learned(1))
    start = sum(seen.by_updates.get(0, {}).values(), _Tally())
    return {
        "rollouts": seen.practice.rollouts,
        "questions": seen.practice.questions,
        "lessons": seen.lessons,
        "right_at_first": asdict(start.share) if start.questions else None,
        "right_after_learning": asdict(learned[1]) if learned else None,
        "right_before_on_those_cells": asdict(learned[0]) if learned else None,
        "families": {
            name: round(sum(cells.values(), _Tally()).successes) for name, cells in seen.families.items()
        },
        "earned": seen.earned,
        "cost_and_rent": seen.paid + seen.rent,
        "tickets": seen.tickets,
        "founders": seen.founders,
        "births": seen.births,
        "bankrupt": seen.bankrupt,
        "refounded": seen.refounded,
        "quarantined": len(seen.quarantined),
        "train_flops": seen.train_flops,
    }


def _norms(seen: _Seen) -> tuple[float, float]:
    """Median gradient norm of the first generation with lessons, and of the later ones."""
    first, *later = (norms for _, norms in sorted(seen.norms.items()))
    rest = [norm for norms in later for norm in norms]
    return median(first), median(rest) if rest else median(first)


def _deaths(seen: _Seen) -> str:
    return f"{seen.bankrupt} bankrupt, {seen.refounded} founded anew, {seen.births} born"


def _percent(share: Interval) -> str:
    return f"{100 * share.estimate:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _atp(amount: int) -> str:
    return f"{amount / 1000:.0f}"


def _round(value: float) -> float:
    """Two significant digits: these are hints, not results."""
    return float(f"{value:.2g}")
