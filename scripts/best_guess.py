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
from pathlib import Path

import numpy as np

from symbiont_ecology.analysis.streams import NEWCOMER, Stream
from symbiont_ecology.experiments.outcomes import StreamOutcome, parse_outcomes
from symbiont_ecology.statistics import paired_interval

TRIALS = 200


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


def are_new(run: Stream) -> np.ndarray:
    """Which questions are the first of users who came late, ``(questions,)``."""
    asked = run.asked
    is_late = asked.world.arrivals[asked.habitats] > asked.length / 3
    return np.asarray(is_late & (asked.numbers <= NEWCOMER))


STRETCHES: Mapping[str, Callable[[Stream], np.ndarray]] = {
    "all": lambda run: run.asked.generations >= 0,
    "last quarter": lambda run: run.asked.generations >= 0.75 * run.asked.length,
    "newcomers": are_new,
}


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


def rates_of(runs: Sequence[Stream], chosen: Callable[[Stream], np.ndarray]) -> np.ndarray:
    """The share of accepted answers to chosen questions of each generation, ``(generations,)``."""
    generations = np.concatenate([run.asked.generations[chosen(run)] for run in runs])
    accepted = np.concatenate([run.accepted[chosen(run)] for run in runs])
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
    right = np.maximum(rates_of(taught, STRETCHES["all"]), rates_of(found, are_right))
    wrong = np.concatenate([run.accepted[~are_right(run)] for run in found]).mean()
    rates = right.clip(wrong + 0.01, 0.99)
    answers = {
        "told": {seed: run.accepted for seed, run in told.items()},
        "best guess": {seed: guessed(run, rates, wrong) for seed, run in told.items()},
        "ecology": {seed: ecology[seed].accepted for seed in told},
    }
    print(f"{'accepted, %':12}" + "".join(f"{about:>14}" for about in STRETCHES))
    shares = {
        name: {
            about: [float(by_seed[seed][chosen(run)].mean()) for seed, run in told.items()]
            for about, chosen in STRETCHES.items()
        }
        for name, by_seed in answers.items()
    }
    for name, by_stretch in shares.items():
        means = (100 * np.mean(values) for values in by_stretch.values())
        print(f"{name:12}" + "".join(f"{mean:14.1f}" for mean in means))
    for about in STRETCHES:
        gap = paired_interval(shares["ecology"][about], shares["best guess"][about])
        interval = f"[{100 * gap.low:.1f}, {100 * gap.high:.1f}]"
        print(f"ecology − best guess, {about}: {100 * gap.estimate:+.1f} points {interval}")
    print(f"a wrong adapter is accepted by {100 * wrong:.0f} %")


if __name__ == "__main__":
    main()
