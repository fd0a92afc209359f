"""``demo`` and ``demo-real``: an ecology that is watched live, its controls beside it, and then
what the comparison shows."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from symbiont_ecology.base.errors import EcologyError, RunError
from symbiont_ecology.cli import console
from symbiont_ecology.cli.options import Overrides, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import checked_config, folder_for, is_free_for, live

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
    from symbiont_ecology.extensions.study.measures import Stream
    from symbiont_ecology.run.runtime import Host

WATCHED = "ecology"
CONTROLS = {"told": "told", "per_habitat": "one per user", "single": "one for all"}
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
UNRELATED = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Why do cats sleep so much?",
)
"""Prompts that no adapter should answer."""
REPLY_WIDTH = 21
"""Characters of a text in the table of replies."""
LOW_PRIORITY = 5
"""Niceness of the controls, so that the screen does not wait for them."""


@dataclass(frozen=True)
class Demo:
    """A run that is watched and its controls, each in a folder of its name: their presets, and the
    words for them."""

    name: str
    presets: Mapping[str, str]
    words: Mapping[str, str]

    def live(
        self, changes: Sequence[str], out: Path | None, quiet: bool
    ) -> tuple[Run, float | None]:
        """Live all of them, or what is left; return the run that was watched, and how many seconds
        it took if all of it was lived now.

        Raises:
            RunError: a control failed.
            typer.Exit: it was interrupted.
        """
        from symbiont_ecology import Run
        from symbiont_ecology.extensions.study.workers import (
            STOP_FILE,
            live_beside,
            worker_processes,
        )

        configs = {arm: checked_config(preset, [*changes]) for arm, preset in self.presets.items()}

        def is_free(place: Path) -> bool:
            runs = (is_free_for(place / arm, config) for arm, config in configs.items())
            return not (place / "config.yaml").exists() and all(runs)

        folder = folder_for(self.name, out, is_free)
        began, is_new = time.monotonic(), not (folder / WATCHED).exists()
        stop_file, futures = folder / STOP_FILE, dict[str, Future[None]]()
        console.prepare(stop_file)
        stop_file.unlink(missing_ok=True)
        with worker_processes(len(self.presets) - 1, LOW_PRIORITY) as pool:
            for arm, preset in self.presets.items():
                if arm != WATCHED:
                    futures[arm] = pool.submit(live_beside, folder, arm, preset, tuple(changes))
            try:
                ecology = Run(folder / WATCHED, configs[WATCHED])
                live(ecology, quiet, console.typed_again(folder, out))
                if not quiet and not all(future.done() for future in futures.values()):
                    print("waiting for the controls on the other cores …", flush=True)
                for arm, future in futures.items():
                    try:
                        future.result()
                    except EcologyError as error:
                        about = f"the run of {self.words[arm]!r} failed"
                        raise RunError(f"{about}: {error} (see {folder / f'{arm}.log'})") from error
            finally:
                stop_file.touch()
        stop_file.unlink(missing_ok=True)
        return ecology, round(time.monotonic() - began, 1) if is_new else None


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
    presets = {WATCHED: "demo", **{arm: f"demo_{arm}" for arm in CONTROLS}}
    arms = Demo("comparison", presets, CONTROLS)
    ecology, seconds = arms.live([f"seed={seed}", *(overrides or [])], out, quiet)
    summary = _lived_through(ecology)
    somebody = next((n for living in ecology.population.values() for n in living.habitats), "h01")
    more = (
        ("infer", ecology.folder, "math.add: 47+8", "--habitat", somebody),
        ("evaluate", ecology.folder, "--shift", "habitats", "--routing", "habitat"),
        ("export", ecology.folder),
        ("learn-from", "logs/thumbs.jsonl"),
    )
    _tell_end(ecology, summary, seconds, more)


def demo_real(
    overrides: Overrides = None,
    out: Annotated[Path | None, resumable_folder("artifacts/demo-real-<n>")] = None,
    seed: Annotated[int, option("Seed of both runs.")] = 0,
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
    from symbiont_ecology.model.locating import bring

    changes = [f"seed={seed}", *(overrides or [])]
    presets = {WATCHED: "demo_real", "single": "demo_real_single"}
    model = load_config(presets[WATCHED], changes).host.model
    bring(model, lambda line: print(line, file=sys.stderr, flush=True))
    arms = Demo("demo-real", presets, {"single": "one adapter"})
    ecology, seconds = arms.live(changes, out, quiet)
    with_examples = checked_config(presets[WATCHED], [*changes, EXAMPLES])
    more = (
        ("infer", ecology.folder, "What is the capital of France?"),
        ("evaluate", ecology.folder),
        ("export", ecology.folder),
        ("look", "--host", "smollm2"),
    )
    _tell_end(ecology, _answered(ecology, with_examples, per_cell), seconds, more)


def _tell_end(
    ecology: Run, summary: dict[str, Any], seconds: float | None, more: Sequence[tuple[object, ...]]
) -> None:
    """Write the numbers, and print where everything is and what can be typed next."""
    folder = ecology.folder.parent
    console.write_json(folder / SUMMARY_FILE, {**summary, "seconds": seconds})
    duration = f"{seconds:.0f} s, " if seconds is not None else ""
    print(f"\nEverything is in {folder} ({duration}seed {ecology.config.seed}). Look at")
    print(f"  {folder / PICTURE_FILE}\nNext:")
    for words in (("evoscope", ecology.folder, "--open"), *more):
        print(f"  {console.command_line(*words)}")


def _lived_through(ecology: Run) -> dict[str, Any]:
    """Read what users accepted in all arms, print the tables, draw the picture, return the
    numbers."""
    import pandas as pd

    from symbiont_ecology.extensions.study.figures import draw_demo
    from symbiont_ecology.extensions.study.measures import STREAM_MEASURES, Stream

    words, folder = {"told": CONTROLS["told"], WATCHED: WATCHED, **CONTROLS}, ecology.folder.parent
    runs = {arm: Stream.of_run(folder / arm) for arm in words}
    arms = {
        arm: {measure: STREAM_MEASURES[measure](run) for measure in ROWS}
        for arm, run in runs.items()
    }
    shown = {words[arm]: [_shown(*value) for value in own.items()] for arm, own in arms.items()}
    print("\nwhat users lived through")
    print(pd.DataFrame(shown, index=pd.Index(ROWS.values())).to_string())
    served = _served(ecology, runs[WATCHED])
    kinds = {
        name: ", ".join(f"{count} × kind {kind + 1}" for kind, count in counts.most_common())
        for name, counts in served.items()
    }
    users = {name: counts.total() for name, counts in served.items()}
    print("\nwho serves whom")
    print(pd.DataFrame({"users": users, "what they want, which nobody said": kinds}).to_string())
    record = runs[WATCHED].record
    print(f"{len(record.births)} adapters were born on the way, {len(record.deaths)} died")
    draw_demo({words[arm]: run for arm, run in runs.items()}, WATCHED, folder / PICTURE_FILE)
    return {
        "schema": 2,
        "seed": ecology.config.seed,
        "arms": arms,
        "served": {name: dict(counts) for name, counts in served.items()},
        "births": [count for _, count in record.births],
        "deaths": len(record.deaths),
    }


def _shown(measure: str, value: float | None) -> str:
    from symbiont_ecology.extensions.study.measures import NO_SHARES

    if value is None:
        return "–"
    if measure == "flops":
        return f"{value:.1e}"
    return f"{value:.0f}" if measure in NO_SHARES else f"{100 * value:.0f}"


def _served(ecology: Run, run: Stream) -> dict[str, Counter[int]]:
    """The kinds of the users that each organelle serves at the end, the busiest first."""
    kinds = dict(zip(run.asked.world.names, run.kinds[:, -1].tolist(), strict=True))
    served = {o: Counter(kinds[n] for n in names) for o, names in ecology.state.served.items()}
    return dict(sorted(served.items(), key=lambda entry: -entry[1].total()))


def _answered(ecology: Run, with_examples: Any, per_cell: int) -> dict[str, Any]:
    """Ask everybody the same held-out questions, print the tables, return the numbers."""
    from symbiont_ecology.evaluate.measure import LoadedRun
    from symbiont_ecology.extensions.study.figures import draw_accuracies

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
    draw_accuracies(systems, folder / PICTURE_FILE)
    return {
        "schema": 1,
        "accuracy": {name: evaluation.summary() for name, evaluation in systems.items()},
        "replies": _replies(many, systems["the ecology"], host),
    }


def _replies(ecology: LoadedRun, evaluation: Evaluation, host: Host) -> list[dict[str, str]]:
    """Print what the model and the ecology reply to some prompts, and who did; return the same as
    values."""
    import pandas as pd

    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import last_turn

    firsts = {item.family: item for item in reversed(evaluation.items)}
    prompts = [(last_turn(item.prompt), item.reply_limit) for item in firsts.values()]
    rows = []
    for prompt, limit in [*prompts, *((prompt, 24) for prompt in UNRELATED)]:
        alone = ecology.answer(prompt, host, "host", limit)
        together = ecology.answer(prompt, host, "learned", limit)
        row = {"prompt": prompt, "model": alone.text, "ecology": together.text}
        rows.append({**row, "who": together.organelle_id})
    table = pd.DataFrame(rows).map(lambda text: plain(text.strip().partition("\n")[0], REPLY_WIDTH))
    table.columns = pd.Index(["asked", "the model says", "the ecology says", "who says it"])
    print("\nthe same prompts, the first lines of the replies")
    print(table.to_string(index=False))
    return rows
