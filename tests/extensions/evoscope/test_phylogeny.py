"""Phylogenies in the artificial-life data standard: that of a run with births, merges and
refoundings, and those of others."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Event, GenerationEnded, Resized, Retired
from symbiont_ecology.extensions.evoscope.history import History, Taxon
from symbiont_ecology.extensions.evoscope.phylogeny import COLUMNS, write_phylogeny
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.config import TasksConfig

CONFIG = RunConfig(tasks=TasksConfig(families=("unknown",)))


@pytest.fixture(scope="module")
def events(seen: dict[str, Path]) -> Sequence[Event]:
    return list(read_events(seen["eventful"] / "events.jsonl"))


@pytest.fixture(scope="module")
def taxa(events: Sequence[Event]) -> dict[str, Taxon]:
    return History.of(CONFIG, events).taxa


def listed(row: dict[str, str]) -> list[int]:
    """The ancestors as the standard writes them: a JSON list of ids, or [NONE]."""
    text = row["ancestor_list"]
    return [] if text.lower() == "[none]" else [int(one) for one in json.loads(text)]


def test_every_birth_and_death_of_the_log_is_in_the_phylogeny(
    events: Sequence[Event], taxa: dict[str, Taxon]
) -> None:
    born = {event.id: event for event in events if isinstance(event, Born)}
    died = {event.id: event.generation for event in events if isinstance(event, Retired)}
    assert list(taxa) == list(born)
    for name, taxon in taxa.items():
        assert taxon.born == born[name].generation
        assert taxon.died == died.get(name)
        assert taxon.ancestors == born[name].parents or not born[name].parents
    assert {len(taxon.ancestors) for taxon in taxa.values()} == {0, 1, 2}
    for event in events:
        if isinstance(event, GenerationEnded):
            born = sum(one.born <= event.generation for one in taxa.values())
            gone = sum(at <= event.generation for at in died.values())
            assert born - gone == event.population


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
    resized = [
        Born(0, "o1", "founder", (), "small", {}),
        Resized(3, "o1", 4, 1.0, "large"),
        Born(9, "o2", "refounded", (), "large", {}),
    ]
    assert History.of(CONFIG, resized).taxa["o2"].ancestors == ("o1",)


def test_the_file_obeys_the_standard_and_has_all_ancestors_of_a_merge(
    taxa: dict[str, Taxon], tmp_path: Path
) -> None:
    write_phylogeny(taxa, tmp_path / "phylogeny.csv")
    with (tmp_path / "phylogeny.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert len({int(line["id"]) for line in lines}) == len(lines) == len(taxa)
    born = {int(line["id"]): int(line["origin_time"]) for line in lines}
    for line in lines:
        number, ancestors = int(line["id"]), listed(line)
        assert all(born[one] <= born[number] and one != number for one in ancestors)
        assert [f"o{one}" for one in ancestors] == list(taxa[f"o{number}"].ancestors)
        assert float(line["destruction_time"]) >= born[number] >= 0
    with pytest.raises(RunError, match="cannot write"):
        write_phylogeny(taxa, tmp_path / "nowhere" / "phylogeny.csv")


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
    for one in read:
        known, parent = taxa[f"o{one.get_id()}"], one.get_parent()
        assert one.get_origination_time() == known.born
        assert one.get_destruction_time() == (float("inf") if known.died is None else known.died)
        assert ([f"o{parent.get_id()}"] if parent else []) == list(known.ancestors[:1])
    write_phylogeny(taxa, tmp_path / "whole.csv")
    # Should this read several ancestors one day, ``--tree`` has become needless.
    with pytest.raises(RuntimeError, match="only have one parent"):
        systematics(lambda one: one).load_from_file(str(tmp_path / "whole.csv"), "operator", False)
