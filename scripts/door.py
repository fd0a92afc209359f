"""Doors of the original ecology: each script that calls ``open_door`` is a command of ``symbiont``
under the name and with the flags that it has there (``original.toml``)."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TABLE = tomllib.loads(Path(__file__).with_name("original.toml").read_text(encoding="utf-8"))
SILENT = {("--device", "auto"), ("--checkpoint-every", "0")}
"""Flags with a value that says nothing."""
PROTOCOLS = {"ci": "--ci", "paper_qwen3": "paper-qwen3"}
SIZES = {"--train-size": 20_000, "--selection-size": 256, "--holdout-size": 512}
"""Lines of the files of a grid, where they are not given."""
Given = Mapping[str, list[str]]


class FlagError(Exception):
    """A flag has no value, or asks for something that is not here."""


def open_door() -> None:
    """Run the command that the script stands for; say on stderr which one that is."""
    try:
        from symbiont_ecology import cli
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: {error.name} is not installed: make setup, "
            f"then .venv/bin/python {sys.argv[0]} …"
        )
    try:
        words, ignored = translated(Path(sys.argv[0]).stem, sys.argv[1:])
    except FlagError as error:
        print(f"error: {error}; see docs/coming-from.md", file=sys.stderr)
        sys.exit(2)
    if os.environ.get("EVOLORA_PLASTICITY", "").strip().lower() == "hebbian":
        words += ["learning_rule=hebbian"] if words[0] in ("run", "calibrate") else []
    sys.argv = ["symbiont", *words]
    print(f"this is: {shlex.join(sys.argv)}", file=sys.stderr, flush=True)
    for flag in ignored:
        print(f"note: {flag} has no effect here", file=sys.stderr, flush=True)
    cli.main()


def script_for(name: str, typed: Sequence[str]) -> dict[str, Any]:
    """Return the row of a script, by what was typed at it."""
    flags = {word.partition("=")[0] for word in typed}
    rows: list[dict[str, Any]] = TABLE["script"]
    return [row for row in rows if row["name"] == name and row.get("when", "") in {"", *flags}][-1]


def translated(name: str, typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the command for what was typed at a script, and the flags that have no effect.

    Words that are not the original's stay.

    Raises:
        FlagError: a flag has no value, or asks for something that is not here.
    """
    script = script_for(name, typed)
    flags = script.get("flags", {})
    ignored = script.get("ignored", ())
    refused = script.get("refused", ())
    computed = script.get("computed", ())
    given, rest = _parted({*flags, *ignored, *refused, *computed}, typed)
    for flag in refused:
        if flag in given:
            raise FlagError(f"{flag}: expected no such flag, there is no counterpart here")
    arguments = list[str]()
    options = list[str]()
    for flag, template in flags.items():
        values = given.get(flag, [])
        for value in values if flag == "--prompt" else values[-1:]:
            if (flag, value) not in SILENT:
                words = arguments if template.startswith("{") else options
                words += [_filled(word, value) for word in template.split()]
    more = _computed(script["command"], given)
    words = [*script["command"].split(), *arguments, *rest, *options, *more]
    return words, [flag for flag in ignored if flag in given]


def _parted(flags: set[str], typed: Sequence[str]) -> tuple[Given, list[str]]:
    """The original's flags with their values, and all other words."""
    given: dict[str, list[str]] = {}
    rest = list[str]()
    ahead = list(typed)
    while ahead:
        name, equals, value = ahead[0].partition("=")
        word = ahead.pop(0)
        if name not in flags:
            rest.append(word)
            continue
        values = [value] if equals else []
        if name not in TABLE["switches"]:
            while ahead and not ahead[0].startswith("--") and (not values or name in TABLE["many"]):
                values.append(ahead.pop(0))
            if not values:
                raise FlagError(f"{name}: expected a value behind it")
        given.setdefault(name, []).extend(values)
    return given, rest


def _filled(word: str, value: str) -> str:
    if "{protocol}" in word and value not in PROTOCOLS:
        raise FlagError(f"--mode: expected {' or '.join(PROTOCOLS)}, got {value!r}")
    return word.format(
        value,
        config=_config(value),
        list=f"[{value}]",
        protocol=PROTOCOLS.get(value),
        run=_run_folder(value),
    )


def _run_folder(path: str) -> str:
    return str(Path(path).parent) if path.endswith(".pt") else path


def _config(path: str) -> str:
    """A file that is here, else the preset of that name: ``config/experiments/x.yaml``."""
    return path if Path(path).exists() else path.removeprefix("config/").removesuffix(".yaml")


def _computed(command: str, given: Given) -> list[str]:
    """The words of flags that depend on others."""
    if command == "resume" and "--generations" in given:
        state = Path(_run_folder(given["--resume-from"][-1])) / "state.json"
        count = json.loads(state.read_text(encoding="utf-8"))["generation"] if state.exists() else 0
        return [f"run.generations={count + _number('--generations', given, int)}"]
    if command == "sft":
        # The original counts the tokens of forward passes alone; FLOPs here hold every pass.
        part = _number("--budget-scale", given)
        if given.get("--match-budget-field", [""])[-1].endswith("tokens"):
            part /= _number("--backprop-multiplier", given)
        return [] if part == 1 else ["--scale", f"{part:g}"]
    if command == "data" and SIZES.keys() & given.keys():
        if "--config" not in given:
            raise FlagError("--train-size and others: expected --config FILE beside them")
        from symbiont_ecology import load_config
        from symbiont_ecology.run.build import mixture

        cells = len(mixture(load_config(_config(given["--config"][-1]))).cells)
        counts = (_number(flag, given, int) if flag in given else n for flag, n in SIZES.items())
        return ["--per-cell", ",".join(f"{math.ceil(count / cells)}" for count in counts)]
    return []


def _number(flag: str, given: Given, kind: type[int] | type[float] = float) -> float:
    """The number behind a flag; 1 if it was not typed."""
    value = given.get(flag, ["1"])[-1]
    try:
        number = kind(value)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        raise FlagError(f"{flag}: expected a number above 0, got {value!r}")
    return number
