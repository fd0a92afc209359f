"""``look``: how much a host has right before a run starts, and in which style to ask it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option, typed_spec

if TYPE_CHECKING:
    from symbiont_ecology.evaluate.first_look import StyleLook
    from symbiont_ecology.run.config import RunConfig
    from symbiont_ecology.run.runtime import Host
    from symbiont_ecology.tasks.synthetic.styles import PromptStyle

CHATS = ("{kind: natural, is_chat: true}", "{kind: few_shot, is_chat: true}")
STYLES, OWN = ("terse", "natural", "few_shot", *CHATS), "the config's"
"""Styles that are looked at, as they are typed."""
TRAINED, NEXT_PRESET = "tasks/trained", "steady"
"""What is looked at where no config is named, and the preset that is then said to be run."""
MAX_REPLIES, MAX_REPLY_CHARS = 8, 48


def look_command(
    config: Annotated[str | None, argument("A preset or YAML file.", default="trained")] = None,
    overrides: options.Overrides = None,
    host: options.HostOption = None,
    tasks: Annotated[str | None, option("Families, with commas.", default="the config's")] = None,
    style: Annotated[list[str] | None, option("A style; repeat it.", default="five")] = None,
    per_cell: Annotated[int, option("Most questions of every cell and style.", least=1)] = 8,
    samples: Annotated[int, option("Answers that are drawn to each question.", least=1)] = 4,
    seconds: Annotated[int, option("Time limit, to a batch of questions.")] = 150,
    json_file: options.JsonOption = None,
) -> None:
    """Ask the bare host train questions before a run starts, and show how much is right in each
    style."""
    from symbiont_ecology.evaluate.first_look import LookPlan, look_at
    from symbiont_ecology.run.build import host_source, mixture
    from symbiont_ecology.run.config import compose, load_config

    named, changes = options.split_words([*([config] if config else []), *(overrides or [])])
    changes += [f"host.model={host}"] * (host is not None)
    changes += [f"tasks.families=[{tasks}]"] * (tasks is not None)
    resolved = (
        load_config(named[0], changes) if named else compose(["base", TRAINED], changes, "look")
    )
    mix, styles = mixture(resolved), _styles(resolved, style or [])
    plan = LookPlan(per_cell, samples, float(seconds), resolved.seed)
    with console.report(json_file) as write_json:
        print(f"{resolved.host.model}: {len(mix.cells)} cells in {len(styles)} styles", flush=True)
        console.tell_loading(quiet=False)
        kernel = host_source(resolved).load()

        def host_for(is_chat: bool) -> Host:
            kernel.is_chat = is_chat
            return kernel

        with console.asking() as progress:
            looks = look_at(mix, styles, host_for, plan, progress)
        _tell_shares(looks)
        if any(len(look.cells) < len(mix.cells) for look in looks.values()):
            print("a larger --seconds asks all cells in every style")
        best = max(looks, key=lambda name: looks[name].promise)
        _tell_replies(best, looks[best])
        _tell_next(best, looks[best], [*(named or [NEXT_PRESET]), *changes])
        shares = {
            name: {"all": look.shares(), "cells": {cell: look.shares(cell) for cell in look.cells}}
            for name, look in looks.items()
        }
        write_json({"schema": 2, "host": resolved.host.model, "take": best, "styles": shares})


def _styles(config: RunConfig, texts: Sequence[str]) -> dict[str, PromptStyle]:
    """Return the styles to look at, by name.

    Raises:
        ConfigError: a style that was typed cannot be built, or not with this host or these tasks.
    """
    from symbiont_ecology.model.locating import has_chat_template
    from symbiont_ecology.run.build import mixture
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    specs = {text: typed_spec(text) for text in texts or STYLES}
    if not texts and config.tasks.style not in specs.values():
        specs = {OWN: config.tasks.style, **specs}
    has_chat, styles = has_chat_template(config.host.model) is not False, {}
    for name, spec in specs.items():
        style = prompt_styles.build(spec)
        changed = config.tasks.model_copy(update={"style": spec})
        try:
            if style.is_chat and not has_chat:
                raise ConfigError("the host has no chat template")
            mixture(config.model_copy(update={"tasks": changed}))
        except ConfigError as error:
            if name in texts:
                raise
            print(f"not asked in {name}: {error}", file=sys.stderr)
        else:
            styles[name] = style
    return styles


def _tell_shares(looks: Mapping[str, StyleLook]) -> None:
    """Print a row for every cell, and one for all: greedy answers and drawn ones that are right."""
    rows = console.table("right, and drawn at temperature 1, in %", *map(escape, looks))
    cells = dict.fromkeys(cell for look in looks.values() for cell in look.cells)
    for cell in cells:
        shares = [look.shares(cell) if cell in look.cells else None for look in looks.values()]
        rows.add_row(escape(cell), *map(_said, shares))
    rows.add_row("all", *(_said(look.shares()) for look in looks.values()), style="bold")
    rows.add_row("cells without a right answer", *(str(len(one.silent)) for one in looks.values()))
    console.print_table(rows)


def _said(shares: Mapping[str, float] | None) -> str:
    if shares is None:
        return ""
    return f"{100 * shares['right']:.0f} {100 * shares['right_drawn']:.0f}"


def _tell_replies(name: str, look: StyleLook) -> None:
    """Print a few greedy replies, from cells all over."""
    from symbiont_ecology.base.transcripts import plain
    from symbiont_ecology.base.types import last_turn

    print(f"\nreplies in the style {name}:")
    for (rollout, *_), *_ in [*look.cells.values()][:: max(len(look.cells) // MAX_REPLIES, 1)]:
        texts = last_turn(rollout.item.prompt), rollout.text, rollout.item.answer
        question, reply, answer = (plain(text, MAX_REPLY_CHARS) for text in texts)
        mark, wanted = ("yes", "") if rollout.is_right else ("no ", f" (wanted: {answer})")
        print(f"{mark}  {question} → {reply}{wanted}")


def _tell_next(name: str, look: StyleLook, words: Sequence[str]) -> None:
    """Print which style to take, and what to type."""
    if not look.promise[0]:
        print(
            "\nnothing was right in any style: verdicts alone teach nothing on this host and tasks"
        )
        print("next: gold answers teach where nothing is right: learning_rule=supervised, or sft")
        return
    print(f"\ntake the style {name}")
    if name != OWN:
        words = [word for word in words if not word.startswith("tasks.style")]
        words = [*words, f"tasks.style={name}"]
    print(f"next: {console.command_line('run', *words)}")
