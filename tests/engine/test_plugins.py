"""What a config may name beside the parts of the package: files of one's own, and old keys."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from runs import resume, start
from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.base.errors import ConfigError, EcologyWarning
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born
from symbiont_ecology.base.registry import knobs, load_plugin
from symbiont_ecology.run.config import dump_config, load_config
from symbiont_ecology.run.open_run import read_config
from toy import ToyHost, toy_config, toy_ecology

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.adapters.operators import operators
from symbiont_ecology.adapters import AdapterWeights


@operators.register("mine")
@dataclass(frozen=True)
class Mine:
    """Scales a parent."""

    factor: float = 0.5  # of the parent
    arity: ClassVar[int] = 1

    def __call__(self, parents, generator):
        (parent,) = parents
        return AdapterWeights(
            parent.layout, parent.rank, self.factor * parent.scaling, parent.vector
        )
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_parts: None) -> Path:
    """A current folder of one's own, with a plug-in and a config that names it."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "own.yaml").write_text("extends: [base]\nplugins: [mine.py]\n")
    monkeypatch.chdir(folder)
    return folder


def test_a_plug_in_of_the_current_folder_registers_its_parts(here: Path) -> None:
    config = load_config("own.yaml")
    assert config.plugins == ("mine.py",)
    assert "mine" in operators.names()
    assert [knob.comment for knob in knobs(operators["mine"])] == ["of the parent"]
    assert load_config("own.yaml") == config  # loaded once: no clash with itself


def test_a_run_uses_the_part_and_resumes(here: Path) -> None:
    load_plugin(Path("mine.py"))
    breeding = {"at": 20_000, "mutation": "mine"}
    strategy = toy_ecology(mechanisms={"breeding": breeding, "refounding": {"least": 4}})
    plan = toy_config(generations=12, strategy=strategy)
    plan = plan.model_copy(update={"plugins": ("mine.py",)})
    start(plan, here / "run", host=ToyHost())
    assert read_config(here / "run") == plan
    provenance = json.loads((here / "run/provenance.json").read_text())
    assert list(provenance["plugins"]) == ["mine.py"]
    children = [
        event
        for event in read_events(here / "run/events.jsonl")
        if isinstance(event, Born) and event.parents
    ]
    assert children
    assert {child.operator for child in children} == {"mine"}
    assert resume(here / "run", overrides=["run.generations=14"], host=ToyHost()).is_complete


def test_a_plug_in_that_was_edited_is_named_and_the_run_goes_on(here: Path) -> None:
    plan = toy_config(generations=4).model_copy(update={"plugins": ("mine.py",)})
    start(plan, here / "run", host=ToyHost(), should_stop=lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume(here / "run", host=ToyHost(), should_stop=lambda: True)
    (here / "mine.py").write_text(PLUGIN.replace("self.factor *", "-self.factor *"))
    with pytest.warns(
        EcologyWarning, match=r"founded with mine\.py [0-9a-f]+, this is mine\.py .*bit by bit"
    ):
        assert resume(here / "run", host=ToyHost()).is_complete


@pytest.mark.parametrize("path", ["../outside.py", "{outside}", "link.py", "gone.py"])
def test_a_plug_in_outside_of_the_current_folder_is_refused(path: str, here: Path) -> None:
    outside = here.parent / "outside.py"
    outside.write_text("raise SystemError('this must not run')\n")
    (here / "link.py").symlink_to(outside)
    with pytest.raises(ConfigError, match="expected a Python file below"):
        load_config("base", [f"plugins=[{path.format(outside=outside)!r}]"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 +", "plug-in gone.py failed: SyntaxError"),
        ("import no_such_module", "plug-in gone.py failed: ModuleNotFoundError"),
        (PLUGIN.replace("(frozen=True)", ""), "failed: TypeError: operator 'mine': Mine must be"),
        (PLUGIN.replace('"mine"', '"svd"'), "operator 'svd' is already"),
    ],
)
def test_a_plug_in_that_does_not_work_is_one_line(text: str, said: str, here: Path) -> None:
    (here / "gone.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config("base", ["plugins=[gone.py]"])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


OLD_AND_NEW = "plasticity", "learning_rule"


@pytest.mark.parametrize(("below", "above"), [OLD_AND_NEW, OLD_AND_NEW[::-1]])
def test_an_old_key_and_a_new_one_are_the_same(below: str, above: str, here: Path) -> None:
    (here / "below.yaml").write_text(
        f"extends: [base]\n{below}: {{kind: policy_gradient, group: 0.3}}\n"
    )
    (here / "above.yaml").write_text(f"extends: [below.yaml]\n{above}: {{group: 0.4}}\n")
    config = load_config("above.yaml")
    assert config.learning_rule == {"kind": "policy_gradient", "group": 0.4}
    (here / "new.yaml").write_text(dump_config(config))
    assert load_config("new.yaml") == config
