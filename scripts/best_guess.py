"""What guessing costs: what somebody could reach who has good adapters, and is not told who wants
what.

    python scripts/best_guess.py docs/paper_packs/smollm2-habitats styles

Who is not told what a user wants has yes and no alone, and begins with a guess. The guesser has one
adapter for each kind from the beginning, and knows how many kinds there are. It asks the adapter
that is most likely to be right (Bayes). The right one is accepted as often as in that generation
the answers of ``told`` were, or those of the ecology's adapters to users of their own kind if these
are better; a wrong one as often as the ecology's adapters were by other users. The guesser knows
these rates.

This is for packs whose world has one family, and kinds that want different things of it. It is no
bound: better adapters than those of both arms would have more.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from symbiont_ecology.analysis.streams import Stream, acceptance, late, newcomers
from symbiont_ecology.experiments.outcomes import StreamOutcome, parse_outcomes
from symbiont_ecology.statistics import paired_interval

TRIALS = 200
STRETCHES: Mapping[str, Callable[[Stream], float | None]] = {
    "all": acceptance,
    "last quarter": late,
    "newcomers": newcomers,
}


@dataclass(frozen=True, eq=False)
class Guess(Stream):
    """What a guesser has of a run's questions: the share of each one's answers that is accepted."""

    shares: np.ndarray

    @cached_property
    def accepted(self) -> np.ndarray:
        """As ``Stream``."""
        return self.shares


def streams(pack: Path, world: str, arm: str) -> dict[int, Stream]:
    """The runs of an arm, by seed."""
    text = (pack / "protocol.json").read_text(encoding="utf-8")
    with gzip.open(pack / "outcomes.jsonl.gz", "rt", encoding="utf-8") as lines:
        outcomes = parse_outcomes(map(json.loads, lines))
    return {
        outcome.seed: Stream.of(outcome, text)
        for outcome in outcomes
        if isinstance(outcome, StreamOutcome) and (outcome.world, outcome.arm) == (world, arm)
    }


def kinds_of(run: Stream) -> np.ndarray:
    """What the user of each question wants, ``(questions,)``."""
    return np.asarray(run.kinds[run.asked.habitats, run.asked.generations])


def are_right(run: Stream) -> np.ndarray:
    """Whether each question's adapter is one that mostly pleases users of that kind,
    ``(questions,)``."""
    kinds, servers = kinds_of(run), run.servers[run.asked.habitats, run.asked.generations]
    is_right = np.zeros(len(kinds), bool)
    for server in np.unique(servers):
        own = servers == server
        pleased = np.bincount(kinds[own], run.accepted[own])
        is_right |= own & pleased.any() & (kinds == pleased.argmax())
    return is_right


def rates_of(runs: Sequence[Stream], chosen: Sequence[np.ndarray]) -> np.ndarray:
    """The share of accepted answers to each run's chosen questions, by generation,
    ``(generations,)``."""
    pairs = list(zip(runs, chosen, strict=True))
    generations = np.concatenate([run.asked.generations[places] for run, places in pairs])
    accepted = np.concatenate([run.accepted[places] for run, places in pairs])
    size = max(run.asked.length for run in runs)
    counts = np.bincount(generations, minlength=size)
    return np.bincount(generations, accepted, size) / np.maximum(counts, 1)


def guessed(run: Stream, rates: np.ndarray, wrong: float) -> np.ndarray:
    """The share of each question's answers that is accepted, ``(questions,)``."""
    generator, wanted, asked = np.random.default_rng(run.outcome.seed), kinds_of(run), run.asked
    # Log-odds of each kind, for each habitat; ties are broken by draw.
    size = len(asked.world.names), TRIALS, int(wanted.max()) + 1
    odds: np.ndarray = generator.random(size) * 1e-6
    trials, shares = np.arange(TRIALS), np.zeros(len(wanted))
    for place, (habitat, generation) in enumerate(
        zip(asked.habitats, asked.generations, strict=True)
    ):
        own, right = odds[habitat], rates[generation]
        guesses = own.argmax(1)
        chances = np.where(guesses == wanted[place], right, wrong)
        verdicts = (generator.random(TRIALS) < chances).astype(int)
        says = np.log([1 - wrong, wrong])  # a refusal, or an acceptance
        own += says[verdicts][:, None]
        own[trials, guesses] += (np.log([1 - right, right]) - says)[verdicts]
        shares[place] = verdicts.mean()
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("world")
    options = parser.parse_args()
    told, ecology = (streams(options.pack, options.world, arm) for arm in ("told", "ecology"))
    taught, found = list(told.values()), list(ecology.values())
    own = [are_right(run) for run in found]
    everything = [np.ones(len(run.accepted), bool) for run in taught]
    right = np.maximum(rates_of(taught, everything), rates_of(found, own))
    wrong = np.concatenate([run.accepted[~is_own] for run, is_own in zip(found, own, strict=True)])
    rates = right.clip(wrong.mean() + 0.01, 0.99)
    runs: Mapping[str, Sequence[Stream]] = {
        "told": taught,
        "best guess": [
            Guess(run.outcome, run.asked, guessed(run, rates, wrong.mean())) for run in taught
        ],
        "ecology": [ecology[seed] for seed in told],
    }
    print(f"{'accepted, %':12}" + "".join(f"{about:>14}" for about in STRETCHES))
    shares = {
        name: {about: [measure(run) or 0.0 for run in arm] for about, measure in STRETCHES.items()}
        for name, arm in runs.items()
    }
    for name, by_stretch in shares.items():
        means = (100 * np.mean(values) for values in by_stretch.values())
        print(f"{name:12}" + "".join(f"{mean:14.1f}" for mean in means))
    for about in STRETCHES:
        gap = paired_interval(shares["ecology"][about], shares["best guess"][about])
        interval = f"[{100 * gap.low:.1f}, {100 * gap.high:.1f}]"
        print(f"ecology − best guess, {about}: {100 * gap.estimate:+.1f} points {interval}")
    print(f"a wrong adapter is accepted by {100 * wrong.mean():.0f} %")


if __name__ == "__main__":
    main()
