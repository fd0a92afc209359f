"""What a run has bred goes elsewhere, however its host was opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from hosts import add_chat_template, make_host
from said import Symbiont


def test_what_an_adapter_is_asked_behind_is_told_with_it(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["run", "ga-gpt2", "run.generations=1", "strategy.questions=1", "--quiet"]
    said = symbiont(*words, "strategy.phrases=['#1 ', '#2 ']", "--out", run)
    assert said.code == 0, said.err
    assert symbiont("export", run).code == 0
    index = json.loads((run / "export" / "index.json").read_text())
    for one in index["organelles"]:
        assert one["phrase"] in ("#1 ", "#2 ")
        card = (run / "export" / one["folder"] / "README.md").read_text()
        assert f"behind '{one['phrase']}'" in card


def test_an_adapter_that_is_scaled_is_scaled_in_peft_too(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    host, run = make_host(tmp_path / "host", layers=1), tmp_path / "run"
    words = ["steady_frozen", f"host.model={host}", "host.rank=2", "run.generations=1"]
    assert symbiont("run", *words, "--out", run, "--quiet").code == 0

    def exported(*scale: object) -> dict[str, torch.Tensor]:
        """ΔW of the best adapter as PEFT reads it, by module."""
        to = tmp_path / f"export{len(scale)}"
        assert symbiont("export", run, "--to", to, *scale).code == 0
        best = json.loads((to / "index.json").read_text())["best"]
        assert ("multiplied by 0.65" in (to / best / "README.md").read_text()) == bool(scale)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(host), to / best)
        layers = (m for m in model.modules() if hasattr(m, "get_delta_weight"))
        return {str(n): layer.get_delta_weight("default") for n, layer in enumerate(layers)}

    whole, scaled = exported(), exported("--scale", "0.65")
    assert whole
    for name, delta in whole.items():
        assert delta.abs().max() > 0
        torch.testing.assert_close(scaled[name], 0.65 * delta)
    assert symbiont("export", run, "--out", tmp_path / "again").code == 0
    assert (tmp_path / "again" / "index.json").exists()
    assert symbiont("export", run, "--scale", "0").error.startswith("--scale: expected more than 0")


@pytest.mark.parametrize(
    "opened",
    [
        pytest.param(["tasks.style={kind: natural, is_chat: true}"], id="chat template"),
        pytest.param(["tasks.style={kind: few_shot, is_chat: true}"], id="chat with examples"),
        pytest.param(["host.dtype=bfloat16"], id="another dtype"),
    ],
)
def test_a_run_is_exported_on_the_host_that_it_was_made_with(
    opened: list[str], symbiont: Symbiont, tmp_path: Path
) -> None:
    host, run = add_chat_template(make_host(tmp_path / "host", layers=1)), tmp_path / "run"
    words = [f"host.model={host}", "host.rank=2", "tasks.families=[math.add]", *opened]
    said = symbiont("run", "base", *words, "run.generations=1", "--out", run, "--quiet")
    assert said.code == 0, said.err
    said = symbiont("export", run)
    assert said.code == 0, said.err
    index = json.loads((run / "export" / "index.json").read_text())
    assert (run / "export" / index["best"] / "adapter_model.safetensors").is_file()
    card = (run / "export" / index["best"] / "README.md").read_text()
    assert ("through the model's chat template" in card) == ("is_chat" in opened[0])
    assert index["elites"] == []
    said = symbiont("export", run, "--elites", "--to", tmp_path / "all")
    assert said.code == 0, said.err
    index = json.loads((tmp_path / "all" / "index.json").read_text())
    for elite in index["elites"]:
        assert (tmp_path / "all" / elite["folder"] / "adapter_config.json").is_file()
        card = (tmp_path / "all" / elite["folder"] / "README.md").read_text()
        assert all(f"`{cell}`" in card for cell in elite["holds"])
    folders = {path.name for path in (tmp_path / "all").iterdir() if path.is_dir()}
    assert folders == {one["folder"] for one in (*index["organelles"], *index["elites"])}
