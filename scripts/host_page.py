"""Writes the tables of docs/host.md from host_card.json and a report of benchmarks/transfer.py."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CARD = ROOT / "src/symbiont_ecology/host/embedded/model/host_card.json"
TRANSFER = ROOT / "docs/results/transfer.json"


def fill(text: str, mark: str, content: str) -> str:
    """Puts content between ``<!-- mark -->`` and ``<!-- /mark -->``."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def table(card: dict[str, Any]) -> str:
    """One row per family: each way of asking, short / medium / long."""
    lines = [
        "Percent right on reserved payloads, greedy, short / medium / long. Composition families have no cue.",
        "",
        "| family | role | bare host | cue ceiling | other cues | known wording | unseen wording | reserved payloads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = sorted({cell.split("/")[0] for cell in card["cells"]})
    roles = ("trained", "shared", "unrelated", "composition")
    for name in sorted(names, key=lambda n: (roles.index(card["cells"][f"{n}/short"]["role"]), n)):
        cells = [card["cells"][f"{name}/{depth}"] for depth in ("short", "medium", "long")]
        columns = [_three(cell.get(key) for cell in cells) for key in ("habit", "ceiling")]
        columns.append(
            _three(sum(c["other_cues"]) / 2 if "other_cues" in c else None for c in cells)
        )
        columns += [
            _three(cell.get(key) for cell in cells) for key in ("known_wording", "unseen_wording")
        ]
        counts = [
            str(c["questions"]) if c["reserved"] == "all" else c["reserved"].replace(">=", "≥")
            for c in cells
        ]
        lines.append(
            f"| {name} | {cells[0]['role']} | {' | '.join(columns)} | {' / '.join(counts)} |"
        )
    evaluated = [cell for cell in card["cells"].values() if "ceiling" in cell]
    high = sum(cell["ceiling"] >= 0.85 for cell in evaluated)
    low = sum(cell["ceiling"] <= 0.35 for cell in evaluated)
    lines += [
        "",
        f"Of {len(evaluated)} cells, {high} have a cue ceiling of at least 85 % (elicitation); of the others "
        f"(capability), {low} have at most 35 %.",
    ]
    return "\n".join(lines)


def _three(values: Any) -> str:
    return " / ".join("–" if value is None else f"{100 * value:.0f}" for value in values)


def recipe(card: dict[str, Any]) -> str:
    """What the shipped host was made with."""
    facts = card["recipe"]
    return (
        f"Shipped: {card['parameters']:,} parameters, seed {facts['seed']}, {facts['steps']:,} steps of "
        f"{facts['batch']} lines ({card['tokens'] / 1e6:.1f} million tokens), {card['answer_nats']:.3f} nats per answer token "
        f"at the end, {card['bytes'] / 1e6:.2f} MB, sha256 `{card['sha256'][:16]}…`."
    )


def transfer(report: dict[str, Any]) -> str:
    """The three gains with their intervals over seeds."""
    lines = [
        f"One specialist per family (rank 4, 40 supervised steps), accuracy on medium holdout items over the bare host's "
        f"{100 * report['base']:.0f} %, {report['seeds']} seeds, 95 % intervals over seeds (`python benchmarks/transfer.py`):",
        "",
        "| | gain, points |",
        "|---|---|",
    ]
    words = {
        "own": "on its own family",
        "within": "on another family of its group",
        "across": "on families of other groups",
    }
    for kind, label in words.items():
        mean, low, high = (100 * value for value in report["gain"][kind])
        lines.append(f"| {label} | {mean:+.1f} [{low:+.1f}, {high:+.1f}] |")
    return "\n".join(lines)


def main() -> None:
    """Fills the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs/host.md")
    page = parser.parse_args().page
    card, text = json.loads(CARD.read_text()), page.read_text(encoding="utf-8")
    text = fill(fill(text, "table", table(card)), "recipe", recipe(card))
    if TRANSFER.exists():
        text = fill(text, "transfer", transfer(json.loads(TRANSFER.read_text())))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
