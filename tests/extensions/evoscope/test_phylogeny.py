"""Phylogenies in the artificial-life data standard: that of a run with births, merges and
refoundings, and those of others."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.ecology import Birth, Decision, EcologyState
from symbiont_ecology.engine.generation import found_population, run_generation
from symbiont_ecology.errors import DataError, RunError
from symbiont_ecology.event_log import EventLog, read_events
from symbiont_ecology.events import Born, Event, GenerationEnded, Resized, Retired
from symbiont_ecology.extensions.evoscope.history import History, Taxon
from symbiont_ecology.extensions.evoscope.phylogeny import (
    COLUMNS,
    phylogeny_record,
    write_phylogeny,
)
from symbiont_ecology.operators import operators
from symbiont_ecology.registry import validate
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.ecology import Ecology
from toy import toy_config, toy_ecology, toy_runtime


@dataclass(frozen=True)
class Wedding(Ecology):
    """An ecology in which the two richest merge, where there is room."""

    def tell(self, context: StrategyContext) -> list[Decision]:
        """What an ecology decides, or a merge in every third generation."""
        state = context.state
        if state.generation % 3 or not 2 <= len(state.population) < self.capacity:
            return super().tell(context)
        rich = sorted(state.population.values(), key=lambda one: -state.ledger.balance(one.id))[:2]
        parents = tuple(one.id for one in rich)
        return [Birth(parents, operators.build("slerp"), "slerp", rich[0].genome.traits)]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Event]:
    """The log of forty generations of weddings."""
    folder = tmp_path_factory.mktemp("weddings")
    fields = {key: value for key, value in toy_ecology(breed_at=16_000).items() if key != "kind"}
    world = replace(
        toy_runtime(folder, toy_config()), strategy=validate(Wedding, fields, "a wedding")
    )
    state, log = EcologyState(3), EventLog(folder / "events.jsonl")
    found_population(state, world, log)
    for _ in range(40):
        run_generation(state, world, log)
    return list(read_events(log.path))


@pytest.fixture(scope="module")
def taxa(events: Sequence[Event]) -> dict[str, Taxon]:
    return History.of(toy_config(), events).taxa


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(row: dict[str, str]) -> list[int]:
    """The ancestors as the standard writes them: a JSON list of ids, or [NONE]."""
    text = row["ancestor_list"]
    return [] if text.lower() == "[none]" else [int(one) for one in json.loads(text)]


def test_the_run_has_founders_births_merges_refoundings_and_deaths(
    events: Sequence[Event], taxa: dict[str, Taxon]
) -> None:
    assert {one.operator for one in taxa.values()} >= {"founder", "svd_noise", "slerp", "refounded"}
    assert {len(one.ancestors) for one in taxa.values()} == {0, 1, 2}
    assert sum(one.died is not None for one in taxa.values()) > 3


def test_every_birth_and_death_of_the_log_is_in_the_phylogeny(
    events: Sequence[Event], taxa: dict[str, Taxon]
) -> None:
    born = {event.id: event for event in events if isinstance(event, Born)}
    died = {event.id: event.generation for event in events if isinstance(event, Retired)}
    assert list(taxa) == list(born)
    assert all(one.born == born[organelle_id].generation for organelle_id, one in taxa.items())
    assert {
        organelle_id: one.died for organelle_id, one in taxa.items() if one.died is not None
    } == died
    assert all(
        taxa[organelle_id].ancestors == event.parents
        for organelle_id, event in born.items()
        if event.parents
    )


def test_as_many_are_alive_in_each_generation_as_the_log_counted(
    events: Sequence[Event], taxa: dict[str, Taxon]
) -> None:
    ended = [event for event in events if isinstance(event, GenerationEnded)]
    assert len({event.population for event in ended}) > 1
    for event in ended:
        alive = [one for one in taxa.values() if one.is_alive(event.generation)]
        assert len(alive) == event.population


def test_the_refounded_descend_from_whoever_had_their_weights_before(
    events: Sequence[Event], taxa: dict[str, Taxon]
) -> None:
    held: dict[str, set[str]] = {}
    refounded = 0
    for event in events:
        if isinstance(event, Born) and event.operator == "refounded":
            (ancestor,) = taxa[event.id].ancestors
            assert ancestor in held[event.weights]
            refounded += 1
        if (weights := getattr(event, "weights", None)) is not None:
            held.setdefault(weights, set()).add(getattr(event, "id", ""))
    assert refounded


def test_who_is_refounded_with_weights_that_were_resized_descends_from_whoever_had_them() -> None:
    events = [
        Born(0, "o1", "founder", (), "small", {}),
        Resized(3, "o1", 4, 1.0, "large"),
        Born(9, "o2", "refounded", (), "large", {}),
    ]
    assert History.of(toy_config(), events).taxa["o2"].ancestors == ("o1",)


def test_the_file_obeys_the_standard(taxa: dict[str, Taxon], tmp_path: Path) -> None:
    write_phylogeny(taxa, tmp_path / "phylogeny.csv")
    lines = rows(tmp_path / "phylogeny.csv")
    assert tuple(lines[0]) == COLUMNS
    assert len({int(line["id"]) for line in lines}) == len(lines) == len(taxa)
    born = {int(line["id"]): int(line["origin_time"]) for line in lines}
    for line in lines:
        number = int(line["id"])
        assert all(
            born[ancestor] <= born[number] and ancestor != number for ancestor in listed(line)
        )
        assert float(line["destruction_time"]) >= born[number] >= 0


def test_a_merge_has_all_its_ancestors_in_the_file(taxa: dict[str, Taxon], tmp_path: Path) -> None:
    write_phylogeny(taxa, tmp_path / "phylogeny.csv")
    for line in rows(tmp_path / "phylogeny.csv"):
        assert [f"o{number}" for number in listed(line)] == list(taxa[f"o{line['id']}"].ancestors)


@pytest.fixture
def systematics() -> Any:
    """Phylotrackpy's class; it has no wheel for Python 3.14."""
    return pytest.importorskip("phylotrackpy.systematics").Systematics


