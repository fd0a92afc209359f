"""An adapter with its card is made ready for a hub, and sent only where that is asked for."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml

from lines import jsonl
from said import Symbiont

FILES = {"README.md", "adapter_config.json", "adapter_model.safetensors", "config.yaml"}
BASE = ["--base-model", "someone/model", "--per-cell", 4]


class FakeHub:
    """A hub in a folder, with the verbs of the real client that are used."""

    home = Path()
    refuses = False

    def __init__(self, library_name: str) -> None:
        self.library = library_name

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        """Makes a repository."""
        assert exist_ok
        if self.refuses:
            raise OSError("401 Unauthorized")
        (self.home / repo_id).mkdir(parents=True, exist_ok=True)
        (self.home / "private.json").write_text(json.dumps(private))
        return f"hub:{repo_id}"

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], commit_message: str
    ) -> None:
        """Takes the files of a folder that are allowed."""
        assert commit_message
        for name in allow_patterns:
            shutil.copy(folder_path / name, self.home / repo_id / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeHub]:
    """A hub that takes everything."""
    monkeypatch.setattr(FakeHub, "home", tmp_path / "hub")
    monkeypatch.setattr(FakeHub, "refuses", False)
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    return FakeHub


def told(folder: Path) -> dict[str, Any]:
    """The figures beside a card."""
    return json.loads((folder / "measured.json").read_text())


def test_a_dry_run_writes_the_folder_prints_the_card_and_sends_nothing(
    symbiont: Symbiont, copied: Path, host: Path, hub: type[FakeHub]
) -> None:
    said = symbiont("publish", copied, "me/mine", *BASE)
    assert said.code == 0, said.err
    assert not hub.home.exists()
    (folder,) = (copied / "publish").iterdir()
    assert {path.name for path in folder.iterdir()} == {*FILES, "measured.json"}
    card, figures = (folder / "README.md").read_text(), told(folder)
    assert card in said.out
    typed = f"publish --push {copied} me/mine --base-model someone/model --per-cell 4"
    assert f"nothing was sent: symbiont {typed} sends it" in said.out
    front = yaml.safe_load(card.split("---")[1])
    assert front["base_model"] == "someone/model"
    assert figures["questions"] == 8
    for name in ("host", "adapter"):
        share = figures[name]["accuracy"]
        shown = [f"{100 * share[end]:.1f}" for end in ("estimate", "low", "high")]
        assert f"{shown[0]} [{shown[1]}, {shown[2]}]" in card
    assert figures["host"]["questions_digest"] in card
    assert "the same 8 questions" in card
    assert "the run's holdout questions" in card
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert f"seed {config['seed']}, after 4 generations" in card
    texts = [path.read_text() for path in folder.iterdir() if path.suffix != ".safetensors"]
    assert not any(str(place) in text for text in texts for place in (host, copied))


def test_what_is_private_in_the_config_of_a_run_stays_here(
    symbiont: Symbiont, small: list[str], holdout: Path, tmp_path: Path
) -> None:
    place = tmp_path / "acme-private"
    place.mkdir()
    rows = [{"prompt": f"say {number}", "completion": f"<{number}>"} for number in range(60)]
    data = jsonl(place / "mine.jsonl", rows)
    changes = [
        f"tasks={{families: [{{kind: file, name: mine, path: {data}}}], depths: null}}",
        f"run.final_holdout={holdout}",
        "run.generations=1",
    ]
    run = tmp_path / "run"
    assert symbiont("run", "steady", *small, *changes, "--out", run, "--quiet").code == 0
    said = symbiont("publish", run, "me/mine", *BASE)
    assert said.code == 0, said.err
    (published,) = run.glob("publish/*/config.yaml")
    assert str(tmp_path) not in published.read_text()
    config = yaml.safe_load(published.read_text())
    assert config["tasks"]["sources"] == [{"kind": "file", "name": "mine", "path": "mine.jsonl"}]
    assert config["run"]["final_holdout"] == "holdout.jsonl"
    assert config["run"]["generations"] == 1


def test_push_sends_these_files_and_nothing_else(
    symbiont: Symbiont, copied: Path, holdout: Path, hub: type[FakeHub], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret.txt").write_text("mine")
    words = ["--to", tmp_path / "out", "--holdout", holdout, "--push"]
    said = symbiont("publish", copied, "me/mine", *BASE, *words)
    assert said.code == 0, said.err
    assert said.out.endswith("sent: hub:me/mine\n")
    sent = {path.name for path in (hub.home / "me" / "mine").iterdir()}
    assert sent == {*FILES, "measured.json"}
    assert json.loads((hub.home / "private.json").read_text()) is True
    assert "`holdout.jsonl`, hash `" in (hub.home / "me/mine/README.md").read_text()
    assert symbiont("publish", copied, "me/mine", *BASE, "--push", "--public").code == 0
    assert json.loads((hub.home / "private.json").read_text()) is False


def test_a_hub_that_refuses_is_one_line(
    symbiont: Symbiont, copied: Path, hub: type[FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "refuses", True)
    said = symbiont("publish", copied, "me/mine", *BASE, "--push")
    assert said.code == 1
    assert "the hub did not take me/mine: 401 Unauthorized" in said.err


def test_a_hub_that_cannot_be_reached_is_one_line(
    symbiont: Symbiont, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = partial(huggingface_hub.HfApi, endpoint="http://127.0.0.1:9", token="none")
    monkeypatch.setattr(huggingface_hub, "HfApi", nowhere)
    said = symbiont("publish", copied, "me/mine", *BASE, "--push")
    assert said.code == 1
    assert "the hub did not take me/mine: [Errno 111] Connection refused" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine"], "expected OWNER/NAME as the repository, got 'mine'"),
        (["me/mine"], "--base-model OWNER/NAME"),
        (["me/mine", *BASE, "--organelle", "nobody"], "expected somebody alive, got 'nobody'"),
        (["me/mine", *BASE, "--public"], "expected --push beside it"),
    ],
)
def test_what_cannot_be_published_is_one_line(
    words: list[object], message: str, symbiont: Symbiont, lived: Path
) -> None:
    said = symbiont("publish", lived, *words)
    assert said.code in (1, 2)
    assert message in said.error
