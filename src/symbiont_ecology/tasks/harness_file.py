"""A task file of lm-evaluation-harness: which of its keys are read, and what is refused.

A task file is data from anyone. A tag such as ``!function`` names code to run, and is refused.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped, unused-ignore]
from pydantic import BaseModel, ConfigDict, Field

from symbiont_ecology.config_layers import parse_yaml
from symbiont_ecology.errors import DataError, EcologyWarning
from symbiont_ecology.files import Stamp
from symbiont_ecology.registry import validate
from symbiont_ecology.untrusted import read_regular

LARGEST_TASK_FILE = 100_000
"""Characters."""
SAYS_NOTHING = frozenset(
    [
        "task",
        "task_alias",
        "tag",
        "group",
        "group_alias",
        "metadata",
        "dataset_path",
        "dataset_name",
        "num_fewshot",
        "fewshot_split",
        "fewshot_config",
        "fewshot_delimiter",
        "target_delimiter",
        "repeats",
        "should_decontaminate",
        "doc_to_decontamination_query",
    ]
)
"""Keys that change nothing here. Solved examples come from the prompt style."""
FILTERS_KEY = "filter_list"
"""Not used, which is said in a warning: the grader finds the answer in a reply."""


class DataPlaces(BaseModel):
    """Where a task file says that its data are."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    data_files: str | list[str] | dict[str, str | list[str]] | None = None


class HarnessFile(BaseModel):
    """The keys of a task file that are used here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    doc_to_text: str
    doc_to_target: str | int | list[str | int]
    doc_to_choice: str | list[str] | dict[str, str] | None = None
    output_type: Literal["generate_until", "multiple_choice"] = "generate_until"
    description: str = ""
    dataset_kwargs: DataPlaces = DataPlaces()
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    generation_kwargs: dict[str, Any] = Field(default_factory=dict)
    metric_list: list[dict[str, Any]] = Field(default_factory=list)


@lru_cache(maxsize=16)
def read_task_file(path: Path, stamp: Stamp, about: str) -> HarnessFile:
    """The checked keys of a task file; ``stamp`` changes with it.

    Raises:
        DataError: it cannot be read, would run code, or has keys that are not supported.
        ConfigError: a value is of another type.
    """
    try:
        text = read_regular(path, 1)
    except (OSError, ValueError) as error:
        raise DataError(f"{about}: cannot be read: {error}") from error
    if len(text) > LARGEST_TASK_FILE:
        raise DataError(f"{about}: expected at most {LARGEST_TASK_FILE} characters")
    _check_plain(text, about)
    values = parse_yaml(text, about)
    if not isinstance(values, dict):
        raise DataError(f"{about}: expected keys with values, got {values!r:.60}")
    settings = {key: value for key, value in values.items() if key in HarnessFile.model_fields}
    other_keys = [key for key in values if key not in settings and key not in SAYS_NOTHING]
    if FILTERS_KEY in other_keys:
        other_keys.remove(FILTERS_KEY)
        warnings.warn(
            f"{about}: {FILTERS_KEY} is not used; the grader finds the answer in a reply",
            EcologyWarning,
            stacklevel=2,
        )
    if other_keys:
        raise DataError(f"{about}: keys that are not supported: {', '.join(map(str, other_keys))}")
    plan = validate(HarnessFile, {k: v for k, v in settings.items() if v is not None}, about)
    if plan.output_type == "multiple_choice" and plan.doc_to_choice is None:
        raise DataError(f"{about}: missing key 'doc_to_choice', which multiple_choice asks for")
    return plan


def _check_plain(text: str, about: str) -> None:
    """Refuses tags, which name code to run, and references, by which a small file grows large."""
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.TagToken):
                raise DataError(
                    f"{about}: {''.join(map(str, token.value))!r:.60} would run code: write a "
                    "column or a template"
                )
            if isinstance(token, yaml.AliasToken):
                raise DataError(f"{about}: a reference, *{token.value}: write the value")
    except yaml.YAMLError as error:
        raise DataError(f"{about}: not valid YAML: {' '.join(str(error).split())}") from error