def test_phylotrackpy_reads_the_tree_of_first_parents(
    systematics: Any, taxa: dict[str, Taxon], tmp_path: Path
) -> None:
    write_phylogeny(taxa, tmp_path / "tree.csv", is_tree=True)
    tree = systematics(lambda one: one, True, True, True, False)
    tree.load_from_file(str(tmp_path / "tree.csv"), "operator", False)
    read = {*tree.get_active_taxa(), *tree.get_ancestor_taxa(), *tree.get_outside_taxa()}
    assert len(read) == tree.get_num_taxa() == len(taxa)
    assert {f"o{one.get_id()}" for one in tree.get_active_taxa()} == {
        organelle_id for organelle_id, one in taxa.items() if one.died is None
    }
    for one in read:
        known, parent = taxa[f"o{one.get_id()}"], one.get_parent()
        assert one.get_origination_time() == known.born
        assert one.get_destruction_time() == (float("inf") if known.died is None else known.died)
        assert ([f"o{parent.get_id()}"] if parent else []) == list(known.ancestors[:1])


def test_phylotrackpy_has_no_reader_for_several_ancestors(
    systematics: Any, taxa: dict[str, Taxon], tmp_path: Path
) -> None:
    # Should this fail one day, ``--tree`` has become needless.
    write_phylogeny(taxa, tmp_path / "phylogeny.csv")
    with pytest.raises(RuntimeError, match="only have one parent"):
        systematics(lambda one: one).load_from_file(
            str(tmp_path / "phylogeny.csv"), "operator", False
        )


def test_a_file_that_cannot_be_written_is_one_line_of_error(
    taxa: dict[str, Taxon], tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="cannot write"):
        write_phylogeny(taxa, tmp_path / "nowhere" / "phylogeny.csv")


def test_other_peoples_times_become_steps(tmp_path: Path) -> None:
    path = tmp_path / "tree.csv"
    path.write_text(
        "id,ancestor_list,origin_time,destruction_time\na,[NONE],0.25,1\nb,[a],0.5,inf\n"
    )
    record = phylogeny_record(path)
    lives = {one["id"]: (one["born"], one["died"], one["parents"]) for one in record["organelles"]}
    assert lives == {"a": (0, 1000, ()), "b": (333, None, ("a",))}
    path.write_text('id,ancestor_list\n1,[NONE]\n2,[1]\n3,"[1,2]"\n', encoding="utf-8-sig")
    lives = {
        one["id"]: (one["born"], one["parents"]) for one in phylogeny_record(path)["organelles"]
    }
    assert lives == {"1": (0, ()), "2": (1, ("1",)), "3": (1, ("1", "2"))}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "missing"),
        ("id,ancestor_list\n", "got 0"),
        ("name\nx\n", "ancestor_list and id missing"),
        ("id,ancestor_list\n1,[2]\n2,[1]\n", "a circle"),
        ("id,ancestor_list\n1,[1]\n", "a circle"),
        ("id,ancestor_list,origin_time\n1,[],1e308\n2,[],-1e308\n", "fit on one scale"),
    ],
)
def test_what_is_no_phylogeny_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        phylogeny_record(path)


def test_a_phylogeny_of_phylotrackpy_can_be_read(tmp_path: Path) -> None:
    systematics = pytest.importorskip("phylotrackpy.systematics")
    tracker = systematics.Systematics(lambda name: name)
    first = tracker.add_org("a")
    tracker.set_update(2)
    tracker.add_org("b", first)
    tracker.add_snapshot_fun(lambda taxon: taxon.get_info(), "taxon_info")
    tracker.snapshot(str(tmp_path / "theirs.csv"))
    record = phylogeny_record(tmp_path / "theirs.csv")
    assert [(one["id"], one["parents"], one["born"]) for one in record["organelles"]] == [
        ("1", (), 0),
        ("2", ("1",), 2),
    ]
