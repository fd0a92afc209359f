"""What a log says of a run: every number of it is that of its events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from seen import users_plan
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, GenerationEnded
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.evoscope.history import Frames, History
from symbiont_ecology.run.open_run import read_config
from symbiont_ecology.run.run import Run
from toy import ToyHost


@pytest.fixture(params=["eventful", "users"])
def folder(request: pytest.FixtureRequest, seen: dict[str, Path]) -> Path:
    return seen[request.param]


def test_energy_adds_up_after_every_generation(folder: Path) -> None:
    history = History(read_config(folder))
    for event in read_events(folder / "events.jsonl"):
        history.add(event)
        if isinstance(event, GenerationEnded):
            assert sum(history.flows.balances.values()) == event.energy_total
    assert history.flows.balances == load_state(folder).ledger.balances
    assert "dowry" in {transfer.kind for transfer in history.flows.transfers}


def test_acts_are_all_the_practice_there_was(folder: Path) -> None:
    history = History.of_run(folder)
    events = read_events(folder / "events.jsonl")
    asked = [one for one in events if isinstance(one, Acted) and one.purpose == "practice"]
    assert sum(act.asked for act in history.acts) == sum(len(one.verdicts) for one in asked)
    assert sum(act.right for act in history.acts) == sum(sum(one.verdicts) for one in asked)
    assert history.whole_acts == history.acts
    assert history.answered(5).asked == sum(a.asked for a in history.acts if a.generation >= 5)


def test_ranks_holders_and_servers_end_as_the_state_does(folder: Path) -> None:
    history, state = History.of_run(folder), load_state(folder)
    for organelle_id, organelle in state.population.items():
        assert history.ranks[organelle_id][-1][1] == organelle.genome.rank
    servers = {change.user: change.id for change in history.servings}
    assert servers == {name: user.server for name, user in state.users.items()}


def test_the_chronicle_tells_every_birth_death_trial_and_move(folder: Path) -> None:
    history = History.of_run(folder)
    told = Counter(one.kind for one in history.chronicle.news)
    taxa = history.taxa.values()
    assert told["birth"] + told["merge"] == len(taxa)
    assert told["death"] == sum(taxon.died is not None for taxon in taxa)
    ended = [trial for trial in history.trials.values() if trial.ended is not None]
    assert told["trial"] == len(history.trials) + len(ended)
    for one in history.chronicle.news:
        assert one.text.endswith(".")
        assert not set(one.organelles) - {*history.taxa, *history.trials}
    assert told["trial"] or told["move"]


def test_a_log_that_is_read_in_pieces_tells_the_same(folder: Path) -> None:
    whole, pieces = History.of_run(folder), History(read_config(folder))
    for event in read_events(folder / "events.jsonl"):
        pieces.add(event)
    assert pieces.chronicle.news == whole.chronicle.news
    assert pieces.acts == whole.acts
    assert pieces.flows.transfers == whole.flows.transfers


def test_a_history_follows_a_run_that_lives(tmp_path: Path) -> None:
    run = Run.start(users_plan(generations=3), folder=tmp_path / "run", host=ToyHost())
    history, seen = History(run.config, run.folder), []
    assert history.read_on().generation == 0
    for _ in run:
        history = history.read_on()
        seen.append((history.generation, history.event_count))
    assert [generation for generation, _ in seen] == [1, 2, 3]
    assert history.event_count == History.of_run(run.folder).event_count


def test_the_world_says_what_it_did(seen: dict[str, Path]) -> None:
    history = History.of_run(seen["users"])
    (world,) = (one for one in history.news() if one.kind == "world")
    assert world.generation == 25
    assert world.places
    texts = [one.text for one in History.of_run(seen["eventful"]).news() if one.kind == "world"]
    assert len(texts) == 2


def test_every_generation_belongs_to_one_frame_and_ends_are_in_order() -> None:
    for generations in (0, 1, 5, 599, 600, 601, 3000, 12345):
        for most in (5, 600):
            frames = Frames.of(generations, most)
            assert frames.count == len(frames.ends) <= most
            owners = [frames.at(generation) for generation in range(generations)]
            assert owners == sorted(owners)
            assert [frames.at(end) for end in frames.ends] == list(range(frames.count))
