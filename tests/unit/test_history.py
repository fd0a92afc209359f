"""What a log says of a run: every number of it is that of its events."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from seen import eventful_plan, lived_to_its_end, users_plan
from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, GenerationEnded
from symbiont_ecology.history.history import History, read_history
from symbiont_ecology.history.world import kinds_of, world_news
from symbiont_ecology.transcripts import read_transcripts


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived_to_its_end(tmp_path_factory.mktemp("eventful") / "run", eventful_plan())


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived_to_its_end(tmp_path_factory.mktemp("users") / "run", users_plan())


@pytest.fixture(params=["eventful", "users"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_energy_adds_up_after_every_generation(folder: Path) -> None:
    history = History.of(read_config(folder))
    for event in read_events(folder / "events.jsonl"):
        history.add(event)
        if isinstance(event, GenerationEnded):
            assert sum(history.flows.balances.values()) == event.energy_total
    assert history.flows.balances == load_state(folder).ledger.balances
    kinds = {transfer.kind for transfer in history.flows.transfers}
    assert "dowry" in kinds


def test_prices_are_those_that_were_paid(folder: Path) -> None:
    history = read_history(folder)
    paid = {
        (one.generation, one.id, one.cell, one.habitat): one.price
        for one in read_transcripts(folder / "transcripts.jsonl").transcripts
        if one.purpose == "practice"
    }
    assert paid
    for act in history.acts:
        assert math.floor(act.price) == paid[act.generation, act.id, act.cell, act.habitat]


def test_acts_are_all_the_practice_there_was(folder: Path) -> None:
    history = read_history(folder)
    events = read_events(folder / "events.jsonl")
    asked = [one for one in events if isinstance(one, Acted) and one.purpose == "practice"]
    assert sum(act.asked for act in history.acts) == sum(len(one.verdicts) for one in asked)
    assert sum(act.right for act in history.acts) == sum(sum(one.verdicts) for one in asked)


def test_ranks_holders_and_servers_end_as_the_state_does(folder: Path) -> None:
    history, state = read_history(folder), load_state(folder)
    for organelle_id, organelle in state.population.items():
        assert history.rank(organelle_id, history.generation) == organelle.genome.rank
    servers = {change.habitat: change.id for change in history.servings}
    assert servers == {name: habitat.server for name, habitat in state.habitats.items()}


def test_the_chronicle_tells_every_birth_death_trial_and_move(eventful: Path, users: Path) -> None:
    for folder in (eventful, users):
        history = read_history(folder)
        told = Counter(one.kind for one in history.chronicle.news)
        taxa = history.phylogeny.taxa.values()
        assert told["birth"] + told["merge"] == len(taxa)
        assert told["death"] == sum(taxon.died is not None for taxon in taxa)
        ended = [trial for trial in history.trials.values() if trial.ended is not None]
        assert told["trial"] == len(history.trials) + len(ended)
        for one in history.chronicle.news:
            assert one.text.endswith(".")
            assert not set(one.organelles) - {*history.phylogeny.taxa, *history.trials}
    assert read_history(eventful).trials
    assert "move" in {one.kind for one in read_history(users).chronicle.news}


def test_a_bankruptcy_says_what_was_earned_and_spent(eventful: Path) -> None:
    history = read_history(eventful)
    told = [one for one in history.chronicle.news if "bankrupt" in one.text]
    assert told
    for one in told:
        assert "earned" in one.text
        assert "spent" in one.text


def test_a_log_that_is_read_in_pieces_tells_the_same(folder: Path) -> None:
    config, events = read_config(folder), list(read_events(folder / "events.jsonl"))
    whole, pieces = History.of(config, events), History.of(config)
    for event in events:
        pieces.add(event)
    assert pieces.chronicle.news == whole.chronicle.news
    assert pieces.acts == whole.acts
    assert pieces.flows.transfers == whole.flows.transfers


def test_the_world_says_who_changed_their_mind(users: Path) -> None:
    history, config = read_history(users), read_config(users)
    kinds = kinds_of(config, history.generation)
    moved = {change.habitat for change in kinds if change.generation == 25}
    (news,) = world_news(config, kinds, history.ends)
    assert news.generation == 25
    assert set(news.places) == moved != set()


def test_the_world_says_when_what_is_right_changed(eventful: Path) -> None:
    config: RunConfig = read_config(eventful)
    history = read_history(eventful)
    told = world_news(config, kinds_of(config, history.generation), history.ends)
    assert sum("counts as right changes" in one.text for one in told) == 1
    assert sum("does so again" in one.text for one in told) == 1
    assert sum("catastrophe" in one.text for one in told) == 2
