"""``look``: what a host answers before a run starts, in which style to ask it, and where there is
something to learn from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.cli import console
from symbiont_ecology.cli.options import HostOption, JsonOption, Overrides, argument, option
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.runtime import Host
    from symbiont_ecology.evaluation.first_look import CellLook, LookPlan, StyleLook
    from symbiont_ecology.registry import Spec
    from symbiont_ecology.tasks.synthetic.styles import PromptStyle

LOOKED_AT: Mapping[str, Spec] = {
    "terse": "terse",
    "natural": "natural",
    "few_shot": "few_shot",
    "natural chat": {"kind": "natural", "is_chat": True},
    "few_shot chat": {"kind": "few_shot", "is_chat": True},
}
"""Styles that are looked at, by what the table calls them."""
OWN = "the config's"
TRAINED, NEXT_PRESET = "tasks/trained", "steady"
"""What is looked at where no config is named, and the preset that is then said to be run."""
REPLIES_SHOWN, CHARACTERS_SHOWN = 8, 48
"""Replies that are shown, and characters of each."""
ENOUGH = 15
"""Answers in every cell from which on a family is left out in what is said to be typed."""


def look_command(
    config: Annotated[
        str | None, argument("A preset or YAML file.", default="all trained families")
    ] = None,
    overrides: Overrides = None,
    host: HostOption = None,
    tasks: Annotated[
        str | None, option("Task families, with commas.", default="the config's")
    ] = None,
    style: Annotated[
        list[str] | None,
        option("A style, by name or as {kind: …}. Repeat it for several.", default="five of them"),
    ] = None,
    per_cell: Annotated[int, option("Most questions of every cell and style.", least=1)] = 8,
    samples: Annotated[int, option("Answers that are drawn to each question.", least=1)] = 4,
    seconds: Annotated[
        int, option("Time limit: no batch of questions begins that would exceed it.")
    ] = 150,
    json_file: JsonOption = None,
) -> None:
    """Ask the bare host train questions before a run starts, and show how much is right in each
    style."""
    from symbiont_ecology.config import compose, load_config
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.evaluation.first_look import LookPlan, look_at

    changes = list(overrides or [])
    if config is not None and "=" in config:
        changes.insert(0, config)
        config = None
    if host is not None:
        changes.append(f"host.model={host}")
    if tasks is not None:
        changes.append(f"tasks.families=[{tasks}]")
    resolved = (
        compose(["base", TRAINED], changes, "look")
        if config is None
        else load_config(config, changes)
    )
    mix, styles = mixture(resolved), _styles(resolved, style or [])
    plan = LookPlan(per_cell, samples, float(seconds), resolved.seed)
    with console.report(json_file) as write_json:
        print(f"{resolved.host.model}: {len(mix.cells)} cells in {len(styles)} styles", flush=True)
        console.tell_loading(quiet=False)
        host_for = _host_for(resolved)
        with console.asking() as progress:
            looks = look_at(mix, styles, host_for, plan, progress)
        _tell(looks, plan)
        missing = len(mix.cells) - min(len(look.cells) for look in looks)
        if missing:
            which = f"{missing} of {len(mix.cells)} cells were not asked in every style"
            print(f"\n{which}: a larger --seconds asks them")
        _tell_next(looks, resolved, [config or NEXT_PRESET, *changes])
        write_json(_record(looks, resolved, plan))


def warn_if_silent(lived: Run) -> None:
    """Says so if a host that has learned nothing yet is right in no cell at all: nothing would be
    learned from verdicts there."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.evaluation.first_look import LookPlan, look_at
    from symbiont_ecology.learning import learning_rules
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    mix, style = mixture(lived.config), prompt_styles.build(lived.config.tasks.style)
    if mix.habitats or learning_rules.build(lived.config.learning_rule).sees_gold:
        return  # what is right there, verdicts of a cell do not say
    plan = LookPlan(per_cell=2, seconds=30.0)
    (look,) = look_at(mix, {OWN: style}, lambda is_chat: lived.host, plan)
    if len(look.silent) == len(look.cells):
        count = plan.per_cell * (1 + plan.samples)
        print(
            f"warning: nothing is right in any of {len(look.cells)} cells ({count} answers each): "
            f"verdicts alone teach nothing there; try {console.command_line('look')}",
            file=sys.stderr,
        )


def _styles(config: RunConfig, texts: Sequence[str]) -> dict[str, PromptStyle]:
    """What to look at, by name.

    Raises:
        ConfigError: a style cannot be built, or not with this host or these tasks.
    """
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.host.chat_template import has_chat_template
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    specs = dict(LOOKED_AT) if not texts else {text: typed_spec(text) for text in texts}
    if not texts and config.tasks.style not in specs.values():
        specs = {OWN: config.tasks.style, **specs}
    has_chat, styles = has_chat_template(config.host.model) is not False, {}
    for name, spec in specs.items():
        style = prompt_styles.build(spec)
        changed = config.tasks.model_copy(update={"style": spec})
        try:
            if style.is_chat and not has_chat:
                raise ConfigError("the host has no chat template")
            mixture(RunConfig(**{**dict(config), "tasks": changed}))
        except ConfigError as error:
            if name in texts:
                raise
            print(f"not asked in {name}: {error}", file=sys.stderr)
        else:
            styles[name] = style
    return styles


def typed_spec(text: str, option: str = "--style") -> Spec:
    """A component as it is typed."""
    from symbiont_ecology.config_layers import parse_override

    spec = parse_override(f"spec={text}")["spec"]
    if not isinstance(spec, str | dict):
        raise ConfigError(f"{option}: expected a name or {{kind: …}}, got {text!r:.60}")
    return spec


