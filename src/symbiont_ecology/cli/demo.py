"""``demo``: an ecology finds out who wants what, live; then a table and a picture beside its
controls."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli import console
from symbiont_ecology.cli.beside import RunBeside, can_go_on, running_beside
from symbiont_ecology.cli.options import Overrides, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import checked_config, folder_for, live_unless_complete

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.analysis.streams import Stream
    from symbiont_ecology.types import OrganelleId

WATCHED, DEMO = "ecology", "demo"
CONTROLS = {"told": "told", "per_habitat": "one per user", "single": "one for all"}
"""The controls: the folder of each below the demo's, the end of its preset, and its words."""
ROWS = {
    "acceptance": "answers accepted, %",
    "late": "in the last quarter, %",
    "newcomers": "newcomers' first 10, %",
    "adapters": "adapters at the end",
    "serving": "of them serving",
    "flops": "useful FLOPs",
}
"""Measures that the table shows."""
SUMMARY_FILE, PICTURE_FILE = "summary.json", "demo.png"


def demo(
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/comparison-<n>")] = None,
    seed: Annotated[int, option("Seed of all arms.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Watch adapters find out which users want the same, then compare with three controls.

    Twenty-four users want four different things and say only yes or no. Nobody says who wants
    what. Some users come late, and some change their mind.
    """
    console.tell_loading(quiet)
    from symbiont_ecology import Run

    began = time.monotonic()
    changes = [f"seed={seed}", *(overrides or [])]
    presets = {WATCHED: DEMO, **{arm: f"{DEMO}_{arm}" for arm in CONTROLS}}
    configs = {arm: checked_config(preset, changes) for arm, preset in presets.items()}
    folder = folder_for("comparison", out, lambda place: can_go_on(place, configs))
    is_new, seed = not (folder / WATCHED).exists(), configs[WATCHED].seed
    controls = {arm: RunBeside(presets[arm], about, changes) for arm, about in CONTROLS.items()}
    with running_beside(folder, controls) as wait_for_controls:
        ecology = Run(folder / WATCHED, configs[WATCHED])
        live_unless_complete(ecology, quiet, console.typed_again(folder, out))
        wait_for_controls(quiet)
    summary = _compare(folder, seed)
    seconds = round(time.monotonic() - began, 1) if is_new else None
    console.write_json(folder / SUMMARY_FILE, {**summary, "seconds": seconds})
    duration = f"{seconds:.0f} s, " if is_new else ""
    print(f"\nEverything is in {folder} ({duration}seed {seed}). Look at")
    print(f"  {folder / PICTURE_FILE}\nNext:")
    for words in (
        ("evoscope", ecology.folder, "--open"),
        ("infer", ecology.folder, "math.add: 47+8", "--habitat", _somebody(ecology)),
        ("evaluate", ecology.folder, "--shift", "habitats", "--routing", "habitat"),
        ("export", ecology.folder),
        ("learn-from", "logs/thumbs.jsonl"),
    ):
        print(f"  {console.command_line(*words)}")


def _compare(folder: Path, seed: int) -> dict[str, object]:
    """Reads what users accepted in all arms, prints the tables, draws the picture, returns the
    numbers."""
    from symbiont_ecology.analysis.streams import STREAM_MEASURES, Stream
    from symbiont_ecology.analysis.worlds_figures import draw_demo

    words = {"told": CONTROLS["told"], WATCHED: WATCHED, **CONTROLS}
    runs = {arm: Stream.of_run(folder / arm, arm) for arm in words}
    arms = {
        arm: {measure: STREAM_MEASURES[measure](run) for measure in ROWS}
        for arm, run in runs.items()
    }
    rows = console.table("", *words.values(), title="\nwhat users lived through")
    for measure, label in ROWS.items():
        rows.add_row(label, *(_shown(measure, arms[arm][measure]) for arm in words))
    console.print_table(rows)
    served = _served(folder, runs[WATCHED])
    kinds = console.table("adapter", "users", title="\nwho serves whom")
    kinds.add_column("what they want, which nobody said", justify="left")
    for name, counts in served.items():
        about = ", ".join(f"{count} × kind {kind + 1}" for kind, count in counts.most_common())
        kinds.add_row(name, str(counts.total()), about)
    console.print_table(kinds)
    outcome = runs[WATCHED].outcome
    print(f"{len(outcome.births)} adapters were born on the way, {len(outcome.deaths)} died")
    draw_demo({words[arm]: run for arm, run in runs.items()}, WATCHED, folder / PICTURE_FILE)
    return {
        "schema": 2,
        "seed": seed,
        "arms": arms,
        "served": {name: dict(counts) for name, counts in served.items()},
        "births": [count for _, count in outcome.births],
        "deaths": len(outcome.deaths),
    }


def _shown(measure: str, value: float | None) -> str:
    from symbiont_ecology.analysis.streams import NO_SHARES

    if value is None:
        return "–"
    if measure == "flops":
        return f"{value:.1e}"
    return f"{value:.0f}" if measure in NO_SHARES else f"{100 * value:.0f}"


def _served(folder: Path, run: Stream) -> dict[OrganelleId, Counter[int]]:
    """The kinds of the users that each organelle serves at the end, the busiest first."""
    from symbiont_ecology.ecology.state import load_state

    kinds = dict(zip(run.asked.world.names, run.kinds[:, -1].tolist(), strict=True))
    state = load_state(folder / WATCHED)
    served = {server: Counter(kinds[n] for n in names) for server, names in state.served.items()}
    return dict(sorted(served.items(), key=lambda entry: -entry[1].total()))


def _somebody(ecology: Run) -> str:
    """A user that is served."""
    return next((name for living in ecology.population.values() for name in living.habitats), "h01")
