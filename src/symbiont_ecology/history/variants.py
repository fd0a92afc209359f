"""Selection by exams, life after life: who was examined, what was earned, who stayed, and what
changes of genes were worth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symbiont_ecology.events import Scored
from symbiont_ecology.history.history import History
from symbiont_ecology.types import OrganelleId

MOST_DRAWN = 60
"""Lives that a pedigree has, before it leaves out those that came to nothing."""
RANK, ALPHA, RATE, TARGETS = "rank", "alpha", "learning_rate", "targets"
MODULES = ("all", "q and v", "attn", "mlp")
"""Genes of trainings beside dropout, and what the numbers of ``TARGETS`` stand for."""
STEADY, LIVES = 0.01, 5
"""An evolution has converged if the best fitness rose by less than that, relatively, over so many
lives."""


@dataclass(frozen=True)
class Variant:
    """A training or an adapter with its genes: where they came from, and what came of it."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    genes: Mapping[str, float]
    fitness: float
    accuracy: float


@dataclass(frozen=True)
class Life:
    """The end of a life, in a generation with an exam: everybody alive, the best first, and who
    stayed."""

    number: int
    ranking: tuple[Variant, ...]
    survivors: frozenset[OrganelleId]
    generation: int = 0


@dataclass(frozen=True)
class Gain:
    """What a child earned in its first exam beyond its better parent, by the operator that made it
    or by a gene that it changed."""

    id: OrganelleId
    name: str
    is_gene: bool
    amount: float


@dataclass(frozen=True)
class Staying:
    """The share of variants that are there after so many exams (Kaplan and Meier 1958), and how
    many were seen to sit that one."""

    exams: int
    share: float
    at_risk: int


def lives_of(history: History) -> list[Life]:
    """The lives that have ended, of a run with exams."""
    alive: dict[OrganelleId, Variant] = {}
    asked, right = Counter[OrganelleId](), defaultdict[OrganelleId, float](float)
    lives, acts, place, ended = list[Life](), history.acts, 0, -1
    for event in history.selection:
        while place < len(acts) and acts[place].generation <= event.generation:
            asked[acts[place].id] += acts[place].asked
            right[acts[place].id] += acts[place].right
            place += 1
        if isinstance(event, Scored):
            if event.generation != ended:
                ended = event.generation
                lives.append(Life(len(lives) + 1, (), frozenset(), ended))
            node = history.phylogeny.taxa[event.id]
            share = right[node.id] / asked[node.id] if asked[node.id] else float("nan")
            alive[node.id] = Variant(
                node.id, node.operator, node.ancestors, history.traits[node.id], event.score, share
            )
            ranking = tuple(sorted(alive.values(), key=lambda variant: -variant.fitness))
            lives[-1] = replace(lives[-1], ranking=ranking, survivors=frozenset(alive))
        elif event.id in alive:
            del alive[event.id]
            lives[-1] = replace(lives[-1], survivors=lives[-1].survivors - {event.id})
    return lives


def has_converged(lives: Sequence[Life]) -> bool:
    """Whether the best fitness has hardly risen for some lives."""
    if len(lives) <= LIVES:
        return False
    before, now = (lives[place].ranking[0].fitness for place in (-1 - LIVES, -1))
    return now - before <= STEADY * abs(before)


def variants_of(lives: Sequence[Life]) -> dict[OrganelleId, Variant]:
    """Everybody who sat an exam, in their order, with what the last one said."""
    return {variant.id: variant for life in lives for variant in life.ranking}


def first_exams(lives: Sequence[Life]) -> dict[OrganelleId, int]:
    """The generation in which everybody sat an exam for the first time."""
    return {variant.id: life.generation for life in reversed(lives) for variant in life.ranking}


def gains_of(lives: Sequence[Life]) -> list[Gain]:
    """What every change was worth. A child of one parent counts for each gene that it changed, and
    all children count for their operators."""
    variants: dict[OrganelleId, Variant] = {}
    gains = list[Gain]()
    for life in lives:
        children = [variant for variant in life.ranking if variant.id not in variants]
        for child in sorted(children, key=lambda variant: variant.id):
            parents = [variants[name] for name in dict.fromkeys(child.parents) if name in variants]
            if parents:
                amount = child.fitness - max(parent.fitness for parent in parents)
                names = [(child.operator, False)]
                if len(set(child.parents)) == 1:
                    names += [(name, True) for name in _changed(parents[0].genes, child.genes)]
                gains += [Gain(child.id, name, is_gene, amount) for name, is_gene in names]
        variants |= {variant.id: variant for variant in life.ranking}
    return gains


def staying_of(lives: Sequence[Life]) -> list[Staying]:
    """How long variants stay; those who are there at the end count as far as they were seen."""
    counts = Counter(variant.id for life in lives for variant in life.ranking)
    survivors = lives[-1].survivors if lives else frozenset()
    share, points = 1.0, list[Staying]()
    for exams in range(1, max(counts.values(), default=0) + 1):
        at_risk = sum(count >= exams for count in counts.values())
        deaths = sum(count == exams and name not in survivors for name, count in counts.items())
        share *= 1 - deaths / at_risk
        points.append(Staying(exams, share, at_risk))
    return points


def has_trainings(history: History) -> bool:
    """Whether what is examined are trainings, with hyper-parameters for genes."""
    return history.has_exams and any(TARGETS in traits for traits in history.traits.values())


def lesser_lives(history: History) -> set[OrganelleId]:
    """Whom a pedigree of many exams leaves out: the dead that left no children."""
    taxa = history.phylogeny.taxa
    if not history.has_exams or len(taxa) <= MOST_DRAWN:
        return set()
    parents = {name for taxon in taxa.values() for name in taxon.ancestors}
    return {taxon.id for taxon in taxa.values() if taxon.died is not None} - parents


def said_genes(genes: Mapping[str, float]) -> dict[str, str]:
    """Genes as people read them: alpha itself, modules by name."""
    texts = {name: f"{value:.3g}" for name, value in genes.items()}
    if ALPHA in genes and RANK in genes:
        texts[ALPHA] = f"{genes[ALPHA] * genes[RANK]:g}"
    if TARGETS in genes:
        modules = dict(enumerate(MODULES))
        texts[TARGETS] = modules.get(int(genes[TARGETS]), texts[TARGETS])
    return {gene_name(name): text for name, text in texts.items()}


def gene_name(name: str) -> str:
    """What a gene is called where people read it."""
    return {RATE: "learning rate", TARGETS: "modules"}.get(name, name)


def _changed(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    return [name for name, value in after.items() if before.get(name) != value]
