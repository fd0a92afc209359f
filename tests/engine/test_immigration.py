"""Adapters that were trained elsewhere found a population."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hosts import random_weights
from runs import resume
from symbiont_ecology import HostKernel, Run
from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.errors import AdapterError, ConfigError, EcologyError, EcologyWarning

WORLD = ("base", "tasks.families=[math.add]", "tasks.depths=[short]", "host.rank=4")


@pytest.fixture(scope="module")
def kernel() -> HostKernel:
    return HostKernel.from_pretrained("embedded", slots=4, rank=4)


@pytest.fixture
def folders(kernel: HostKernel, tmp_path: Path) -> list[Path]:
    """Adapters of ranks 4 and 2."""
    found = [tmp_path / f"brought-{rank}" for rank in (4, 2)]
    for folder, rank in zip(found, (4, 2), strict=True):
        kernel.place(0, random_weights(kernel.layout, rank, rank))
        kernel.export(0, folder)
    return found


def immigration(*folders: Path) -> str:
    return f"strategy.mechanisms.immigration.adapters=[{','.join(map(str, folders))}]"


def test_each_adapter_is_a_founder_with_its_own_weights_and_rank(
    kernel: HostKernel, folders: list[Path], tmp_path: Path
) -> None:
    words = (*WORLD, immigration(*folders), "run.generations=0")
    run = Run.start(*words, folder=tmp_path / "run", host=kernel).finish()
    assert list(run.events.Born.operator) == ["immigrant", "immigrant"]
    alive = list(run.population.values())
    assert [one.organelle.genome.rank for one in alive] == [4, 2]
    for one, folder in zip(alive, folders, strict=True):
        brought = read_peft(folder, kernel.layout)
        assert one.weights.scaling == brought.scaling
        np.testing.assert_array_equal(one.weights.vector, brought.vector)


def test_an_adapter_of_another_model_is_told_before_the_host_is_loaded(
    folders: list[Path], tmp_path: Path
) -> None:
    path = folders[0] / "adapter_config.json"
    config = json.loads(path.read_text()) | {"base_model_name_or_path": "Qwen/Qwen2.5-0.5B"}
    path.write_text(json.dumps(config))
    words = (*WORLD, immigration(*folders), "host.model=Qwen/Qwen2.5-1.5B")
    with pytest.warns(EcologyWarning, match="was made for Qwen/Qwen2.5-0.5B, and"):
        Run.start(*words, folder=tmp_path / "run")


def test_a_run_goes_on_without_the_folders(
    kernel: HostKernel, folders: list[Path], tmp_path: Path
) -> None:
    words = (*WORLD, immigration(*folders), "run.generations=1")
    Run.start(*words, folder=tmp_path / "run", host=kernel).finish()
    for folder in folders:
        shutil.rmtree(folder)
    ended = resume(tmp_path / "run", overrides=["run.generations=3"], host=kernel)
    assert ended.is_complete
    assert ended.state.generation == 3


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ("host.rank=2", ConfigError, "host.rank: expected at least 4, the rank of .*brought-4"),
        ("strategy.ranks=6", ConfigError, "expected at most 1 adapters"),
        ("strategy.mechanisms.immigration.adapters=[nowhere]", AdapterError, "nowhere"),
    ],
)
def test_adapters_that_cannot_found_are_refused_in_one_line(
    change: str, kind: type[EcologyError], message: str, folders: list[Path], tmp_path: Path
) -> None:
    def start() -> None:
        run = Run.start(*WORLD, immigration(*folders), change, folder=tmp_path / "run")
        if "ranks" in change:  # the others are found before the host is loaded
            run.finish()

    with pytest.raises(kind, match=message) as caught:
        start()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run/state.json").exists()
