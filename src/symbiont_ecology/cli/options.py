"""Options and arguments that several commands have, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

IN_DISTRIBUTION = ["in-distribution"]
"""What is drawn unless ``--shift`` says otherwise."""

ConfigName = Annotated[str, typer.Argument(help="A preset (symbiont list presets) or a YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Changes, such as seed=1.", show_default=False),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
RoutingOption = Annotated[str, typer.Option(help="Who answers: symbiont list routings.")]
ShiftOption = Annotated[
    list[str], typer.Option(help="What is drawn: symbiont list shifts. Repeat it for several.")
]
PerCellOption = Annotated[
    int, typer.Option(min=1, help="Holdout questions per cell and shift that are drawn.")
]
HostOption = Annotated[
    str | None,
    typer.Option(help="Folder or name of the host.", show_default="the run's own, or embedded"),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time.", show_default="one per core, or per GPU")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write everything there as JSON; - is stdout.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say the plan, do nothing.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while it runs.")]


def option(about: str, default: str) -> OptionInfo:
    """An option that may be left out: what it is, and what stands for it then."""
    info: OptionInfo = typer.Option(help=about, show_default=default)
    return info


def split_words(words: list[str] | None) -> tuple[list[str], list[str]]:
    """The names among some words, and the changes, which have the form ``key=value``."""
    names = [word for word in words or [] if "=" not in word]
    return names, [word for word in words or [] if "=" in word]
