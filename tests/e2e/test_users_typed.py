"""Users on the command line: a run, who serves whom, an answer for somebody."""

from __future__ import annotations

import json
from pathlib import Path

from said import Symbiont
from symbiont_ecology import Run


def test_a_run_with_users_says_who_serves_whom(symbiont: Symbiont, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said = symbiont("run", "habitats/town", "run.generations=6", "--out", run, "--quiet")
    assert said.code == 0, said.err
    assert symbiont("export", run).code == 0
    served = json.loads((run / "export" / "users.json").read_text())["users"]
    assert len(served) == 24
    organelles = {user["organelle"] for user in served.values()}
    assert len(organelles) > 1
    index = json.loads((run / "export" / "index.json").read_text())
    assert [int(one["id"][1:]) for one in index["organelles"]] == sorted(
        int(name[1:]) for name in organelles
    )
    assert index["best"] == Run.open(run).best.id  # of those that serve somebody
    for name in organelles:
        mine = sorted(user for user in served if served[user]["organelle"] == name)
        card = (run / "export" / name / "README.md").read_text()
        assert f"- users: {', '.join(f'`{user}`' for user in mine)}\n" in card
    said = symbiont("infer", run, "math.add: 47+8", "--user", "h03")
    assert said.err == f"answered by {served['h03']['organelle']}\n"
    said = symbiont("infer", run, "math.add: 47+8", "--user", "h99")
    assert said.code == 1
    assert "knows no user 'h99'; did you mean 'h" in said.err
    said = symbiont("infer", run, "math.add: 47+8", "--habitat", "h03", "--routing", "host")
    assert said.code == 2
    assert "expected none beside --user" in said.err
    words = ("--shift", "users", "--routing", "user", "--per-cell", "2")
    said = symbiont("evaluate", run, *words)
    assert said.code == 0, said.err
    assert " 48 questions" in said.out
