"""``bench``: how fast populations are served on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from symbiont_ecology.cli.console import print_table, progress_bar, report, table
from symbiont_ecology.cli.options import JsonOption, argument, option
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology.host.throughput import Throughput


def bench(
    host: Annotated[
        str, argument("embedded, a folder, or a name on the hub.", "HOST", "embedded")
    ] = "embedded",
    organelles: Annotated[str, option("Sizes of populations, with commas.")] = "1,4,16,64",
    rows: Annotated[int, option("Prompts for every organelle.", least=1)] = 4,
    rank: Annotated[int, option("Rank of the adapters.", least=1)] = 8,
    prompt_tokens: Annotated[int, option("Length of prompts, about.", least=1)] = 48,
    new_tokens: Annotated[int, option("Length of answers.", least=1)] = 16,
    turns: Annotated[int, option("How often everything is timed.", least=1)] = 5,
    threads: Annotated[int, option("CPU threads.", least=1)] = 1,
    device: Annotated[str, option("A torch device.")] = "cpu",
    dtype: Annotated[str, option("float32, bfloat16, float16 or int8.")] = "float32",
    json_file: JsonOption = None,
) -> None:
    """Time populations in one batch and one by one, and the bare host. Only the figures are
    kept."""
    import torch

    from symbiont_ecology.bounds import MOST_THREADS
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.host.machine import describe
    from symbiont_ecology.host.throughput import ThroughputMeter, Workload

    sizes, speeds = _sizes(organelles), []
    if threads > MOST_THREADS:
        raise ConfigError(f"--threads: expected {MOST_THREADS} at most, got {threads}: lower it")
    with report(json_file) as write_json:
        torch.set_num_threads(threads)
        kernel = HostKernel.from_pretrained(
            host, slots=max(sizes), rank=rank, device=device, dtype=dtype
        )
        meter = ThroughputMeter(kernel, Workload(rows, prompt_tokens, new_tokens, rank))
        # A turn costs about as much as it has organelles.
        with progress_bar() as progress:
            task = progress.add_task("timing", total=(turns + 1) * sum(sizes))
            for size in sizes:
                for pace in meter.pace(size, turns):
                    if pace is None:
                        progress.advance(task, size)
                    else:
                        speeds.append(pace)
        length = meter.prompt_tokens
        print(
            f"{host} on {describe()}\n{rows} rows of {length:.0f} prompt tokens and {new_tokens} "
            f"new ones for every organelle, rank {rank}; medians of {turns}"
        )
        print_table(_speed_table(speeds, rows))
        print(
            "× alone: so many times as fast as one organelle after the other\n"
            "÷ bare: cost over that of the bare host\n"
            "next, from a checkout: make bench, which compares with PEFT"
        )
        facts = {"schema": 1, "host": host, "machine": describe(), "dtype": dtype, "rows": rows}
        facts |= {"prompt_tokens": length, "new_tokens": new_tokens, "rank": rank}
        write_json(facts | {"seconds": [asdict(speed) for speed in speeds]})


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"--organelles: expected numbers with commas, such as 1,16, got {text!r}")
    return sizes


def _speed_table(speeds: Sequence[Throughput], rows: int) -> Table:
    names = "organelles", "ms/row", "× alone", "÷ bare", "rows/s", "learning, ms/row", "× alone"
    result = table(*names)
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
        result.add_row(*cells)
    return result
