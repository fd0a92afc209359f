"""What the world did by itself, and no organelle is told: hidden kinds of habitats, flips, seasons,
catastrophes.

It follows from the config alone. It is for people who look at a run, and for evaluations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symbiont_ecology.config import RunConfig
from symbiont_ecology.engine.budget import NEAR
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.errors import EcologyError
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.history.chronicle import News, listed
from symbiont_ecology.tasks.habitats import SyntheticHabitats


@dataclass(frozen=True)
class KindChange:
    """A habitat is of a hidden kind from a generation on."""

    generation: int
    habitat: str
    kind: int


def kinds_of(config: RunConfig, generations: int) -> list[KindChange]:
    """The kinds of all habitats of a synthetic world, and when they change; of others nothing is
    known."""
    if config.tasks.habitats is None:
        return []
    try:
        habitats = mixture(config).habitats
    except EcologyError:  # data that the run was founded with have gone
        return []
    if not isinstance(habitats, SyntheticHabitats):
        return []
    changes, before = list[KindChange](), list[int | None]([None] * len(habitats.names))
    for generation in range(generations):
        for place, kind in enumerate(map(int, habitats.kinds(generation))):
            if kind != before[place]:
                changes.append(KindChange(generation, habitats.names[place], kind))
                before[place] = kind
    return changes


def world_news(
    config: RunConfig, kinds: Sequence[KindChange], ends: Sequence[GenerationEnded]
) -> list[News]:
    """What the world did in the generations that were lived."""
    return [
        *_changes_of_mind(kinds),
        *_flips(config, ends),
        *(
            News(generation, "world", f"A catastrophe kills {config.climate.toll:.0%} of all.")
            for generation in config.climate.catastrophes
            if generation < len(ends)
        ),
    ]


def world_changes(config: RunConfig, ends: Sequence[GenerationEnded]) -> list[int]:
    """The generations in which the world did something, rising."""
    news = world_news(config, kinds_of(config, len(ends)), ends)
    return sorted({item.generation for item in news})


def _changes_of_mind(kinds: Sequence[KindChange]) -> Iterator[News]:
    moments: dict[int, list[str]] = defaultdict(list)
    latest: dict[str, int] = {}
    texts: dict[int, list[str]] = defaultdict(list)
    for change in kinds:
        if change.generation:
            moments[change.generation].append(change.habitat)
            before = latest[change.habitat]
            texts[change.generation].append(f"{change.habitat} (kind {before} → {change.kind})")
        latest[change.habitat] = change.kind
    for generation, habitats in moments.items():
        verb = "wants" if len(habitats) == 1 else "want"
        text = f"{listed(texts[generation])} {verb} something else from here on"
        places = tuple(habitats)
        yield News(generation, "world", f"{text} (the organelles do not know).", (), places)


def _flips(config: RunConfig, ends: Sequence[GenerationEnded]) -> Iterator[News]:
    """The first generation that began behind each change of what counts as right."""
    flip = config.tasks.flip
    if flip is None:
        return
    sentence = "What counts as right changes (the organelles do not know)."
    before = 0.0
    for flops, text in (
        (flip.at_flops, sentence),
        (flip.back_flops, "What counted as right at first does so again."),
    ):
        if flops is None:
            continue
        begins, before = flops - NEAR * (flops - before), flops
        for end in ends[:-1]:
            if end.train_flops >= begins:
                yield News(end.generation + 1, "world", text)
                break
