"""Configs by mutation: as values, as text, as overrides. Those that are accepted are lived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mutations import Count, mutated, torn
from runs import start
from symbiont_ecology.base.config_layers import parse_yaml
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig, compose, dump_config, load_config
from toy import ToyHost, toy_config

PRESETS = ("demo", "steady", "es-countdown", "ga-gpt2", "habitats/town", "habitats/regimes")
LIVED = ("economy", "seed")
"""Keys of which every accepted value is lived, too: others may ask for the work of days."""


def test_a_config_of_any_values_is_checked_or_refused_in_one_line(cases: int) -> None:
    presets: list[Any] = [parse_yaml(dump_config(load_config(name)), name) for name in PRESETS]

    def case(generator: np.random.Generator) -> None:
        data = mutated(presets[int(generator.integers(len(presets)))], generator)
        layers = (data,) if isinstance(data, dict) else ()
        check(compose(layers, (), "config"))

    Count("configs as values").run(cases, case)


def test_a_config_of_any_text_is_checked_or_refused_in_one_line(cases: int, tmp_path: Path) -> None:
    texts = [dump_config(load_config(name)).encode() for name in PRESETS]
    path = tmp_path / "any.yaml"

    def case(generator: np.random.Generator) -> None:
        path.write_bytes(torn(texts[int(generator.integers(len(texts)))], generator))
        check(load_config(path))

    Count("configs as text").run(cases, case)


def test_any_override_and_name_is_checked_or_refused_in_one_line(cases: int) -> None:
    words = ["seed=3", "host.slots=4", "run.generations=2", "strategy=single", "host=smollm2"]

    def any_word(word: str, generator: np.random.Generator) -> str:
        """The word, torn, or with something else behind its first part."""
        key, equals, _ = word.partition("=")
        if generator.random() < 0.5:
            return torn(word.encode(), generator).decode(errors="replace")
        return f"{key}{equals}{mutated([1], generator)}"

    def case(generator: np.random.Generator) -> None:
        name = "steady" if generator.random() < 0.8 else any_word("steady", generator)
        load_config(name, [any_word(word, generator) for word in words[: generator.integers(6)]])

    Count("overrides").run(cases, case)


def test_prices_that_are_accepted_can_be_lived_in(cases: int, tmp_path: Path) -> None:
    plan = toy_config(generations=3, families=("math.add",)).model_dump(mode="json")

    def case(generator: np.random.Generator) -> None:
        key = LIVED[int(generator.integers(len(LIVED)))]
        changed = mutated({key: plan[key]}, generator)
        if not isinstance(changed, dict):
            return
        config = RunConfig.model_validate(
            compose((plan, changed), (), "config").model_dump(mode="json"), strict=False
        )
        folder = tmp_path / f"run-{generator.integers(1 << 60)}"
        finished = start(config, folder, host=ToyHost())
        assert finished.state.ledger.total == 0

    Count("lived").run(cases, case)
