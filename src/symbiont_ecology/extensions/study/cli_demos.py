"""``demo`` and ``demo-real``: an ecology that is watched live, its controls beside it, and then
what the comparison shows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from symbiont_ecology.cli import console
from symbiont_ecology.cli.options import Overrides, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import checked_config, folder_for, is_free_for, live

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.evaluate.measure import LoadedRun
    from symbiont_ecology.extensions.study.measures import Stream

WATCHED = "ecology"
CONTROLS = {"told": "told", "per_user": "one per user", "single": "one for all"}
"""The controls of the demo: the end of its preset, and its words."""
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
EXAMPLES = "tasks.style=few_shot"
"""How the model alone is asked with solved examples."""


def demo(
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/comparison-<n>")] = None,
    quiet: Quiet = False,
) -> None:
    """Watch adapters find out which users want the same, then compare with three controls.

    Twenty-four users want four different things and say only yes or no. Nobody says who wants
    what. Some users come late, and some change their mind.
    """
    console.tell_loading(quiet)
    presets = {WATCHED: "demo", **{arm: f"demo_{arm}" for arm in CONTROLS}}
    ecology = _live("comparison", presets, overrides or (), out, quiet)
    summary = _lived_through(ecology)
    somebody = next((n for living in ecology.population.values() for n in living.users), "h01")
    more = (
        ("infer", ecology.folder, "math.add: 47+8", "--user", somebody),
        ("evaluate", ecology.folder, "--shift", "users", "--routing", "user"),
        ("export", ecology.folder),
        ("learn-from", "logs/thumbs.jsonl"),
    )
    _tell_end(ecology, summary, more)


def demo_real(
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/demo-real-<n>")] = None,
    per_cell: Annotated[int, option("Held-out questions of each cell.", least=1)] = 20,
    quiet: Quiet = False,
) -> None:
    """Watch an ecology on SmolLM2, a real language model, then compare with the model and with one
    adapter.

    Families of questions come one after another, and nobody says when. Adapters hear only whether
    a reply was right, after a few solved examples at the start.
    """
    console.tell_loading(quiet)
    from symbiont_ecology import load_config
    from symbiont_ecology.model.locating import find_folder

    changes = overrides or []
    presets = {WATCHED: "demo_real", "single": "demo_real_single"}
    model = load_config(presets[WATCHED], changes).host.model
    tell = partial(print, file=sys.stderr, flush=True)
    find_folder(model, tell, may_fetch=True)
    ecology = _live("demo-real", presets, changes, out, quiet)
    with_examples = checked_config(presets[WATCHED], [*changes, EXAMPLES])
    more = (
        ("infer", ecology.folder, "What is the capital of France?"),
        ("evaluate", ecology.folder),
        ("export", ecology.folder),
        ("look", "steady", "host.model=smollm2"),
    )
    _tell_end(ecology, _answered(ecology, with_examples, per_cell), more)


def _live(
    name: str, presets: Mapping[str, str], changes: Sequence[str], out: Path | None, quiet: bool
) -> Run:
    """Live the run that is watched and its controls, each in a folder of its name, or what is left
    of them; return the one that was watched.

    Raises:
        RunError: a control failed.
        typer.Exit: it was interrupted.
    """
    from symbiont_ecology import Run
    from symbiont_ecology.extensions.study.workers import STOP_FILE, live_beside, worker_processes

    configs = {arm: checked_config(preset, [*changes]) for arm, preset in presets.items()}

    def is_free(place: Path) -> bool:
        runs = (is_free_for(place / arm, config) for arm, config in configs.items())
        return not (place / "config.yaml").exists() and all(runs)

    folder = folder_for(name, out, is_free)
    stop_file, controls = folder / STOP_FILE, list[Future[None]]()
    console.prepare(stop_file)
    stop_file.unlink(missing_ok=True)
    with worker_processes(len(presets) - 1) as pool:
        for arm, preset in presets.items():
            if arm != WATCHED:
                controls.append(pool.submit(live_beside, folder, arm, preset, tuple(changes)))
        try:
            ecology = Run(folder / WATCHED, configs[WATCHED])
            live(ecology, quiet, console.typed_again(folder, out))
            if not quiet:
                print("waiting for the controls on the other cores …", flush=True)
            for control in controls:
                control.result()
        finally:
            stop_file.touch()
    stop_file.unlink(missing_ok=True)
    return ecology


def _tell_end(ecology: Run, summary: dict[str, Any], more: Sequence[tuple[object, ...]]) -> None:
    """Write the numbers, and print where everything is and what can be typed next."""
    folder = ecology.folder.parent
    console.write_json(folder / SUMMARY_FILE, summary)
    print(f"\nEverything is in {folder} (seed {ecology.config.seed}).\nNext:")
    for words in (("evoscope", ecology.folder, "--open"), *more):
        print(f"  {console.command_line(*words)}")


def _lived_through(ecology: Run) -> dict[str, Any]:
    """Read what users accepted in all arms, print the tables, draw the picture, return the
    numbers."""
    import pandas as pd

    from symbiont_ecology.extensions.study.figures import draw_demo
    from symbiont_ecology.extensions.study.measures import NO_SHARES, STREAM_MEASURES, Stream

    words, folder = {"told": CONTROLS["told"], WATCHED: WATCHED, **CONTROLS}, ecology.folder.parent
    runs = {arm: Stream.of_run(folder / arm) for arm in words}
    arms = {
        arm: {measure: STREAM_MEASURES[measure](run) for measure in ROWS}
        for arm, run in runs.items()
    }
    shown = pd.DataFrame(arms, dtype=float).rename(columns=words)
    shown[~shown.index.isin(NO_SHARES)] *= 100
    print("\nwhat users lived through")
    print(shown.map("{:.3g}".format, na_action="ignore").rename(ROWS).to_string(na_rep="–"))
    served = _served(ecology, runs[WATCHED])
    kinds = {
        name: ", ".join(f"{count} × kind {kind + 1}" for kind, count in counts.most_common())
        for name, counts in served.items()
    }
    users = {name: counts.total() for name, counts in served.items()}
    print("\nwho serves whom")
    print(pd.DataFrame({"users": users, "what they want, which nobody said": kinds}).to_string())
    draw_demo({words[arm]: run for arm, run in runs.items()}, WATCHED, folder / PICTURE_FILE)
    print(f"a picture of it is {folder / PICTURE_FILE}")
    return {
        "schema": 3,
        "seed": ecology.config.seed,
        "arms": arms,
        "served": {name: dict(counts) for name, counts in served.items()},
    }


def _served(ecology: Run, run: Stream) -> dict[str, Counter[int]]:
    """The kinds of the users that each organelle serves at the end, the busiest first."""
    kinds = dict(zip(run.asked.world.names, run.kinds[:, -1].tolist(), strict=True))
    served = {o: Counter(kinds[n] for n in names) for o, names in ecology.state.served.items()}
    return dict(sorted(served.items(), key=lambda entry: -entry[1].total()))


def _answered(ecology: Run, with_examples: Any, per_cell: int) -> dict[str, Any]:
    """Ask everybody the same held-out questions, print the tables, return the numbers."""
    from symbiont_ecology.evaluate.measure import LoadedRun

    folder, host = ecology.folder.parent, ecology.host
    many, single = (LoadedRun.of_run(folder / arm) for arm in (WATCHED, "single"))
    shown, items = replace(many, config=with_examples), many.items(per_cell)
    asked: dict[str, tuple[LoadedRun, Any, str]] = {
        "the model": (many, items, "host"),
        "with 4 examples": (shown, shown.items(per_cell), "host"),
        "one adapter": (single, items, "single"),
        "the ecology": (many, items, "learned"),
    }
    with console.asking() as count:
        systems = {
            name: run.evaluate(questions, host, routing, progress=count)
            for name, (run, questions, routing) in asked.items()
        }
    title = "\nright answers to held-out questions, with 95 % intervals"
    console.print_table(console.accuracy_table(systems, title))
    console.tell_answerers(systems["the ecology"])
    return {
        "schema": 1,
        "accuracy": {name: evaluation.summary() for name, evaluation in systems.items()},
    }
