"""Options and arguments that several commands have, each declared once with its help."""

from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.base.errors import ConfigError


def option(
    about: str, *names: str, default: str = "", least: int | None = None, metavar: str | None = None
) -> object:
    """Return an option with its help, and its smallest value.

    ``default`` says in words what stands for it where it is left out.
    """
    shown = default or True
    return typer.Option(*names, help=about, show_default=shown, min=least, metavar=metavar)


def argument(about: str, metavar: str | None = None, default: str = "") -> object:
    """Return an argument with its help, as ``option``."""
    return typer.Argument(help=about, metavar=metavar, show_default=default or False)


def resumable_folder(default: str) -> object:
    """Return the option for the folder of a command that goes on when it is typed again."""
    return option("Folder; if it exists, the command goes on there.", default=default)


USER = "--user", "--habitat"
"""Both spellings of the option for a user."""
IN_DISTRIBUTION = ["in-distribution"]
"""What is drawn unless ``--shift`` says otherwise."""

ConfigName = Annotated[str, argument("A preset (symbiont list presets) or a YAML file.")]
Overrides = Annotated[list[str] | None, argument("Changes, such as seed=1.", "KEY=VALUE")]
RunFolder = Annotated[Path, argument("Folder of a run.", "DIR")]
HoldoutOption = Annotated[Path | None, option("JSONL file of questions to ask.")]
MaxSamplesOption = Annotated[int | None, option("At most so many.", "--max-samples", least=1)]
RoutingOption = Annotated[str, option("Which adapter answers: symbiont list routings.")]
ShiftOption = Annotated[list[str], option("What is drawn: symbiont list shifts. Repeat it.")]
PerCellOption = Annotated[int, option("Holdout questions to draw per cell and shift.", least=1)]
HostOption = Annotated[
    str | None, option("Preset, folder or name of the host.", default="the run's own")
]
WorkersOption = Annotated[int | None, option("Runs at a time.", default="one per core", least=1)]
JsonOption = Annotated[Path | None, option("Write results here as JSON; - is stdout.", "--json")]
DryRunOption = Annotated[bool, option("Check everything and print the plan.", "--dry-run")]
PluginsOption = Annotated[list[Path] | None, option("A Python file with parts.", "--plugin")]
Quiet = Annotated[bool, option("Show nothing while it runs.", "--quiet", "-q")]
OutOption = Annotated[Path | None, option("Folder of the run.", default="artifacts/<config>-<n>")]


def refuse_beside(context: typer.Context, flag: str, *others: str) -> None:
    """Refuse options that have no meaning beside a flag that was typed.

    Raises:
        ConfigError: one of them was typed, too.
    """
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if param.opts[0] in others and source and source.name == "COMMANDLINE":
            raise ConfigError(
                f"{context.command.name} {flag}: expected no {param.opts[0]} beside it"
            )


def check_drawn(context: typer.Context, holdout: Path | None, max_samples: int | None) -> None:
    """Refuse options of questions that are drawn beside a file of questions, and the other way."""
    if holdout is not None:
        refuse_beside(context, "--holdout", "--shift", "--per-cell")
    elif max_samples is not None:
        raise ConfigError(f"{context.command.name} --max-samples: expected --holdout beside it")


def split_words(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the names among some words, and the changes, which have the form ``key=value``."""
    names = [word for word in words or [] if "=" not in word]
    return names, [word for word in words or [] if "=" in word]
