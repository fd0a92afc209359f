"""What a run has bred is written for servers, with the words that start and ask them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.adapters.peft_files import GROUPS, read_peft
from symbiont_ecology.extensions.engines.readers import LEGAL_RANKS
from symbiont_ecology.model.kernel import HostKernel


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_export_says_how_to_start_a_server_that_can_read_it(
    kind: str, copied: Path, host: Path, symbiont: Symbiont, tmp_path: Path
) -> None:
    said = symbiont("export", copied, "--for", kind, "--to", tmp_path / "out", "--elites")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    start = shlex.split(lines[lines.index("start it:") + 1])
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    flag = {"vllm": "--lora-modules", "sglang": "--lora-paths"}[kind]
    served = dict(word.split("=", 1) for word in start[start.index(flag) + 1 :])
    folders = {one["folder"] for one in (*index["organelles"], *index["elites"])}
    assert {Path(path).name for path in served.values()} == folders
    assert int(start[start.index("--max-lora-rank") + 1]) in (
        LEGAL_RANKS if kind == "vllm" else (1,)
    )
    assert str(host) in start
    layout = HostKernel.from_pretrained(host, slots=1).layout
    for name, path in served.items():
        assert read_peft(path, layout).rank == 1
        assert name.rpartition("-")[0] in folders
        # SGLang reads no patterns, bare endings alone, and whole groups of them.
        config = json.loads((Path(path) / "adapter_config.json").read_text())
        assert not any(config[name] for name in ("use_rslora", "rank_pattern", "alpha_pattern"))
        assert not any("." in target for target in config["target_modules"])
        for group in GROUPS:
            assert set(group) & set(config["target_modules"]) in (set(), set(group))


def test_an_unknown_reader_is_one_line(copied: Path, symbiont: Symbiont) -> None:
    said = symbiont("export", copied, "--for", "vlm")
    assert (said.code, said.error) == (
        2,
        "no reader 'vlm'; did you mean 'vllm'? known: llama.cpp, ollama, peft, sglang, vllm",
    )
