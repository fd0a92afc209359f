"""``doctor`` and ``look``: can this machine run a host, and how much does the host have right?

A run that learns from verdicts learns nothing where nothing is ever right, and nothing where
everything is. What counts is the share of right answers when they are drawn at temperature 1.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import shutil
from itertools import groupby
from statistics import fmean
from typing import Annotated

import typer
from rich.markup import escape

from symbiont_ecology.base.errors import EcologyError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pydantic")
MAX_CHARS = 32
"""Characters of a question, and of a reply, in the table."""


def look(
    config: Annotated[str, argument("A preset or a YAML file.", default="steady")] = "steady",
    overrides: options.Overrides = None,
    per_cell: Annotated[int, option("Questions of every cell.", least=1)] = 8,
    samples: Annotated[int, option("Answers that are drawn to each question.", least=1)] = 4,
) -> None:
    """Ask the bare host train questions before a run starts, and show how much is right in each
    cell. host=HOST asks another host, tasks.style=STYLE in another way. Settings are proposed for a
    host without a preset."""
    from symbiont_ecology.adapters import AdapterWeights
    from symbiont_ecology.base.config_layers import has_host_preset
    from symbiont_ecology.base.rng import Draw
    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import Decoding, cell_name, last_turn
    from symbiont_ecology.cli.run import checked_config
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.evaluate.items import draw_items
    from symbiont_ecology.model.locating import find_folder
    from symbiont_ecology.run.act import Question, roll_out
    from symbiont_ecology.run.build import host_source, mixture
    from symbiont_ecology.run.config import proposed_changes
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    resolved = checked_config(config, overrides)
    items, draw = draw_items(mixture(resolved), per_cell, resolved.seed, "train"), Draw(0)
    decoding = Decoding(1.0, stop=prompt_styles.build(resolved.tasks.style).stops)
    console.tell_loading(quiet=False)
    kernel, nobody = host_source(resolved).load(), dict[str, AdapterWeights]()
    rows, is_any_right = console.table("cell", "right", "a question", "a reply"), False
    with console.asking() as progress:
        for cell, group in groupby(items, key=lambda item: cell_name(item.cell)):
            questions = [
                Question(item, HOST, draw("look", item.id, sample))
                for item in group
                for sample in range(samples)
            ]
            rollouts, _ = roll_out(questions, kernel, nobody.__getitem__, decoding)
            progress(len(questions))
            share = fmean(rollout.is_right for rollout in rollouts)
            is_any_right |= share > 0
            texts = last_turn(questions[0].item.prompt), rollouts[0].text
            shown = (escape(plain(text, MAX_CHARS)) for text in texts)
            rows.add_row(escape(cell), f"{share:.0%}", *shown)
    console.print_table(rows)
    if not is_any_right:
        print("nothing was right: try another tasks.style, or learning_rule=supervised")
    if not has_host_preset(model := resolved.host.model):
        print(
            f"{model} has no preset; proposed: {shlex.join(proposed_changes(find_folder(model)))}"
        )


def doctor(
    host: Annotated[str, option("Host to check.")] = "embedded",
    device: Annotated[str | None, option("A torch device.", default="its preset's, or cpu")] = None,
    dtype: Annotated[
        str | None,
        option("float32, bfloat16, float16 or int8.", default="its preset's, or float32"),
    ] = None,
) -> None:
    """Print versions and space, and let a host answer. Exits with 1 if it cannot."""
    versions = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"ok    python {platform.python_version()}, {', '.join(versions)}")
    free = shutil.disk_usage(".").free / 1e9
    print(f"ok    {free:.1f} GB free here; a run needs some 100 MB", flush=True)

    from symbiont_ecology.base.config_layers import host_layer
    from symbiont_ecology.model.backend.torch_backend import back_ends
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.model.loading import describe

    print(f"ok    {describe()}")
    for back_end in map(back_ends.__getitem__, back_ends.names()):
        for mark, line in back_end.checks():
            print(f"{mark:4s}  {line}")
    try:
        said = {"device": "cpu", "dtype": "float32"} | host_layer(host)["host"]
        kernel = HostKernel.from_pretrained(
            said["model"], device=device or said["device"], dtype=dtype or said["dtype"]
        )
        (reply,) = kernel.generate(["math.add: 47+8\n"], slots=-1)
    except EcologyError as error:
        print(f"fail  host {host!r}: {' '.join(str(error).split())}")
        raise typer.Exit(1) from error
    print(f"ok    host {host!r} answers {reply[:20]!r}, fingerprint {kernel.fingerprint()}")