def _host_for(config: RunConfig) -> Callable[[bool], Host]:
    """The host of a config, with its chat template or without; loaded once."""
    from symbiont_ecology.engine.build import host_source

    kernel = host_source(config).load()

    def host_for(is_chat: bool) -> Host:
        """The same host, asked as it is wanted."""
        kernel.is_chat = is_chat
        return kernel

    return host_for


def _tell(looks: Sequence[StyleLook], plan: LookPlan) -> None:
    """Every style in a line, every cell in a line, and replies in the best style."""
    from symbiont_ecology.evaluation.first_look import best_look

    best = best_look(looks)
    columns = "right", "drawn", f"any of {plan.samples}", "tolerant", "silent", "full", "asked", "s"
    rows = console.table("style", *columns)
    for look in looks:
        means = [f"{100 * share:.0f}" for share in look.shares.values()]
        count = sum(len(cell.greedy) for cell in look.cells.values())
        counts = (len(look.silent), len(look.full), count)
        rows.add_row(escape(look.name), *means, *map(str, counts), f"{look.seconds:.0f}")
    print(
        "in %: right greedily, right when drawn at temperature 1, a right one among the draws,\n"
        "right by tolerant verdicts; cells in which nothing is right, and everything\n"
    )
    console.print_table(rows)
    print("\nright, and drawn at temperature 1, in %:")
    cells = console.table("cell", *(escape(look.name) for look in looks))
    for name in best.cells:
        cells.add_row(
            escape(name), *(_shares(s.cells[name]) if name in s.cells else "" for s in looks)
        )
    console.print_table(cells)
    _tell_replies(best)


def _shares(cell: CellLook) -> str:
    """Greedy and drawn share of a cell; nothing is a dot."""
    if not (cell.accuracy or cell.drawn_share):
        return "·"
    return f"{100 * cell.accuracy:.0f} {100 * cell.drawn_share:.0f}"


def _tell_replies(best: StyleLook) -> None:
    """A few greedy replies, from cells all over."""
    from symbiont_ecology.transcripts import plain
    from symbiont_ecology.types import last_turn

    names = list(best.cells)
    step = max(len(names) // REPLIES_SHOWN, 1)
    print(f"\nreplies in the style {best.name}:")
    for name in names[::step][:REPLIES_SHOWN]:
        rollout = best.cells[name].greedy[0]
        question, reply = (
            plain(text, CHARACTERS_SHOWN) for text in (last_turn(rollout.item.prompt), rollout.text)
        )
        mark = "yes" if rollout.is_right else "no"
        target = (
            "" if mark == "yes" else f" (wanted: {plain(rollout.item.answer, CHARACTERS_SHOWN)})"
        )
        print(f"{mark:3s}  {question} → {reply}{target}")


def _tell_next(looks: Sequence[StyleLook], config: RunConfig, words: Sequence[str]) -> None:
    """Which style to take, what to leave out, and what to type: the words for this config, with
    that."""
    from symbiont_ecology.evaluation.first_look import best_look
    from symbiont_ecology.types import cell_family

    best = best_look(looks)
    families = list(dict.fromkeys(cell_family(cell) for cell in best.cells))
    promising = [
        family
        for family in families
        if any(cell_family(cell) == family and cell not in best.silent for cell in best.cells)
    ]
    print()
    if not promising:
        print("nothing was right in any style: verdicts alone teach nothing on this host and tasks")
        print("next: gold answers teach where nothing is right: learning_rule=supervised, or sft")
        return
    fewest = min(cell.answers for cell in best.cells.values())
    if best.silent:
        print(f"nothing right in: {', '.join(best.silent)}; verdicts alone teach nothing there")
    if best.full:
        print(f"nothing to learn in: {', '.join(best.full)}")
    if fewest < ENOUGH:
        print(f"that is from {fewest} answers in a cell; a larger --seconds asks more")
    print(f"take the style {best.name}")
    style = {**LOOKED_AT, OWN: config.tasks.style}.get(best.name) or typed_spec(best.name)
    taken = {"tasks.style": _as_typed(style)}
    if len(promising) < len(families) and fewest >= ENOUGH:
        sources = {source["name"]: source for source in config.tasks.sources}
        specs = (_as_typed(sources.get(family, family)) for family in promising)
        taken["tasks.families"] = f"[{','.join(specs)}]"
    kept = [word for word in words if not word.startswith(tuple(taken))]
    changes = [f"{key}={value}" for key, value in taken.items()]
    print(f"next: {console.command_line('run', *kept, *changes)}")


def _as_typed(spec: Spec) -> str:
    """A component as ``typed_spec`` reads it."""
    if isinstance(spec, str):
        return spec
    return (
        "{"
        + ", ".join(
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in spec.items()
        )
        + "}"
    )


def _record(looks: Sequence[StyleLook], config: RunConfig, plan: LookPlan) -> dict[str, object]:
    """Everything as plain values under stable keys."""
    from symbiont_ecology.evaluation.first_look import best_look

    return {
        "schema": 1,
        "host": config.host.model,
        "samples": plan.samples,
        "take": best_look(looks).name,
        "styles": {look.name: _style_record(look) for look in looks},
    }


def _style_record(look: StyleLook) -> dict[str, object]:
    from symbiont_ecology.types import last_turn

    return {
        "seconds": round(look.seconds, 2),
        **look.shares,
        "nothing_right": look.silent,
        "all_right": look.full,
        "cells": {
            name: {
                "questions": len(cell.greedy),
                **cell.shares,
                "replies": [
                    {
                        "prompt": last_turn(rollout.item.prompt),
                        "reply": rollout.text,
                        "target": rollout.item.answer,
                        "right": rollout.is_right,
                    }
                    for rollout in cell.greedy
                ],
            }
            for name, cell in look.cells.items()
        },
    }
