"""Any runs as a suite: what an arm is depends on its config, never on how its runs came out or were
typed."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from runs import start
from symbiont_ecology.base.config_layers import merge
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.extensions.study import adhoc
from symbiont_ecology.extensions.study.adhoc import gather
from symbiont_ecology.extensions.study.outcomes import SystemAnswers
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import CONFIG_FILE
from symbiont_ecology.run.provenance import write_config
from towns import config as town
from toy import ToyHost, toy_config, toy_ecology


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An ecology and a single adapter, two seeds each."""
    folder, found = tmp_path_factory.mktemp("runs"), []
    for name, strategy in (
        ("ecology", toy_ecology()),
        ("single", {"kind": "single", "learning_rate": 0.1}),
    ):
        for seed in (0, 1):
            found.append(folder / f"{name}-{seed}")
            start(toy_config(seed, 6, strategy=strategy), found[-1], host=ToyHost())
    return found


def test_who_answers_does_not_depend_on_the_order_nor_on_what_came_of_the_runs(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LoadedRun.of_run

    def of_run(folder: Path) -> LoadedRun:
        """One seed of the ecology ended with a single elite."""
        found = whole(folder)
        if folder.name != "ecology-0":
            return found
        return replace(found, pool=replace(found.pool, elites=found.pool.elites[:1]))

    monkeypatch.setattr(LoadedRun, "of_run", of_run)
    for order in (runs, runs[::-1]):
        protocol, _ = gather(order, ("in-distribution",), 5, "any")
        routings = {name: arm.routing for name, arm in protocol.arms.items()}
        assert routings == {"ecology": "learned", "single": "single"}


def test_tables_say_how_many_gold_examples_a_warm_arm_saw(tmp_path: Path) -> None:
    for name, warm in (("warm", 2), ("cold", 0)):
        strategy = {"kind": "single", "learning_rate": 0.1, "warm": warm}
        start(toy_config(0, 3, strategy=strategy), tmp_path / name, host=ToyHost())
    folders = [tmp_path / "warm", tmp_path / "cold"]
    protocol, _ = gather(folders, ("in-distribution",), 5, "any")
    seen = {arm.about.rpartition("/")[2]: arm.sees for arm in protocol.arms.values()}
    assert seen == {"warm": "verdicts, 2 gold examples per cell", "cold": "verdicts"}


def test_users_are_asked_through_their_own_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adhoc, "host_of", lambda config: ToyHost())
    for name, strategy in (
        ("many", {"kind": "per_user", "learning_rate": 0.1}),
        ("one", {"kind": "single", "learning_rate": 0.1}),
    ):
        start(town(strategy, length=3, drift_at=3), tmp_path / name, host=ToyHost())
    folders = [tmp_path / "many", tmp_path / "one"]
    protocol, arms = gather(folders, ("users",), 2, "any")
    routings = {name: arm.routing for name, arm in protocol.arms.items()}
    assert routings == {"per_user": "user", "single": "single"}
    _, many, one = adhoc.ask(protocol, arms)
    (run,) = arms["per_user"]
    alone = run.evaluate(run.items(2, ("users",)), ToyHost(), "user")
    assert many.legs[0].systems["user"] == SystemAnswers.of(alone)
    assert many.legs[0].systems["user"].organelles > 1
    assert one.legs[0].systems["single"].organelles == 1


def test_a_seed_that_an_arm_has_twice_is_named_with_its_folders(
    runs: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(runs[1], tmp_path / "again")
    folders = [*runs, tmp_path / "again"]
    line = f"arm 'ecology' has seed 1 twice, in {runs[1]} and {tmp_path / 'again'}: leave one of"
    with pytest.raises(ConfigError, match=re.escape(line)):
        gather(folders, ("in-distribution",), 5, "any")


def test_towns_of_two_seeds_have_no_users_in_common(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        start(town(seed=seed, length=3), folder, host=ToyHost())
    with pytest.raises(ConfigError, match="users: expected runs of one seed, got seeds 0, 1"):
        gather(folders, ("users",), 5, "any")
    with pytest.raises(ConfigError, match="routers answer in-distribution: ask users alone"):
        gather(folders, ("in-distribution", "users"), 5, "any")
    _, arms = gather(folders, ("in-distribution",), 5, "any")
    assert len(arms["ecology"]) == 2


def test_who_looks_on_makes_no_arm_of_its_own(runs: list[Path], tmp_path: Path) -> None:
    looks_on = {"run": {"report_to": ["tensorboard"], "transcripts": 0.5}, "executor": "ray"}
    for folder in (one := tmp_path / "one", other := tmp_path / "other"):
        shutil.copytree(runs[folder is other], folder)
    config = toy_config(1, 6, strategy=toy_ecology())
    told = merge(config.model_dump(mode="json"), looks_on)
    write_config(RunConfig.model_validate(told), other / CONFIG_FILE)
    _, arms = gather([one, other], ("in-distribution",), 5, "any")
    assert [run.folder for run in arms["ecology"]] == [one, other]
