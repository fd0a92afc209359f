"""``run`` and ``resume``: a run that is watched, can be interrupted and goes on.

The first Ctrl-C or SIGTERM lets the generation end, the second one stops at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from symbiont_ecology.base.config_layers import config_name
from symbiont_ecology.base.errors import INTERRUPTED, ConfigError, HostError, RunError
from symbiont_ecology.base.files import free_folder
from symbiont_ecology.cli import console, options

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.model.codec import TextCodec
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.tasks.data import DataTask

ENDING = "finishing this generation (Ctrl-C again stops at once)"
AT_ONCE = "stopped at once: what came after the last checkpoint is lived again"


def run(
    config: options.ConfigName,
    overrides: options.Overrides = None,
    out: options.OutOption = None,
    dry_run: options.DryRunOption = False,
    quiet: options.Quiet = False,
) -> None:
    """Start a run. Ctrl-C ends it after the generation; symbiont resume goes on."""
    console.tell_loading(quiet or dry_run)
    from symbiont_ecology import Run
    from symbiont_ecology.ecology.state import STATE_FILE

    resolved = checked_config(config, overrides)
    folder = out or free_folder(config_name(config))
    if not quiet:
        tell_assumed(resolved, [config, *(overrides or [])])
    if dry_run:
        tell_run_plan(resolved, folder)
    else:
        if os.path.exists(folder / STATE_FILE):  # no error where a name is too long
            again = console.command_line("resume", folder)
            raise RunError(f"{folder} holds a run already: {again}, or choose another --out")
        started = Run.start(resolved, folder=folder)
        live(started, quiet)
        finish(started, quiet)


def resume_command(
    folder: options.RunFolder, overrides: options.Overrides = None, quiet: options.Quiet = False
) -> None:
    """Go on with a run; run.generations=N or run.train_flops=N makes it longer."""
    console.tell_loading(quiet)
    from symbiont_ecology import Run

    opened = Run.open(folder, *(overrides or ()))
    live(opened, quiet)
    finish(opened, quiet)


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Yield a list that a first Ctrl-C or SIGTERM fills; a second one interrupts."""
    made: list[int] = []

    def make(number: int, frame: FrameType | None) -> None:
        # Not print: a signal may come while the stream is being written to.
        os.write(sys.stderr.fileno(), f"\n{AT_ONCE if made else ENDING}\n".encode())
        if made:
            raise KeyboardInterrupt
        made.append(number)

    names = signal.SIGINT, signal.SIGTERM  # which batch systems send before they kill
    before = {name: signal.signal(name, make) for name in names}
    try:
        yield made
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def live(run: Run, quiet: bool, again: str = "") -> None:
    """Live a run and show its progress; ``again`` is what to type where that is not resume.

    Raises:
        typer.Exit: it was interrupted.
    """
    from symbiont_ecology.model.locating import find_folder
    from symbiont_ecology.run.open_run import lived_seconds

    if run.is_complete:
        return
    view = console.RunProgress(run.config, lived_seconds(run.folder), quiet=quiet)
    with stop_requests() as stops:
        view.tell(f"loading the host {run.config.host.model} …")
        import torch  # noqa: F401

        find_folder(run.config.host.model, view.tell)
        with closing(iter(run)) as generations:
            view.tell("going on …" if run.is_started else "founding the population …")
            for generation in generations:
                view(generation.state, generation.summary, generation.seconds)
                if stops:
                    break
    if stops:
        again = again or console.command_line("resume", run.folder)
        last = run.state.generation - 1
        print(f"interrupted after generation {last}; go on with: {again}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def finish(run: Run, quiet: bool) -> None:
    """Print where a complete run is and what can be done with it; answer ``run.final_holdout``, if
    there is one."""
    state, loop, command = run.state, run.config.run, console.command_line
    longer = [f"run.generations={2 * max(loop.generations, 1)}"]
    longer += [f"run.{key}={2 * getattr(loop, key):.3g}" for key in run.config.train_budgets]
    asked = ["--shift", "users", "--routing", "user"] if state.users else []
    if not quiet:
        print(
            f"complete: {state.generation} generations, {state.spent.flops:.3g} FLOPs, "
            f"run in {run.folder}\n"
            f"next:     {command('evaluate', run.folder, *asked)}\n"
            f"          {command('evoscope', run.folder, '--open')}\n"
            f"          {command('resume', run.folder, *longer)}"
        )
    if (evaluation := run.evaluate_final_holdout()) is not None:
        console.print_table(console.accuracy_table({"right, with 95 % interval": evaluation}))
        console.tell_answerers(evaluation)


def checked_config(name: str, overrides: list[str] | None) -> RunConfig:
    """Return the config of a preset or file with changes; every mistake in it is found here.

    Raises:
        ConfigError: it does not fit together.
        DataError: the file of ``run.final_holdout`` cannot be used.
        HostError: the host is not on this machine.
    """
    from symbiont_ecology import load_config
    from symbiont_ecology.evaluate.items import read_items
    from symbiont_ecology.model.locating import check_is_here
    from symbiont_ecology.run.build import check

    config = load_config(name, overrides or ())
    check(config, is_new=True)
    check_is_here(config.host.model)
    if (holdout := config.run.final_holdout) is not None:  # a bad file costs nothing
        read_items(Path(holdout))
    return config


def tell_assumed(config: RunConfig, typed: Sequence[str]) -> None:
    """Print what is assumed of a host that has no preset, unless a file or a change that was typed
    says how it learns."""
    from symbiont_ecology.base.config_layers import has_host_preset
    from symbiont_ecology.ecology.strategies import strategies
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    host, rate = config.host.model, getattr(strategies.build(config.strategy), "learning_rate", 0)
    is_said = any("learning_rate" in word or word.endswith((".yaml", ".yml")) for word in typed)
    if not rate or is_said or has_host_preset(host):
        return
    template = "its" if prompt_styles.build(config.tasks.style).is_chat else "no"
    print(
        f"note: host {host} has no preset; assumed: learning rate {rate:g} and {template} chat "
        f"template; to see what suits it: {console.command_line('look', 'steady', f'host={host}')}",
        file=sys.stderr,
    )


def folder_for(name: str, out: Path | None, can_go_on: Callable[[Path], bool]) -> Path:
    """Return the folder that was asked for, or the first ``artifacts/<name>-<n>`` that can be used.

    Raises:
        ConfigError: the folder that was asked for holds something else.
    """
    folders = (Path("artifacts") / f"{name}-{number}" for number in count(1))
    for folder in folders if out is None else [out]:
        if can_go_on(folder):
            return folder
    raise ConfigError(f"{out} holds a run with another config or other data: choose another --out")


def is_free_for(folder: Path, config: RunConfig, *may_differ: str) -> bool:
    """Return True if a folder holds no run, or the one with this config and the data as they are;
    the keys of ``run`` that are named may differ."""
    from symbiont_ecology.run.open_run import CONFIG_FILE, read_config
    from symbiont_ecology.run.provenance import check_data

    if not (folder / CONFIG_FILE).exists():
        return True
    existing, fields = read_config(folder), config.run.model_dump(include=set(may_differ))
    if existing.model_copy(update={"run": existing.run.model_copy(update=fields)}) != config:
        return False
    try:
        check_data(config, folder)
    except RunError:
        return False
    return True


def tell_run_plan(config: RunConfig, folder: Path) -> None:
    """Print what a run would do, and what it would take, but on the embedded host: that needs
    little, and its plan no torch."""
    from symbiont_ecology.base.registry import kind_of
    from symbiont_ecology.ecology.strategies import strategies
    from symbiont_ecology.run.build import mixture
    from symbiont_ecology.tasks.data import DataTask

    mix, host, loop = mixture(config), config.host, config.run
    strategy = strategies.build(config.strategy)
    rows, rate = strategy.max_rows(mix), getattr(strategy, "learning_rate", 0)
    ends = (f"run.{key}={getattr(loop, key):.3g}" for key in config.train_budgets)
    facts = {
        "host": f"{host.model} on {host.device} in {host.dtype}, {host.slots} slots",
        "tasks": f"{len(mix.cells)} cells: {' '.join(mix.names)}",
        "strategy": f"{kind_of(config.strategy)}, at most {rows} answers or examples a generation"
        + (f", learning rate {rate:g}" if rate else ""),
        "length": " or ".join([f"{loop.generations} generations", *ends]),
        "folder": str(folder),
    }
    data = [task for task in mix.tasks if isinstance(task, DataTask)]
    facts |= {f"rows of {task.name}": _rows_of(task) for task in data}
    if data and (reader := reader_of(config)):
        facts["lengths"] = _lengths(data, *reader)
    if host.model != "embedded":
        facts |= _estimate(config)
    console.tell_facts(facts)
    print("the config is fine; nothing was done")


def _rows_of(task: DataTask) -> str:
    """Return how many rows a task has, and which splits they fall into."""
    from symbiont_ecology.tasks.logs import LogTask

    if isinstance(task, LogTask):
        accepted = sum(row.is_accepted for row in task.log)
        return f"{len(task.log)} replies to {len(task.users)} users, {accepted} accepted"
    counts = Counter(task.split(line) for line in task.lines)
    return ", ".join(f"{count} {split}" for split, count in counts.most_common())


def reader_of(config: RunConfig, *, may_fetch: bool = False) -> tuple[TextCodec, int] | None:
    """Return the tokenizer of a host, and the most tokens that it takes; nothing of one that is not
    on this machine, unless it ``may_fetch`` it."""
    from symbiont_ecology.base.flops import HostShape
    from symbiont_ecology.model.loading import read_model_config
    from symbiont_ecology.model.locating import find_folder, local_folder
    from symbiont_ecology.run.build import host_source

    folder = (find_folder if may_fetch else local_folder)(config.host.model)
    if folder is None:
        return None
    facts = read_model_config(folder)
    facts = facts.get("text_config", facts)
    shape = HostShape.from_config(facts, linear_parameters=0, parameters=0)
    return host_source(config).reader(shape.vocab), shape.max_positions


def lengths_of(task: DataTask, codec: TextCodec) -> list[int]:
    """Return the tokens of each row as the host reads it, with its reply or the room for one."""
    from symbiont_ecology.tasks.logs import LogTask

    if isinstance(task, LogTask):
        prompts = codec.encode([task.prompt(row.question) for row in task.log])
        rooms = list(map(len, codec.encode_answers([row.reply for row in task.log])))
    else:
        items = [task.item(line.question, line.depth) for line in task.lines]
        prompts = codec.encode([item.prompt for item in items])
        rooms = [item.reply_limit for item in items]
    return [len(prompt) + room for prompt, room in zip(prompts, rooms, strict=True)]


def _lengths(data: Sequence[DataTask], codec: TextCodec, most: int) -> str:
    """Return the most tokens that a row takes with its reply, and how many rows are too long."""
    from symbiont_ecology.tasks.logs import LogTask

    rows = [row for task in data for row in (task.log if isinstance(task, LogTask) else task.lines)]
    sizes = [size for task in data for size in lengths_of(task, codec)]
    said = f"at most {max(sizes)} tokens with the reply; the host takes {most}"
    if too_long := [row for row, size in zip(rows, sizes, strict=True) if size > most]:
        first = too_long[0].prompt
        said += f": shorten {len(too_long)} of {len(rows)} rows, first {first!r:.60}"
    return said


def _estimate(config: RunConfig) -> dict[str, str]:
    """Return memory and hours of a run, from a few seconds of its own work on its host; nothing of
    one whose weights are not on this machine."""
    from symbiont_ecology.model.loading import find_dtype, weight_bytes, weight_files
    from symbiont_ecology.model.locating import local_folder
    from symbiont_ecology.run.build import build_host
    from symbiont_ecology.run.forecast import estimate_run

    host = config.host
    folder = local_folder(host.model)
    if folder is None:
        return {"memory and time": "not known: the host would be fetched first"}
    need = weight_bytes(weight_files(folder), find_dtype(host.dtype)) / 1e6
    memory = f"{need:.0f} MB for the host, at most {host.memory_mb:.0f} MB for a batch"
    print(f"timing {host.model} for some seconds …", file=sys.stderr, flush=True)
    try:
        generation, whole = estimate_run(config, build_host(config))
    except HostError as error:  # a plan may be made on another machine than the run
        return {"memory": memory, "time": f"not measured: {error}"}
    time = f"{generation:.3g} s for a generation, {whole / 3600:.2g} hours for the run, here"
    return {"memory": memory, "time": time}
