"""A whole run whose questions a server answers, and the same by the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers import FAKES, running
from symbiont_ecology import Run

SMALL = (
    "seed=3",
    "host.rank=2",
    "host.slots=4",
    "tasks.families=[math.add]",
    "tasks.depths=[short]",
    "strategy.questions=2",
    "run.generations=2",
)


@pytest.mark.parametrize("kind", FAKES)
def test_a_run_learns_from_what_a_server_answers(kind: str, tmp_path: Path) -> None:
    with running(kind, slots=6) as server:
        engine = {
            "host.engine.kind": kind,
            "host.engine.url": f"'{server.url}'",
            "host.engine.adapters_folder": str(tmp_path / "adapters"),
            "host.engine.loaded": "6",
        }
        words = [f"{key}={value}" for key, value in engine.items()]
        run = Run.start("steady", *SMALL, *words, folder=tmp_path / "run").finish()
        assert run.is_complete
        assert run.events.GenerationEnded.accuracy.notna().all()
        assert server.names
        assert run.state.population
        tested = run.best.save_peft(tmp_path / "best")
        assert (tested / "adapter_config.json").is_file()
