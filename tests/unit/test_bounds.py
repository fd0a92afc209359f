"""How large, how long and how deep what comes from outside may be; beyond that it is one line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.errors import ConfigError, DataError, EcologyError, HostError, RunError
from symbiont_ecology.base.untrusted import parse_json
from symbiont_ecology.evaluate.items import read_items
from symbiont_ecology.model.loading import find_device
from symbiont_ecology.run.config import load_config
from symbiont_ecology.run.open_run import read_config
from symbiont_ecology.tasks import task_sources
from toy import ToyHost, toy_config

LONG = 10_000 * "n"
ROW: dict[str, Any] = {"prompt": "2+2=", "target": "4", "family": "own", "depth": "short"}


def refused(error: type[EcologyError], action: Any, *arguments: Any) -> str:
    """The one line that an action ends with, within a few seconds."""
    began = time.monotonic()
    with pytest.raises(error) as caught:
        action(*arguments)
    assert time.monotonic() - began < 5
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Configs.


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (f"host.slots={2**64}", "host.slots: expected "),
        ("host.slots=1000000000", "host.slots: expected less than or equal to 65536"),
        ("run.transcripts=1e308", "run.transcripts: expected less than or equal to 1000000"),
        ("economy.base=1e300", "economy.base: expected"),
        (f"economy.base={10**400}", "base: expected less than or equal to 1000000000000000"),
        (f"seed={5000 * '1'}", "seed"),
        (f"seed={150 * '['}1{150 * ']'}", "nested"),
        (f"{LONG}=1", "unknown key"),
    ],
)
def test_numbers_and_nesting_have_bounds(override: str, said: str) -> None:
    assert said in refused(ConfigError, load_config, "steady", [override])


@pytest.mark.parametrize("name", [LONG, f"{LONG}.yaml", f"{LONG}/x.yaml", "a\0b", "a\0b.yaml"])
def test_a_name_that_no_file_can_have_is_one_line(name: str, tmp_path: Path) -> None:
    refused(ConfigError, load_config, name)
    config = tmp_path / "own.yaml"
    config.write_text(json.dumps({"extends": [name]}))
    refused(ConfigError, load_config, config)
    source = {"kind": "file", "name": "own", "path": name}
    refused(DataError, lambda: task_sources.build(source).task())
    refused(DataError, read_items, Path(name))
    refused(RunError, read_config, Path(name))
    refused(RunError, resume, Path(name))
    if "\0" not in name:
        refused(RunError, lambda: start(toy_config(), Path(name), host=ToyHost()))


def test_a_config_as_large_as_a_book_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("seed: 1\n" + "# much\n" * 300_000)
    assert "the file has 2 MB, at most 1 are read" in refused(ConfigError, load_config, path)


@pytest.mark.parametrize("file", ["/dev/zero", "pipe"])
@pytest.mark.parametrize("ending", ["", ".yaml"])
def test_what_is_no_regular_file_is_not_read(file: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"special{ending}"
    if file == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(file)
    assert "expected a regular file" in refused(DataError, read_items, path)
    refused(ConfigError, load_config, path)
    source = {"kind": "file", "name": "own", "path": str(path)}
    refused(DataError, lambda: task_sources.build(source).task())


# Data.


@pytest.mark.parametrize("key", ["prompt", "target", "family", "depth", "task_id"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("half \ud800", "half a character, in 'half \\ud800'"),
        (2_000_000 * "x", "a text of 2000000 characters, at most 1000000 are read"),
    ],
    ids=["half", "long"],
)
def test_half_a_character_and_a_text_of_megabytes_are_refused_with_their_line(
    key: str, text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    lines = [{**ROW, "prompt": f"{number}+2="} for number in range(3)]
    lines[1][key] = text
    path.write_text("\n".join(map(json.dumps, lines)))
    assert f"{path} line 2: {said}" in refused(DataError, read_items, path)
    if key in ("prompt", "target", "depth"):
        source = {"kind": "file", "name": "own", "path": str(path)}
        assert "line 2: " in refused(DataError, lambda: task_sources.build(source).task())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (900 * "[" + 900 * "]", "nested deeper than 100 levels"),
        (150 * '{"a":' + "1" + 150 * "}", "nested deeper than 100 levels"),
        (100_000 * "[", "nested deeper than 100 levels"),
        (5000 * "1", "Exceeds the limit"),
    ],
)
def test_json_has_bounds(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + text)
    assert "line 2: not JSON" in refused(DataError, read_items, path)


# Hosts.


def test_a_device_that_holds_no_numbers_is_refused() -> None:
    assert "a device that torch can use here, got 'meta'" in refused(HostError, find_device, "meta")
