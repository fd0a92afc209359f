"""``bench``: how fast a host serves a population on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import prepare, write_json
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from symbiont_ecology.host.throughput import Throughput


def bench(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="embedded, a folder, or a name on the hub.")
    ] = "embedded",
    organelles: Annotated[
        str, typer.Option(help="Sizes of populations, with commas.")
    ] = "1,4,16,64",
    rows: Annotated[int, typer.Option(min=1, help="Prompts for every organelle.")] = 4,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of prompts, about.")] = 48,
    new_tokens: Annotated[int, typer.Option(min=1, help="Length of answers.")] = 16,
    turns: Annotated[int, typer.Option(min=1, help="Times that everything is timed.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="A torch device.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures there; - is stdout.")
    ] = None,
) -> None:
    """Time populations in one batch, one by one, and the bare host. Nothing is kept but the
    figures."""
    sizes = _sizes(organelles)
    to_stdout = str(json_file) == "-"
    if json_file is not None and not to_stdout:
        prepare(json_file)

    import torch
    from rich.console import Console
    from rich.progress import Progress

    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.host.machine import describe
    from symbiont_ecology.host.throughput import Throughput, ThroughputMeter, Workload

    torch.set_num_threads(threads)
    kernel = HostKernel.from_pretrained(
        host, slots=max(sizes), rank=rank, device=device, dtype=dtype
    )
    pacer = ThroughputMeter(kernel, Workload(rows, prompt_tokens, new_tokens, rank))
    console, speeds = Console(stderr=to_stdout), list[Throughput]()
    # A turn costs about as much as it has organelles.
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("timing", total=(turns + 1) * sum(sizes))
        for size in sizes:
            for pace in pacer.pace(size, turns):
                if pace is None:
                    progress.advance(task, size)
                else:
                    speeds.append(pace)
    length = pacer.prompt_tokens
    console.print(
        f"{host} on {describe()}\n{rows} rows of {length:.0f} prompt tokens and {new_tokens} new "
        f"ones for every organelle, rank {rank}; medians of {turns}",
        highlight=False,
    )
    console.print(_table(speeds, rows))
    console.print(
        "× alone: so many times as fast as one organelle after the other\n"
        "÷ bare: cost over that of the bare host\n"
        "next, from a checkout: make bench, which compares with PEFT",
        highlight=False,
    )
    if json_file is not None:
        load = {"rows": rows, "prompt_tokens": length, "new_tokens": new_tokens, "rank": rank}
        facts = {"schema": 1, "host": host, "machine": describe(), "dtype": dtype} | load
        write_json(json_file, facts | {"seconds": [asdict(pace) for pace in speeds]})


def _sizes(written: str) -> list[int]:
    try:
        sizes = [int(size) for size in written.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ConfigError(
            f"--organelles: expected numbers with commas, such as 1,16, got {written!r}"
        )
    return sizes


def _table(speeds: list[Throughput], rows: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    names = "organelles", "ms/row", "× alone", "÷ bare", "rows/s", "learning, ms/row", "× alone"
    for name in names:
        table.add_column(name, justify="right")
    for speed in speeds:
        count = speed.organelles * rows
        cells = (
            str(speed.organelles),
            f"{1e3 * speed.together / count:.2f}",
            f"{speed.one_by_one / speed.together:.2f}",
            f"{speed.together / speed.bare:.2f}",
            f"{count / speed.together:.0f}",
            f"{1e3 * speed.learning / count:.2f}",
            f"{speed.learning_one_by_one / speed.learning:.2f}",
        )
        table.add_row(*cells)
    return table
