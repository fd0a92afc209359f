"""Words typed at the command line, in this process: a whole host, real files, the real exit
code."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from command_fixtures import host, lived, small, symbiont  # noqa: F401
from said import Said, Symbiont
from seen import eventful_plan, lived_to_its_end, users_plan, with_hostile_replies

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def copied(lived: Path, tmp_path: Path) -> Path:  # noqa: F811
    """The complete run, to be changed."""
    return Path(shutil.copytree(lived, tmp_path / "run"))


@pytest.fixture
def holdout(tmp_path: Path) -> Path:
    """Two questions in a file that somebody else wrote."""
    path = tmp_path / "holdout.jsonl"
    rows = [
        {
            "prompt": "math.add: 12+7\n",
            "target": "=19",
            "family": "math.add",
            "depth": "short",
            "task_id": "a",
        },
        {"prompt": "capital of France?\n", "target": "Paris", "family": "trivia", "depth": "short"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Symbiont:
    """Runs a script in this process."""

    def type_in(name: str, *words: object) -> Said:
        monkeypatch.syspath_prepend(SCRIPTS)
        monkeypatch.setattr(sys, "argv", [f"scripts/{name}.py", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return type_in


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by what is to be seen in them."""
    folder = tmp_path_factory.mktemp("runs")
    found = {
        "eventful": lived_to_its_end(folder / "eventful", eventful_plan()),
        "users": with_hostile_replies(lived_to_its_end(folder / "users", users_plan())),
        "single": lived_to_its_end(folder / "single", users_plan({"kind": "single"})),
        "begun": lived_to_its_end(folder / "begun", users_plan(generations=0)),
    }
    (folder / "family.csv").write_text(
        "id,ancestor_list,origin_time,destruction_time\n"
        '1,[NONE],0,inf\n2,[1],1,3.5\n3,"[1,2]",3,inf\n'
    )
    return {**found, "phylogeny": folder / "family.csv"}
