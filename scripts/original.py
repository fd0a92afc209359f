"""How words that were typed at a script of the original ecology become a command here.

The tables are ``original_table.py``: rows for every flag of every script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.errors import ConfigError

Given = Mapping[str, list[str]]
"""The flags that were typed, each with its values."""


@dataclass(frozen=True)
class Flag:
    """A flag of the original. ``becomes`` are words here with ``{}`` for its value; where they
    begin with it, it is an argument. ``why`` is said where the words do not say it all."""

    name: str
    becomes: str = ""
    why: str = ""
    takes: str = "1"  # values: 0, 1, + for one and more, * for one each time that it is typed
    is_refused: bool = False
    is_computed: bool = False  # ``Script.more`` makes its words, and ``why`` says which
    unless: tuple[str, ...] = ()  # values that say nothing


@dataclass(frozen=True)
class Script:
    """A script of the original as a command here.

    A script may have more than one row: ``when`` is the flag that makes it this command. ``more``
    makes the words of flags that depend on others.
    """

    name: str
    command: str
    flags: tuple[Flag, ...] = ()
    when: str = ""
    more: Callable[[Given], list[str]] | None = None


@dataclass(frozen=True)
class Translated:
    """A command here, and a line for everything that was left out of what was typed."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()


def translated(script: Script, typed: Sequence[str]) -> Translated:
    """The command for what was typed at a script. Words that are not the original's stay.

    Raises:
        ConfigError: a flag has no value, or asks for something that is not here.
    """
    given, rest = _parted(script, typed)
    arguments: list[str] = []
    options: list[str] = []
    notes = []
    for flag in (flag for flag in script.flags if flag.name in given):
        if flag.is_refused:
            raise ConfigError(f"{flag.name}: {flag.why}")
        if flag.why:
            notes.append(f"{flag.name}: {flag.why}")
        words = arguments if flag.becomes.startswith("{") else options
        for value in given[flag.name] or [""] * bool(flag.becomes):
            if value not in flag.unless:
                words += [word.format(_Value(value)) for word in flag.becomes.split()]
    more = script.more(given) if script.more else []
    return Translated((*script.command.split(), *arguments, *rest, *options, *more), tuple(notes))


def _parted(script: Script, typed: Sequence[str]) -> tuple[Given, list[str]]:
    """The original's flags with their values, and all other words."""
    flags = {flag.name: flag for flag in script.flags}
    given: dict[str, list[str]] = {}
    rest, ahead = list[str](), list(typed)
    while ahead:
        word = ahead.pop(0)
        name, equals, value = word.partition("=")
        if name not in flags:
            rest.append(word)
            continue
        takes, values = flags[name].takes, [value] if equals else []
        while takes != "0" and ahead and not ahead[0].startswith("--"):
            if takes != "+" and values:
                break
            values.append(ahead.pop(0))
        if takes != "0" and not values:
            raise ConfigError(f"{name}: expected a value behind it")
        given[name] = [*given.get(name, []), *values] if takes == "*" else values
    return given, rest


class _Value(str):
    """A typed value, which a template may convert, as in ``{:run}``."""

    def __format__(self, spec: str) -> str:
        return _CONVERSIONS[spec](str(self))


def run_folder(path: str) -> str:
    """The folder of a run, of which the original names the file ``checkpoint.pt``."""
    return str(Path(path).parent) if path.endswith(".pt") else path


def config_name(path: str) -> str:
    """A file that is here, else the preset of that name: ``config/experiments/x.yaml``."""
    return path if Path(path).exists() else path.removeprefix("config/").removesuffix(".yaml")


def _protocol(mode: str) -> str:
    protocols = {"ci": "--ci", "paper_qwen3": "paper-qwen3"}
    if mode not in protocols:
        raise ConfigError(f"--mode: expected {' or '.join(protocols)}, got {mode!r}")
    return protocols[mode]


_CONVERSIONS: dict[str, Callable[[str], str]] = {
    "": str,
    "config": config_name,
    "list": "[{}]".format,
    "protocol": _protocol,
    "run": run_folder,
}
"""What a template can do with a value."""


def generations_more(given: Given) -> list[str]:
    """A run that goes on: the original counts from where it is, ``run.generations`` from 0."""
    if "--generations" not in given:
        return []
    state = Path(run_folder(given["--resume-from"][0])) / "state.json"
    count = json.loads(state.read_text(encoding="utf-8"))["generation"] if state.exists() else 0
    return [f"run.generations={count + _whole('--generations', given)}"]


def part_of_budget(given: Given) -> list[str]:
    """The part of a run's budget that SFT has.

    The original reads a run's tokens forward alone and divides them by what a backward pass costs.
    FLOPs here hold every pass that was made, and seconds are seconds.
    """
    part = _number("--budget-scale", given)
    if given.get("--match-budget-field", [""])[0].endswith("tokens"):
        part /= _number("--backprop-multiplier", given)
    return [] if part == 1 else ["--scale", f"{part:g}"]


def lines_per_cell(given: Given) -> list[str]:
    """Lines of every cell, from the sizes of whole files; those that are left out are as there."""
    sizes = {"--train-size": 20_000, "--selection-size": 256, "--holdout-size": 512}
    if not sizes.keys() & given.keys():
        return []
    from symbiont_ecology import load_config
    from symbiont_ecology.engine.build import mixture

    if "--config" not in given:
        raise ConfigError("--train-size and others: expected --config FILE beside them")
    cells = len(mixture(load_config(config_name(given["--config"][0]))).cells)
    counts = (_whole(flag, given) if flag in given else size for flag, size in sizes.items())
    return ["--per-cell", ",".join(f"{math.ceil(size / cells)}" for size in counts)]


def _whole(flag: str, given: Given) -> int:
    value = given[flag][0]
    if not (value.isascii() and value.isdecimal()):
        raise ConfigError(f"{flag}: expected a whole number, got {value!r}")
    return int(value)


def _number(flag: str, given: Given) -> float:
    """The number behind a flag; 1 if it was not typed."""
    value = given.get(flag, ["1"])[0]
    try:
        number = float(value)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        raise ConfigError(f"{flag}: expected a number above 0, got {value!r}")
    return number
