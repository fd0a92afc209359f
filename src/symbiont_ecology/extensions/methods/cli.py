"""``evolve``: an evolution of trainings, with a table for every life, and a tree at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from symbiont_ecology.base.config_layers import config_name
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.files import free_folder
from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import command_line, print_table, table, tell_loading
from symbiont_ecology.cli.options import argument, option, split_words
from symbiont_ecology.cli.run import checked_config, live, tell_run_plan

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.extensions.evoscope.methods import Life, Variant
    from symbiont_ecology.extensions.methods.hyper import Hyper
    from symbiont_ecology.run.config import RunConfig

PRESET = "loralab"
QUICK = ("strategy.population=4", "strategy.train_size=24", "strategy.eval_size=12")
QUICK_LIVES = 2
"""Settings of ``--quick-test``."""


def evolve(
    words: Annotated[
        list[str] | None,
        argument(
            f"A preset or YAML file ({PRESET} if left out), and changes; with --resume a run.",
            "[CONFIG] [KEY=VALUE]…",
        ),
    ] = None,
    generations: Annotated[int | None, option("Trainings, one after another.", least=1)] = None,
    population: Annotated[int | None, option("Variants alive.", least=2)] = None,
    train_size: Annotated[int | None, option("Examples of a training.", least=1)] = None,
    eval_size: Annotated[int | None, option("Questions of an exam.", least=1)] = None,
    quick_test: Annotated[bool, option("Two short lives, to see it work.", "--quick-test")] = False,
    resume: Annotated[
        bool, option("Go on with the run in the folder that is named.", "--resume")
    ] = False,
    out: options.OutOption = None,
    dry_run: options.DryRunOption = False,
    quiet: options.Quiet = False,
) -> None:
    """Evolve how to train: rank, alpha, dropout, learning rate and modules. Ctrl-C is safe."""
    tell_loading(quiet or dry_run)
    from symbiont_ecology import Run

    names, changes = split_words(words)
    if len(names) > 1:
        raise ConfigError(f"expected one config, got {' '.join(names)}: type one of them")
    sizes = {"population": population, "train_size": train_size, "eval_size": eval_size}
    typed_sizes = [f"strategy.{key}={size}" for key, size in sizes.items() if size is not None]
    if resume:
        if out is not None or quick_test:
            raise ConfigError(
                "--resume goes on with a run where it is: leave --out and --quick-test out"
            )
        if not names:
            raise ConfigError("--resume: expected the folder of a run, got none: name it")
        folder = Path(names[0])
        lives = _more_lives(folder, generations)
        run = Run.open(folder, *changes, *typed_sizes, *lives)
    else:
        quick = QUICK if quick_test else ()
        run_config = checked_config(names[0] if names else PRESET, [*quick, *changes, *typed_sizes])
        config = _with_lives(run_config, generations or (QUICK_LIVES if quick_test else None))
        folder = out or free_folder(config_name(names[0] if names else PRESET))
        run = Run.start(config, folder=folder)
    if dry_run:
        tell_run_plan(run.config, folder)
        return
    live(run, quiet, command_line("evolve", "--resume", folder))
    if not quiet:
        tell_lives(run)


def tell_lives(run: Run) -> None:
    """Print every life's ranking, the tree of variants, the best of them and what to do next."""
    from symbiont_ecology.extensions.evoscope.history import History
    from symbiont_ecology.extensions.evoscope.methods import lives_of

    lives = lives_of(History.of_run(run.folder))
    if not lives:
        print("nobody has sat an exam yet")
        return
    for life in lives:
        _tell_life(life)
    Console().print(_tree(lives))
    best, longer = lives[-1].ranking[0], 2 * len(lives)
    print(
        f"best: {best.id}, fitness {best.fitness:.3f}, {_said(best.genes)}\n"
        f"complete: {len(lives)} lives, {run.state.spent.flops:.3g} FLOPs, run in "
        f"{run.folder}\n"
        f"next:     {command_line('evaluate', run.folder)}\n"
        f"          {command_line('export', run.folder)}\n"
        f"          {command_line('evolve', '--resume', run.folder, '--generations', longer)}"
    )


def _tell_life(life: Life) -> None:
    from symbiont_ecology.extensions.evoscope.methods import said_genes

    brief = {"dropout": "drop", "learning rate": "rate"}
    genes = [brief.get(name, name) for name in said_genes(life.ranking[0].genes)]
    columns = ("", "fitness", "right", *genes, "from", "")
    rows = table(*columns, title=f"life {life.number}")
    for variant in life.ranking:
        stays = variant.id in life.survivors
        rows.add_row(
            variant.id,
            f"{variant.fitness:.3f}",
            f"{variant.accuracy:.0%}",
            *said_genes(variant.genes).values(),
            " × ".join(variant.parents) or "-",
            "survived" if stays else "eliminated",
            style="bold" if stays else "dim",
        )
    print_table(rows)


def _tree(lives: Sequence[Life]) -> Tree:
    """Draw the descent of variants; of two parents the first counts."""
    variants: dict[str, Variant] = {v.id: v for life in lives for v in life.ranking}
    survivors = lives[-1].survivors
    root = Tree("variants")
    nodes: dict[str, Tree] = {}
    for child in variants.values():
        above = nodes.get(child.parents[0], root) if child.parents else root
        text = escape(f"{child.id} {child.fitness:.3f} {child.operator}: {_said(child.genes)}")
        nodes[child.id] = above.add(text, style="bold" if child.id in survivors else "dim")
    return root


def _said(genes: Mapping[str, float]) -> str:
    from symbiont_ecology.extensions.evoscope.methods import said_genes

    return ", ".join(f"{name} {text}" for name, text in said_genes(genes).items())


def _with_lives(config: RunConfig, lives: int | None) -> RunConfig:
    """Set the number of lives, if one is asked for."""
    steps = _hyper(config).steps
    if lives is None:
        return config
    loop = config.run.model_copy(update={"generations": lives * (steps + 1), "train_flops": None})
    return config.model_copy(update={"run": loop})


def _more_lives(folder: Path, lives: int | None) -> list[str]:
    """Return the overrides that make the run in a folder that long."""
    from symbiont_ecology.run.open_run import read_config

    steps = _hyper(read_config(folder)).steps
    return [] if lives is None else [f"run.generations={lives * (steps + 1)}"]


def _hyper(config: RunConfig) -> Hyper:
    from symbiont_ecology.base.registry import kind_of
    from symbiont_ecology.ecology.strategies import strategies
    from symbiont_ecology.extensions.methods.hyper import Hyper

    strategy = strategies.build(config.strategy)
    if not isinstance(strategy, Hyper):
        raise ConfigError(
            f"strategy: evolve varies trainings, so expected hyper, got "
            f"{kind_of(config.strategy)!r}: symbiont run takes any strategy"
        )
    return strategy
