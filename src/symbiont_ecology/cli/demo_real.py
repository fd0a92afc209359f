"""``demo-real``: an ecology on a real language model, then a table beside the model alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli import console
from symbiont_ecology.cli.beside import RunBeside, can_go_on, running_beside
from symbiont_ecology.cli.demo import PICTURE_FILE, SUMMARY_FILE
from symbiont_ecology.cli.options import Overrides, Quiet, option, resumable_folder
from symbiont_ecology.cli.run import checked_config, folder_for, live_unless_complete

if TYPE_CHECKING:
    from symbiont_ecology.engine.runtime import Host
    from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun

ECOLOGY, SINGLE = "ecology", "single"
MODEL_ALONE, WITH_EXAMPLES = "the model", "with 4 examples"
ONE_ADAPTER, THE_ECOLOGY = "one adapter", "the ecology"
PRESETS = {ECOLOGY: "demo_real", SINGLE: "demo_real_single"}
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
    from symbiont_ecology import Run

    began = time.monotonic()
    changes = [f"seed={seed}", *(overrides or [])]
    _bring_the_model(changes)
    configs = {arm: checked_config(preset, changes) for arm, preset in PRESETS.items()}
    folder = folder_for("demo-real", out, lambda place: can_go_on(place, configs))
    is_new, seed = not (folder / ECOLOGY).exists(), configs[ECOLOGY].seed
    control = {SINGLE: RunBeside(PRESETS[SINGLE], ONE_ADAPTER, changes)}
    with running_beside(folder, control) as wait_for_control:
        ecology = Run(folder / ECOLOGY, configs[ECOLOGY])
        live_unless_complete(ecology, quiet, console.typed_again(folder, out))
        wait_for_control(quiet)
    summary = _compare(folder, changes, ecology.host, per_cell)
    seconds = round(time.monotonic() - began, 1) if is_new else None
    console.write_json(folder / SUMMARY_FILE, {**summary, "seconds": seconds})
    duration = f"{seconds:.0f} s, " if seconds is not None else ""
    print(f"\nEverything is in {folder} ({duration}seed {seed}). Look at")
    print(f"  {folder / PICTURE_FILE}\nNext:")
    for words in (
        ("evoscope", ecology.folder, "--open"),
        ("infer", ecology.folder, "What is the capital of France?"),
        ("evaluate", ecology.folder),
        ("export", ecology.folder),
        ("look", "--host", "smollm2"),
    ):
        print(f"  {console.command_line(*words)}")


def _bring_the_model(changes: Sequence[str]) -> None:
    from symbiont_ecology import load_config
    from symbiont_ecology.host.locating import bring

    model = load_config(PRESETS[ECOLOGY], changes).host.model
    bring(model, lambda line: print(line, file=sys.stderr, flush=True))


def _compare(folder: Path, changes: Sequence[str], host: Host, per_cell: int) -> dict[str, object]:
    """Asks everybody the same held-out questions, prints the tables, returns the numbers."""
    from symbiont_ecology.analysis.bars import draw_accuracies
    from symbiont_ecology.evaluation.measure import LoadedRun

    ecology, single = (LoadedRun.of_run(folder / arm) for arm in (ECOLOGY, SINGLE))
    shown = replace(ecology, config=checked_config(PRESETS[ECOLOGY], [*changes, EXAMPLES]))
    items = ecology.items(per_cell)
    with console.asking() as progress:
        systems = {
            MODEL_ALONE: ecology.evaluate(items, host, "host", progress=progress),
            WITH_EXAMPLES: shown.evaluate(shown.items(per_cell), host, "host", progress=progress),
            ONE_ADAPTER: single.evaluate(items, host, "single", progress=progress),
            THE_ECOLOGY: ecology.evaluate(items, host, "learned", progress=progress),
        }
    title = "\nright answers to held-out questions, with 95 % intervals"
    console.print_table(console.accuracy_table(systems, title))
    console.tell_answerers(systems[THE_ECOLOGY])
    draw_accuracies(systems, folder / PICTURE_FILE)
    replies = _replies(ecology, systems[THE_ECOLOGY], host)
    return {
        "schema": 1,
        "accuracy": {name: evaluation.summary() for name, evaluation in systems.items()},
        "replies": replies,
    }


def _replies(ecology: LoadedRun, evaluation: Evaluation, host: Host) -> list[dict[str, str]]:
    """Prints what the model and the ecology reply to some prompts, and who did; the same as
    values."""
    from rich.markup import escape

    from symbiont_ecology.transcripts import plain
    from symbiont_ecology.types import last_turn

    firsts = {item.family: item for item in reversed(evaluation.items)}
    prompts = [(last_turn(item.prompt), item.reply_limit) for item in firsts.values()]
    rows = []
    for prompt, limit in [*prompts, *((prompt, 24) for prompt in UNRELATED)]:
        alone = ecology.answer(prompt, host, "host", limit)
        together = ecology.answer(prompt, host, "learned", limit)
        rows.append(
            {
                "prompt": prompt,
                "model": alone.text,
                "ecology": together.text,
                "who": together.organelle_id,
            }
        )
    replies = console.table("asked", "the model says", "the ecology says", "who says it")
    replies.title = "\nthe same prompts, the first lines of the replies"
    for column in replies.columns:
        column.justify = "left"
    for row in rows:
        lines = (text.strip().partition("\n")[0] for text in row.values())
        replies.add_row(*(escape(plain(line, REPLY_WIDTH)) for line in lines))
    console.print_table(replies)
    return rows
