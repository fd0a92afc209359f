"""What happened, in plain sentences: births, deaths and why, trials, moves, and what was learned
when.

A sentence is made where its event is read, from that event and those before it, so equal logs give
equal chronicles.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from symbiont_ecology.ecology import HOST
from symbiont_ecology.events import (
    Acted,
    BatchShrunk,
    Born,
    Event,
    Gated,
    GenerationEnded,
    PartFailed,
    Proposed,
    Quarantined,
    Resized,
    Retired,
    Served,
    Settled,
    Stillborn,
    Upheaved,
    VerifierFailed,
    WarmStarted,
)
from symbiont_ecology.types import OrganelleId, cell_family

LOOK_BACK = 10
"""Generations that a sentence looks back on."""
SOLVED_SHARE, LOST_SHARE, LEAST_ASKED = 0.8, 0.5, 10
"""Share of right answers of the last generations from which a family counts as solved, below which
it is lost again, and rollouts without which neither is said."""
MOST_LISTED = 6
"""Names that a sentence lists."""


@dataclass(frozen=True)
class News:
    """Something that happened. ``kind`` sorts news; ``organelles`` and ``places`` (cells, families,
    habitats) are those that it is about."""

    generation: int
    kind: str
    text: str
    organelles: tuple[OrganelleId, ...] = ()
    places: tuple[str, ...] = ()


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
"""What kinds of news there are, and what a filter calls them."""


@dataclass(frozen=True)
class Answers:
    """What an organelle was asked in a generation, of a family: rollouts, and those right."""

    generation: int
    id: OrganelleId
    asked: int
    right: float


class Chronicle:
    """All news of a run, as far as its log was read."""

    def __init__(self, *, has_economy: bool = True) -> None:
        self.news: list[News] = []
        self.has_economy = has_economy
        """Whether energy is news."""
        self.servers: dict[str, OrganelleId] = {}
        """Who serves each habitat."""
        self.server_changes = 0
        """How often a habitat got a server, another one, or none, as organelles were told."""
        self.solved: dict[str, int] = {}
        """The generation since which each family is solved."""
        self._books: dict[OrganelleId, deque[Settled]] = defaultdict(
            lambda: deque(maxlen=LOOK_BACK)
        )
        self._answers: dict[OrganelleId, deque[Answers]] = defaultdict(deque)
        self._families: dict[str, deque[Answers]] = defaultdict(deque)
        self._challenged: dict[OrganelleId, Proposed] = {}

    def add(self, event: Event, ancestors: Sequence[OrganelleId] = ()) -> None:
        """Reads the next event; some are news. ``ancestors`` are those of a newborn, the dead
        included."""
        match event:
            case Settled():
                self._books[event.id].append(event)
            case Acted() if event.verdicts and event.purpose == "practice":
                self._hear(event)
            case Born():
                self._birth(event, ancestors)
            case WarmStarted():
                text = f"A warm start: founders have learned {len(event.items)} reference answers, "
                self._say(event, "world", f"{text}{event.per_cell} of each cell.")
            case Retired():
                self._death(event)
            case Proposed():
                self._challenged[event.id] = event
                self._say(event, "trial", _proposal(event), (event.id, *event.parents))
            case Gated():
                self._verdict(event)
            case Served():
                self._moves(event)
            case Upheaved():
                families = dict.fromkeys(cell_family(cell) for cell in event.cells)
                text = f"The world is taken to have changed in {listed(families)}: nobody holds "
                self._say(event, "change", f"{text}these cells any more.", (), event.cells)
            case Resized():
                text = f"{event.id} has rank {event.rank} now and keeps {event.kept:.0%} of its ΔW."
                self._say(event, "body", text, (event.id,))
            case Quarantined():
                text = f"{event.id} is put in quarantine: {event.reason}."
                self._say(event, "fault", text, (event.id,))
            case VerifierFailed():
                more = f" and {event.count - 1} more" if event.count > 1 else ""
                text = f"The verifier failed on a reply of {event.id} to {event.item}{more}: "
                self._say(event, "fault", f"{text}{event.fault}.", (event.id,), (event.item,))
            case PartFailed():
                text = f"{event.part} failed at {event.failed} of {event.calls} calls: "
                self._say(event, "fault", f"{text}it {event.fault}.")
            case Stillborn():
                text = f"A child of {listed(event.parents)} could not live: {event.operator} "
                self._say(event, "fault", f"{text}{event.fault}.", event.parents)
            case BatchShrunk():
                text = f"Memory ran out: batches take {event.memory_mb:.0f} MB now."
                self._say(event, "fault", text)
            case GenerationEnded():
                self._look_at_families(event)

    def _say(
        self,
        event: Event,
        kind: str,
        text: str,
        organelles: Sequence[OrganelleId] = (),
        places: Iterable[str] = (),
    ) -> None:
        self.news.append(News(event.generation, kind, text, tuple(organelles), tuple(places)))

    def _hear(self, event: Acted) -> None:
        family = cell_family(event.cell)
        answers = Answers(event.generation, event.id, len(event.verdicts), sum(event.verdicts))
        for queue in (self._answers[event.id], self._families[family]):
            queue.append(answers)
            while queue[0].generation <= event.generation - LOOK_BACK:
                queue.popleft()

    def _birth(self, event: Born, ancestors: Sequence[OrganelleId]) -> None:
        rank = f", rank {event.rank}" if event.rank else ""
        by = f"({event.operator}{rank})"
        if len(event.parents) > 1:
            text = f"{event.id} is born of {listed(event.parents)}, merged {by}."
            self._say(event, "merge", text, (event.id, *event.parents))
        elif event.parents:
            text = f"{event.id} is born of {event.parents[0]} {by}."
            self._say(event, "birth", text, (event.id, *event.parents))
        elif ancestors:
            text = f"{event.id} is founded with weights of {ancestors[0]} {by}."
            self._say(event, "birth", text, (event.id, *ancestors))
        else:
            self._say(event, "birth", f"{event.id} is founded {by}.", (event.id,))

    def _death(self, event: Retired) -> None:
        estate = f"; it leaves {event.balance / 1000:+.1f} ATP" if self.has_economy else ""
        text = f"{event.id} dies after {event.age} generations: {event.cause}{estate}."
        if (books := self._books.pop(event.id, None)) and event.cause == "bankrupt":
            text += f" {self._why(event, books)}"
        self._answers.pop(event.id, None)
        self._say(event, "death", text, (event.id,))

    def _why(self, event: Retired, books: Sequence[Settled]) -> str:
        """What an organelle earned, spent and answered at its end."""
        count = len(books)
        earned, cost, rent = (
            sum(getattr(book, name) for book in books) / count / 1000
            for name in ("revenue", "cost", "rent")
        )
        spent = sum(book.spent for book in books) / count / 1000
        answers = [
            row
            for row in self._answers.get(event.id, ())
            if row.generation > event.generation - 1 - LOOK_BACK
        ]
        asked, right = sum(row.asked for row in answers), sum(row.right for row in answers)
        lately = f"In its last {count} generations it" if count > 1 else "In its last generation it"
        text = f"{right:g} of {asked} answers were right" if asked else "nobody asked it"
        return (
            f"{lately} earned {earned:.1f} ATP and spent {spent:.1f} in each (compute {cost:.1f}, "
            f"rent {rent:.1f}); {text}."
        )

    def _verdict(self, event: Gated) -> None:
        proposed = self._challenged.pop(event.id, None)
        parents = proposed.parents if proposed else ()
        rival = "its parent" if len(parents) == 1 else "its better parent"
        is_admitted = event.verdict == "admit"
        pairs = event.wins + event.ties + event.losses
        why = f": {event.reason}" if event.reason else ""
        text = (
            f"{event.id} is {'admitted' if is_admitted else f'refused{why}'}. Of {pairs} questions "
            f"that both answered, it alone was right on {event.wins}, {rival} alone on "
            f"{event.losses}."
        )
        self._say(event, "trial", text, (event.id, *parents))

    def _moves(self, event: Served) -> None:
        moves: dict[tuple[OrganelleId, OrganelleId], list[str]] = defaultdict(list)
        self.server_changes += len(event.servers)
        for habitat, server in event.servers.items():
            moves[self.servers.get(habitat, ""), server].append(habitat)
            self.servers[habitat] = server
        for (before, after), habitats in moves.items():
            who, verb = listed(sorted(habitats)), "leaves" if len(habitats) == 1 else "leave"
            if not after:
                text = f"{who} {verb} {before}: what is wanted there has changed, or was misjudged."
                self._say(event, "change", text, (before,), habitats)
            elif before:
                verb = "moves" if len(habitats) == 1 else "move"
                text = f"{who} {verb} from {before} to {after}."
                self._say(event, "move", text, (before, after), habitats)
            else:
                verb = "settles" if len(habitats) == 1 else "settle"
                self._say(event, "move", f"{who} {verb} with {after}.", (after,), habitats)

    def _look_at_families(self, event: GenerationEnded) -> None:
        for family, answers in self._families.items():
            while answers and answers[0].generation <= event.generation - LOOK_BACK:
                answers.popleft()
            asked, right = sum(row.asked for row in answers), sum(row.right for row in answers)
            if asked < LEAST_ASKED:
                continue
            share = right / asked
            if family not in self.solved and share >= SOLVED_SHARE:
                self.solved[family] = event.generation
                self._say(event, "milestone", *_solved(family, share, answers))
            elif family in self.solved and share < LOST_SHARE:
                del self.solved[family]
                text = f"{family} is lost: {share:.0%} of the last {asked} answers were right."
                self._say(event, "milestone", text, (), (family,))


def _proposal(event: Proposed) -> str:
    if len(event.parents) > 1:
        return f"{event.id}, a child of {listed(event.parents)}, is tried ({event.operator})."
    return f"{event.id}, another self of {event.parents[0]}, is tried ({event.operator})."


def _solved(
    family: str, share: float, answers: Iterable[Answers]
) -> tuple[str, tuple[OrganelleId, ...], tuple[str, ...]]:
    """The sentence, by whom, and where."""
    right = Counter[OrganelleId]()
    for row in answers:
        right[row.id] += row.right  # type: ignore[assignment]
    solvers = tuple(name for name, count in right.most_common(3) if count and name != HOST)
    shares = ", ".join(f"{name} {right[name]:g}" for name in solvers)
    text = (
        f"{family} is solved: {share:.0%} right. Right answers of the last {LOOK_BACK} generations:"
    )
    return f"{text} {shares}.", solvers, (family,)


def listed(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    names = list(names) or ["nobody"]
    parts = (
        names
        if len(names) <= MOST_LISTED
        else [*names[: MOST_LISTED - 1], f"{len(names) - MOST_LISTED + 1} more"]
    )
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
