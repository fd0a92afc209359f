"""Every command that writes is killed at a write and typed again: it leaves the bytes of one that
was left alone.

``serve``, ``suite`` and ``sft`` are killed in ``test_serve.py``, ``test_suite.py`` and
``test_sft.py``; ``test_resume_kill.py`` kills one run at many moments.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from killing import contents, writes_of
from symbiont_ecology.base.rng import Draw

SMALL = "host.rank=2 'host.targets=[q_proj,v_proj]' run.checkpoint_every=2 "
ECOLOGY = (
    f"base {SMALL} 'tasks.families=[math.add,word.count]' 'tasks.depths=[short]' "
    "strategy.questions=2 "
)
RUN = f"run {ECOLOGY} run.generations=6 -q --out "
COMMANDS = {
    "run": f"{RUN} work",
    "resume": "resume half run.generations=6 -q",
    "calibrate": f"calibrate {ECOLOGY} --generations 4 --full 6 --out work -q",
    "evolve": f"evolve {SMALL} 'strategy.ranks=[1,2]' --quick-test --out work -q",
    "learn-from": f"learn-from logs/thumbs.jsonl {SMALL} run.generations=4 --out work -q",
    "compare": "compare run other --per-cell 2 --json out.json",
    "pack": "pack run other --per-cell 1 --out packs/runs",
    "export": "export run --elites",
    "evaluate": "evaluate run --per-cell 2 --json out.json",
}
GO_ON = {"run": "resume work -q", "evolve": "evolve --resume work -q"}
"""Words that are typed after a kill once there is a config; otherwise the command is repeated."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two whole runs, and one that has lived half of its time."""
    folder = tmp_path_factory.mktemp("world") / "runs"
    folder.mkdir()
    for words in (f"{RUN} run", f"{RUN} other seed=1", f"{RUN} half run.generations=3"):
        writes_of(shlex.split(words), folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_and_typed_again_leaves_the_same_bytes(
    name: str, world: Path, tmp_path: Path
) -> None:
    words = shlex.split(COMMANDS[name])
    alone, place = (
        Path(shutil.copytree(world, tmp_path / kind / "place")) for kind in ("alone", "killed")
    )
    count = writes_of(words, alone)
    writes_of(words, place, kill_at=int(Draw(0)("kill", name).integers(1, count + 1)))
    if name in GO_ON and (place / "work" / "config.yaml").exists():
        words = shlex.split(GO_ON[name])
    writes_of(words, place)
    assert contents(place) == contents(alone)
