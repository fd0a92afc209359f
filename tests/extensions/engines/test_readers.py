"""What a run has bred is written for servers, with the words that start and ask them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from said import Symbiont
from servers import FAKES, running
from symbiont_ecology.extensions.engines.readers import LEGAL_RANKS


@pytest.mark.parametrize("kind", FAKES)
def test_an_export_says_how_to_start_and_ask_a_server_that_then_loads_and_answers(
    kind: str, copied: Path, host: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    said = symbiont("export", copied, "--for", kind, "--to", tmp_path / "out", "--elites")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    start = shlex.split(lines[lines.index("start it:") + 1])
    curl = shlex.split(lines[lines.index("ask it:") + 1])
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    flag = {"vllm": "--lora-modules", "sglang": "--lora-paths"}[kind]
    served = dict(word.split("=", 1) for word in start[start.index(flag) + 1 :])
    folders = {one["folder"] for one in (*index["organelles"], *index["elites"])}
    assert {Path(path).name for path in served.values()} == folders
    assert int(start[start.index("--max-lora-rank") + 1]) in (
        LEGAL_RANKS if kind == "vllm" else (1,)
    )
    assert str(host) in start
    body = json.loads(curl[-1])
    assert (body.get("lora_path") or body.get("model")) in served
    assert curl[2].endswith({"vllm": "/v1/completions", "sglang": "/generate"}[kind])
    with running(kind, host=host) as server:  # which refuses what the real one would misread
        for name, path in served.items():
            config = json.loads((Path(path) / "adapter_config.json").read_text())
            server.check_profile(config)
            assert name.rpartition("-")[0] in folders


def test_an_unknown_reader_is_one_line(copied: Path, symbiont: Symbiont) -> None:
    said = symbiont("export", copied, "--for", "vlm")
    assert (said.code, said.error) == (
        2,
        "no reader 'vlm'; did you mean 'vllm'? known: peft, sglang, vllm",
    )
