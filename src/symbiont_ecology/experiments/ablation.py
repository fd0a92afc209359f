"""Ablations: an ecology with and without each of its mechanisms, as the arms of a protocol.

    name: ablations
    base: [tasks/trained]              # and all else that a protocol says, but no arms
    rows:
      - {mechanism: breeding, purpose: accuracy, about: who is rich has children}
      - {mechanism: prices, change: [economy.slope=0], purpose: coverage,
         about: what is scarce pays more}

The arm of a row is the ecology with ``change`` on top; without one, the mechanism of that name is
left out. What the ecology is without has ``add`` instead, and its arm is the ecology with it. Where
``base`` and ``set`` make another one than the default, ``ecology`` says in a few words which.
Nothing is tuned: what the file does not name is the default of its part, and the protocol's hash
covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from symbiont_ecology.config import RunConfig
from symbiont_ecology.config_layers import merge, parse_override, read_layers
from symbiont_ecology.engine.build import components
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.experiments.protocol import Name, Protocol
from symbiont_ecology.experiments.suite import check_protocol
from symbiont_ecology.registry import validate
from symbiont_ecology.strategies import strategies
from symbiont_ecology.strategies.mechanisms import mechanisms

DEFAULT = "ecology"
"""The arm that has everything."""
SPECS = ("curriculum", "mechanisms")
"""Knobs of a strategy that name parts; what it has built by them stands beside them."""
AblationPurpose = Literal["accuracy", "retention", "coverage", "energy", "resilience"]


class AblationRow(BaseModel):
    """A mechanism, and the ecology without it; or with it, where it has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: Name
    purpose: AblationPurpose  # what it is there for
    about: str  # what it does, in a few words
    change: tuple[str, ...] = ()  # overrides that make the ecology without it; none: by its name
    add: tuple[str, ...] = ()  # overrides that make the ecology with it

    @model_validator(mode="after")
    def _is_one_way(self) -> AblationRow:
        if self.change and self.add:
            raise ValueError(
                "expected change, what the ecology is without it, or add, what it is with it"
            )
        return self

    @property
    def set(self) -> tuple[str, ...]:
        """The overrides of its arm."""
        return self.add or self.change or (f"strategy.mechanisms.{self.mechanism}=false",)


def _each_once(rows: tuple[AblationRow, ...]) -> tuple[AblationRow, ...]:
    names = [row.mechanism for row in rows]
    if not names or len({*names, DEFAULT}) <= len(names):
        raise ValueError(
            f"expected mechanisms, each of them once and none called {DEFAULT}, got {names}"
        )
    return rows


class _Rows(BaseModel):
    """What a file of ablations has beside its protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[tuple[AblationRow, ...], AfterValidator(_each_once)]
    ecology: str = "the default ecology"  # what the rows are left out of, or put into


@dataclass(frozen=True)
class Ablation:
    """The rows of a file, and the protocol that they make."""

    rows: tuple[AblationRow, ...]
    protocol: Protocol


def load_ablation(path: Path, overrides: Sequence[str] = ()) -> Ablation:
    """The ablations of a file; ``overrides`` such as ``seeds=[100]`` change it, and the protocol's
    hash.

    Raises:
        ConfigError: there is no such file, or it does not fit its schema.
    """
    data = read_layers(path)
    for override in overrides:
        data = merge(data, parse_override(override))
    where = f"ablation {path.stem!r}"
    if keys := [key for key in ("arms", "main") if key in data]:
        raise ConfigError(f"{where}: {keys[0]}: the arms are made from the rows, leave it out")
    values = {key: data.pop(key) for key in _Rows.model_fields if key in data}
    file = validate(_Rows, {"rows": [], **values}, where)
    arms = {DEFAULT: {"about": file.ecology}} | {
        row.mechanism: {
            "about": f"{'with' if row.add else 'without'} it: {row.about} (for {row.purpose})",
            "set": row.set,
        }
        for row in file.rows
    }
    return Ablation(file.rows, validate(Protocol, {**data, "arms": arms, "main": DEFAULT}, where))


def check_ablation(ablation: Ablation) -> None:
    """Finds every mistake before anything is run.

    Raises:
        ConfigError: one line that says which row and what is wrong, such as a mechanism that is not
            there.
    """
    protocol = ablation.protocol
    if len(protocol.seeds) < 2:
        raise ConfigError(
            f"seeds: expected two or more, which effects are paired over, got {protocol.seeds}"
        )
    default = protocol.config(DEFAULT, 1.0, 0)
    names = strategies.build(default.strategy).mechanism_names
    for row in ablation.rows:
        where = f"rows.{row.mechanism}"
        if not (row.change or row.add):
            _ = mechanisms[row.mechanism]  # an unknown name is told with the nearest one
            if row.mechanism not in names:
                raise ConfigError(
                    f"{where}: the ecology is without it already, so it cannot be left out"
                )
        if _parts(protocol.config(row.mechanism, 1.0, 0)) == _parts(default):
            raise ConfigError(f"{where}: {', '.join(row.set)} is what the ecology has already")
        if row.purpose == "resilience" and protocol.flip is None:
            raise ConfigError(
                f"{where}: resilience shows after a flip, and there is none: set flip"
            )
        if row.purpose == "retention" and "retention" not in protocol.shifts:
            raise ConfigError(
                f"{where}: retention shows in a shift that is not asked: add it to shifts"
            )
    check_protocol(protocol, alike=("tasks",))


def _parts(config: RunConfig) -> list[object]:
    """What could make a difference: every part as it was built, and all of the config that names
    none."""
    parts = [
        (type(part), {name: value for name, value in vars(part).items() if name not in SPECS})
        for part in components(config)
    ]
    return [parts, *(value for _, value in config if not isinstance(value, str | dict))]
