"""Rebuilds the embedded host: trains it, measures it, and writes both into the package
(``make host``)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from host_recipe.card import measure, table
from host_recipe.train import Recipe, train
from symbiont_ecology.model.locating import EMBEDDED_FOLDER


def main() -> None:
    """Parses the command line and does it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=EMBEDDED_FOLDER)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only-measure", action="store_true", help="keep the weights, measure them again"
    )
    arguments = parser.parse_args()
    card_file = arguments.out / "host_card.json"
    if arguments.only_measure:
        card = json.loads(card_file.read_text())
    else:
        card = train(
            Recipe(seed=arguments.seed, steps=arguments.steps), arguments.out, arguments.threads
        )
    card |= measure(arguments.out)
    card_file.write_text(json.dumps(card, indent=1) + "\n")
    print(f"{table(card)}\n\nwrote {arguments.out}; see docs/results/embedded_host.md")


if __name__ == "__main__":
    main()
