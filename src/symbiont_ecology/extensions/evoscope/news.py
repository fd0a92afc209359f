"""News of a run in plain sentences: births, deaths and why, trials, moves, solved families, faults,
and what the world did by itself.

A sentence is made where its event is read, from that event and those before it, so equal logs give
equal news. What the world did follows from the config alone: no organelle is told, but people are.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from symbiont_ecology.base import events
from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.base.types import OrganelleId, cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.run.budget import NEAR
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.users import SyntheticUsers

NEWS_KINDS = {
    "birth": "births",
    "death": "deaths",
    "trial": "trials",
    "merge": "merges",
    "move": "users who move",
    "change": "changes noticed",
    "world": "changes of the world",
    "milestone": "families solved or lost",
    "body": "new ranks",
    "fault": "faults",
}
"""Kinds of news, and their names in a filter."""
WINDOW = 10
"""Generations that a sentence sums up."""
SOLVED_SHARE, LOST_SHARE, MIN_ANSWERS = 0.8, 0.5, 10
"""Share of right answers in a window from which a family counts as solved, below which it is lost
again, and answers without which neither is said."""
MAX_LISTED = 6
"""Names that a sentence lists."""


@dataclass(frozen=True)
class News:
    """Something that happened, with the organelles and places (cells, families, users) that it is
    about."""

    generation: int
    kind: str
    text: str
    organelles: tuple[OrganelleId, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Answers:
    """Answers of an organelle in a generation, and those that were right."""

    generation: int
    id: OrganelleId
    asked: int
    right: float


class Chronicle:
    """All news of a log, as far as it was read. Without an economy energy is no news."""

    def __init__(self, *, has_economy: bool = True) -> None:
        self.news: list[News] = []
        self.solved: dict[str, int] = {}
        """Generation since which each family is solved."""
        self._has_economy = has_economy
        self._servers: dict[str, OrganelleId] = {}
        self._families = defaultdict[str, deque[_Answers]](deque)
        self._proposed: dict[OrganelleId, events.Proposed] = {}

    def add(self, event: events.Event, ancestors: Sequence[OrganelleId] = ()) -> None:
        """Read the next event. ``ancestors`` are those of a newborn, the dead included."""
        match event:
            case events.Acted() if event.verdicts and event.purpose == "practice":
                self._count(event)
            case events.Born():
                self._add_birth(event, ancestors)
            case events.Retired():
                self._add_death(event)
            case events.Proposed():
                self._proposed[event.id] = event
                self._say(event, "trial", _proposal(event), (event.id, *event.parents))
            case events.Gated():
                self._add_verdict(event)
            case events.Served():
                self._add_moves(event)
            case events.Upheaved():
                families = listed(dict.fromkeys(map(cell_family, event.cells)))
                text = f"The world is taken to have changed in {families}: nobody holds these cells"
                self._say(event, "change", f"{text} any more.", (), event.cells)
            case events.Resized():
                text = f"{event.id} has rank {event.rank} now and keeps {event.kept:.0%} of its ΔW."
                self._say(event, "body", text, (event.id,))
            case events.WarmStarted():
                text = f"A warm start: founders have learned {len(event.items)} reference answers, "
                self._say(event, "world", f"{text}{event.per_cell} of each cell.")
            case events.GenerationEnded():
                self._add_milestones(event)
            case _:
                self._add_fault(event)

    def _say(
        self,
        event: events.Event,
        kind: str,
        text: str,
        organelles: Iterable[OrganelleId] = (),
        places: Iterable[str] = (),
    ) -> None:
        self.news.append(News(event.generation, kind, text, tuple(organelles), tuple(places)))

    def _count(self, event: events.Acted) -> None:
        answers = _Answers(event.generation, event.id, len(event.verdicts), sum(event.verdicts))
        self._families[cell_family(event.cell)].append(answers)

    def _add_birth(self, event: events.Born, ancestors: Sequence[OrganelleId]) -> None:
        how = f"({event.operator}{f', rank {event.rank}' if event.rank else ''})"
        relatives, kind = (event.parents or ancestors), "birth"
        if len(event.parents) > 1:
            text, kind = f"{event.id} is born of {listed(event.parents)}, merged {how}.", "merge"
        elif event.parents:
            text = f"{event.id} is born of {event.parents[0]} {how}."
        elif ancestors:
            text = f"{event.id} is founded with weights of {ancestors[0]} {how}."
        else:
            text = f"{event.id} is founded {how}."
        self._say(event, kind, text, (event.id, *relatives))

    def _add_death(self, event: events.Retired) -> None:
        estate = f"; it leaves {event.balance / 1000:+.1f} ATP" if self._has_economy else ""
        text = f"{event.id} dies after {event.age} generations: {event.cause}{estate}."
        self._say(event, "death", text, (event.id,))

    def _add_verdict(self, event: events.Gated) -> None:
        proposed = self._proposed.pop(event.id, None)
        parents = proposed.parents if proposed else ()
        rival = "its parent" if len(parents) == 1 else "its better parent"
        verdict = "admitted" if event.verdict == "admit" else "refused"
        if event.reason and verdict == "refused":
            verdict += f": {event.reason}"
        text = (
            f"{event.id} is {verdict}. Of {event.wins + event.ties + event.losses} questions that "
            f"both answered, it alone was right on {event.wins}, {rival} alone on {event.losses}."
        )
        self._say(event, "trial", text, (event.id, *parents))

    def _add_moves(self, event: events.Served) -> None:
        moves = defaultdict[tuple[OrganelleId, OrganelleId], list[str]](list)
        for user, server in event.servers.items():
            moves[self._servers.get(user, ""), server].append(user)
            self._servers[user] = server
        for (before, after), users in moves.items():
            who, is_one = listed(sorted(users)), len(users) == 1
            if not after:
                verb = "leaves" if is_one else "leave"
                text = f"{who} {verb} {before}: what is wanted there has changed, or was misjudged."
                self._say(event, "change", text, (before,), users)
            elif before:
                text = f"{who} {'moves' if is_one else 'move'} from {before} to {after}."
                self._say(event, "move", text, (before, after), users)
            else:
                text = f"{who} {'settles' if is_one else 'settle'} with {after}."
                self._say(event, "move", text, (after,), users)

    def _add_milestones(self, event: events.GenerationEnded) -> None:
        for family, answers in self._families.items():
            while answers and answers[0].generation <= event.generation - WINDOW:
                answers.popleft()
            asked, right = sum(row.asked for row in answers), sum(row.right for row in answers)
            if asked < MIN_ANSWERS:
                continue
            share = right / asked
            if family not in self.solved and share >= SOLVED_SHARE:
                self.solved[family] = event.generation
                solvers = _solvers(answers)
                text = f"{family} is solved: {share:.0%} right. Right answers of the last {WINDOW} "
                text += "generations: " + ", ".join(f"{who} {n:g}" for who, n in solvers) + "."
                self._say(event, "milestone", text, [who for who, _ in solvers], (family,))
            elif family in self.solved and share < LOST_SHARE:
                del self.solved[family]
                text = f"{family} is lost: {share:.0%} of the last {asked} answers were right."
                self._say(event, "milestone", text, (), (family,))

    def _add_fault(self, event: events.Event) -> None:
        match event:
            case events.Quarantined():
                text = f"{event.id} is put in quarantine: {event.reason}."
                self._say(event, "fault", text, (event.id,))
            case events.VerifierFailed():
                more = f" and {event.count - 1} more" if event.count > 1 else ""
                text = f"The verifier failed on a reply of {event.id} to {event.item}{more}: "
                self._say(event, "fault", f"{text}{event.fault}.", (event.id,), (event.item,))
            case events.PartFailed():
                text = f"{event.part} failed at {event.failed} of {event.calls} calls: it "
                self._say(event, "fault", f"{text}{event.fault}.")
            case events.Stillborn():
                text = f"A child of {listed(event.parents)} could not live: {event.operator} "
                self._say(event, "fault", f"{text}{event.fault}.", event.parents)
            case events.BatchShrunk():
                text = f"Memory ran out: batches take {event.memory_mb:.0f} MB now."
                self._say(event, "fault", text)


def _proposal(event: events.Proposed) -> str:
    if len(event.parents) > 1:
        return f"{event.id}, a child of {listed(event.parents)}, is tried ({event.operator})."
    return f"{event.id}, another self of {event.parents[0]}, is tried ({event.operator})."


def _solvers(answers: Iterable[_Answers]) -> list[tuple[OrganelleId, float]]:
    """Return at most three organelles with their right answers."""
    right = Counter[OrganelleId]()
    for row in answers:
        right[row.id] += row.right  # type: ignore[assignment]
    return [(who, count) for who, count in right.most_common(3) if count and who != HOST]


def listed(names: Iterable[str]) -> str:
    """Return a few names, and how many more there are."""
    names = list(names) or ["nobody"]
    if len(names) > MAX_LISTED:
        names = [*names[: MAX_LISTED - 1], f"{len(names) - MAX_LISTED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class KindChange:
    """A user is of a hidden kind from a generation on."""

    generation: int
    user: str
    kind: int


def kinds_of(config: RunConfig, generations: int) -> list[KindChange]:
    """Return the hidden kinds of all users of a synthetic world, and when they change."""
    if config.tasks.users is None:
        return []
    try:
        users = mixture(config).users
    except EcologyError:  # data that the run was founded with have gone
        return []
    if not isinstance(users, SyntheticUsers):
        return []
    changes, before = list[KindChange](), dict[str, int]()
    for generation in range(generations):
        for user, kind in zip(users.names, map(int, users.kinds(generation)), strict=True):
            if kind != before.get(user):
                changes.append(KindChange(generation, user, kind))
                before[user] = kind
    return changes


def world_news(
    config: RunConfig, kinds: Sequence[KindChange], ends: Sequence[events.GenerationEnded]
) -> list[News]:
    """Return what the world did in the generations that were lived."""
    return [*_changes_of_mind(kinds), *_flips(config, ends)]


def _changes_of_mind(kinds: Sequence[KindChange]) -> Iterator[News]:
    latest, moments = dict[str, int](), defaultdict[int, dict[str, str]](dict)
    for change in kinds:
        if change.generation:
            text = f"{change.user} (kind {latest[change.user]} → {change.kind})"
            moments[change.generation][change.user] = text
        latest[change.user] = change.kind
    for generation, texts in moments.items():
        verb = "wants" if len(texts) == 1 else "want"
        text = f"{listed(texts.values())} {verb} something else from here on"
        yield News(generation, "world", f"{text} (the organelles do not know).", (), tuple(texts))


def _flips(config: RunConfig, ends: Sequence[events.GenerationEnded]) -> Iterator[News]:
    """Yield the first generation that began behind each change of what counts as right."""
    if (flip := config.tasks.flip) is None:
        return
    before = 0.0
    for flops, text in (
        (flip.at_flops, "What counts as right changes (the organelles do not know)."),
        (flip.back_flops, "What counted as right at first does so again."),
    ):
        if flops is None:
            continue
        begins, before = flops - NEAR * (flops - before), flops
        late = next((end for end in ends[:-1] if end.train_flops >= begins), None)
        if late is not None:
            yield News(late.generation + 1, "world", text)
