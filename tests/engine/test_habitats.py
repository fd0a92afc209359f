"""Worlds with habitats: one stream for all, memory, foraging; nothing lost, nothing by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logs import ECOLOGY, FORAGING, RICH
from symbiont_ecology.config import HabitatsConfig, RunConfig
from symbiont_ecology.ecology import Genome, Organelle
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.habitats import MOST_ANSWERS, Habitat, RememberedAnswer
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.engine.build import mixture
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.shifts import draw_shifts
from symbiont_ecology.events import (
    Acted,
    Archived,
    Born,
    Event,
    Retired,
    Served,
    Settled,
    read_events,
)
from symbiont_ecology.strategies.mechanisms.foraging import Settlement
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.habitats import SyntheticHabitats
from symbiont_ecology.tasks.splits import split_of
from symbiont_ecology.types import turns
from toy import Crash, ToyHost, toy_config, toy_prices

FAMILIES = ("math.add", "string.sort", "logic.bool", "string.reverse")
GENERATIONS = 30
CONTROLS = ("single", "per_habitat", "told", "ifca", "clove", "nearest", "bank", "neutral")


def config(
    strategy: Any = None, seed: int = 0, length: int = GENERATIONS, **world: Any
) -> RunConfig:
    """A small town on the toy host."""
    plan = toy_config(
        seed,
        length,
        FAMILIES,
        RICH,
        checkpoint_every=4,
        strategy=strategy or ECOLOGY,
        learning_rule={"kind": "expert_iteration", "skip": 0.0, "replay": 1.0},
    )
    habitats = HabitatsConfig(**{"count": 12, "kinds": 3, "questions": 12, **world})
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"habitats": habitats})})


def lived(folder: Path, plan: RunConfig) -> tuple[EcologyState, list[Event]]:
    state = start(plan, folder, host=ToyHost()).state
    return state, list(read_events(folder / "events.jsonl"))


def world_of(plan: RunConfig) -> SyntheticHabitats:
    world = mixture(plan).habitats
    assert isinstance(world, SyntheticHabitats)
    return world


def asked(events: list[Event]) -> Mapping[int, Counter[tuple[str, str]]]:
    """Habitat and question by generation."""
    questions: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for event in events:
        if isinstance(event, Acted) and event.purpose == "practice":
            questions[event.generation].update((event.habitat, item) for item in event.items)
    return questions


def acceptance(events: list[Event], since: int = 0) -> float:
    verdicts = [
        verdict
        for event in events
        if isinstance(event, Acted) and event.purpose == "practice" and event.generation >= since
        for verdict in event.verdicts
    ]
    return sum(verdicts) / len(verdicts)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> tuple[EcologyState, list[Event]]:
    return lived(tmp_path_factory.mktemp("town") / "run", config())


@pytest.mark.parametrize("strategy", CONTROLS)
def test_every_strategy_is_asked_the_same(
    strategy: str, tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    _, events = lived(tmp_path / "run", config(strategy))
    assert asked(events) == asked(town[1])


def test_examples_are_the_users_own_and_were_accepted(
    tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    plan = config("in_context").model_copy(update={"learning_rule": "none"})
    state, events = lived(tmp_path / "run", plan)
    assert asked(events) == asked(town[1])
    shown = 0
    for habitat in state.habitats.values():
        for place, answer in enumerate(habitat.answers):
            *examples, _ = turns(answer.prompt)
            before = [one for one in habitat.answers[:place] if one.is_accepted]
            if len(before) >= 3:
                own = [
                    part
                    for one in before[-3:]
                    for part in (turns(one.prompt)[-1], f"{one.reply}\n")  # lines of text
                ]
                assert examples == own
                shown += 1
    assert shown > 50


def test_habitats_that_want_the_same_find_each_other(
    town: tuple[EcologyState, list[Event]],
) -> None:
    state, events = town
    kinds = world_of(config()).kinds(0)
    names = world_of(config()).names
    by_server = defaultdict(set)
    for name, kind in zip(names, kinds, strict=True):
        by_server[state.habitats[name].chosen].add(int(kind))
    assert sorted(map(tuple, by_server.values())) == [(0,), (1,), (2,)]
    assert acceptance(events, GENERATIONS // 2) > 0.8


def test_one_kind_has_one_server(tmp_path: Path) -> None:
    state, _ = lived(tmp_path / "run", config(kinds=1))
    assert len({habitat.chosen for habitat in state.habitats.values()}) == 1


def test_a_habitat_that_changed_finds_another_server(tmp_path: Path) -> None:
    plan = config(drift_at=20, length=45)
    state, events = lived(tmp_path / "run", plan)
    world, by_server = world_of(plan), defaultdict(set)
    for name, kind in zip(world.names, world.kinds(44), strict=True):
        by_server[state.habitats[name].chosen].add(int(kind))
    assert all(len(kinds) == 1 for kinds in by_server.values())
    assert acceptance(events, 35) > 0.75


def test_who_serves_nobody_starves(town: tuple[EcologyState, list[Event]]) -> None:
    state, events = town
    born = {event.id for event in events if isinstance(event, Born)}
    servers = {habitat.chosen for habitat in state.habitats.values()}
    assert born - state.population.keys(), "nobody died"
    assert servers <= state.population.keys()


def test_a_newborn_has_eaten_before_it_answers(town: tuple[EcologyState, list[Event]]) -> None:
    _, events = town
    colonisers = [e for e in events if isinstance(e, Born) and e.operator == "coloniser"]
    assert colonisers
    for born in colonisers:
        later = [event for event in events if getattr(event, "id", None) == born.id]
        assert [type(event).__name__ for event in later[:5]] == ["Born", *["Learned"] * 4]


def test_energy_sums_to_zero_with_habitats(town: tuple[EcologyState, list[Event]]) -> None:
    state, events = town
    assert sum(state.ledger.balances.values()) + state.ledger.world == 0
    last = {event.id: event.balance for event in events if isinstance(event, Settled)}
    assert all(
        state.ledger.balance(name) == last[name] for name in state.population if name in last
    )


@pytest.mark.parametrize("stop", [1, 2, 5, 11])
def test_a_run_with_habitats_resumes_exactly(
    stop: int, tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    left = iter(range(stop, 0, -1))
    start(config(), tmp_path / "run", host=ToyHost(), should_stop=lambda: next(left) == 1)
    resume(tmp_path / "run", host=ToyHost())
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == town[1]
    assert checkpoint.load_state(tmp_path / "run") == town[0]


@pytest.mark.parametrize("call", [3, 20, 41])
def test_a_run_with_habitats_that_crashes_resumes_exactly(
    call: int, tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    with pytest.raises(Crash):
        start(config(), tmp_path / "run", host=ToyHost(crash_at=call))
    resume(tmp_path / "run", host=ToyHost())
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == town[1]


def test_nothing_depends_on_what_a_habitat_is_called(
    tmp_path: Path, town: tuple[EcologyState, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = world_of(config()).names
    order = np.random.default_rng(5).permutation(len(names))
    new = tuple(names[place] for place in order)
    monkeypatch.setattr(SyntheticHabitats, "names", property(lambda world: new))
    _, events = lived(tmp_path / "run", config())
    renamed = dict(zip(names, new, strict=True))
    for before, after in zip(town[1], events, strict=True):
        was = vars(before).copy()
        if isinstance(before, Acted):
            was["habitat"] = renamed.get(before.habitat, "")
        if isinstance(before, Archived):
            was["cell"] = renamed[before.cell]
        if isinstance(before, Served):
            was["servers"] = {renamed[name]: server for name, server in before.servers.items()}
        assert was == vars(after)


def answered(family: str, *, accepted: bool, confidence: float = 0.9) -> RememberedAnswer:
    """An answer of organelle o1."""
    return RememberedAnswer(
        family, "short", "1+1", (1,), accepted, organelle_id="o1", confidence=confidence
    )


def test_a_habitat_that_changed_forgets_what_it_accepted() -> None:
    habitat = Habitat()
    for _ in range(40):
        habitat = habitat.after(answered("math.add", accepted=True))
    assert len(habitat.answers) == MOST_ANSWERS
    assert habitat.trust("o1") > 0
    refusals = 0
    while habitat.accepted:
        habitat, refusals = habitat.after(answered("math.add", accepted=False)), refusals + 1
    assert refusals <= 4
    assert habitat.trust("o1") < 0
    assert habitat.asked == 40 + refusals
    assert len(habitat.answers) == refusals


def test_a_change_is_noticed_where_some_families_stay_as_they_were() -> None:
    habitat, families = Habitat(), ("math.add", "string.sort", "logic.bool")
    for number in range(24):
        habitat = habitat.after(answered(families[number % 3], accepted=True))
    for number in range(7):  # the last family alone is refused
        family = families[number % 3]
        is_kept = family != "math.add"
        habitat = habitat.after(answered(family, accepted=is_kept, confidence=0.99))
    assert len(habitat.answers) <= 7
    assert {answer.family for answer in habitat.accepted} <= {"string.sort", "logic.bool"}


def test_a_change_needs_sure_answers() -> None:
    habitat = Habitat()
    for accepted in [True] * 12 + [False] * 8:
        habitat = habitat.after(answered("math.add", accepted=accepted, confidence=0.2))
    assert len(habitat.answers) == 20


def test_a_habitat_with_some_refusals_forgets_nothing() -> None:
    habitat, draw = Habitat(), np.random.default_rng(0)
    for _ in range(400):
        accepted = bool(draw.random() < 0.85)
        habitat = habitat.after(answered("math.add", accepted=accepted))
    assert len(habitat.answers) == MOST_ANSWERS


def test_a_sketch_survives_being_written() -> None:
    vector = np.random.default_rng(0).standard_normal(256)
    vector /= np.linalg.norm(vector)
    answer = RememberedAnswer("f", "d", "p", (1,), is_accepted=True).sketched(vector)
    assert answer.vector is not None
    assert float(vector @ answer.vector) == pytest.approx(1, abs=0.01)


def test_the_stream_is_what_its_config_says() -> None:
    plan = config(count=40, kinds=4, questions=20, activity=0.8, arrivals=20, length=40)
    world = world_of(plan)
    assert world.arrivals[11] == 0
    assert (np.diff(world.arrivals) >= 0).all()
    seen = Counter[str]()
    for generation in range(40):
        items = world.questions(generation)
        assert len(items) == 20
        assert items == world.questions(generation)
        for item in items:
            assert world.arrivals[world.number(item.habitat)] <= generation
            assert item.verifier(item.answer)
            assert not item.verifier("")
        seen.update(item.habitat for item in items)
    counts = sorted(seen.values(), reverse=True)
    assert counts[0] > 5 * counts[len(counts) // 2]
    assert Counter(world.kinds(0).tolist()) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_an_evaluation_asks_every_habitat_what_nobody_met() -> None:
    plan = config(noise=0.5, fickle=2)
    drawn = draw_shifts(mixture(plan), ["habitats"], 5)
    assert Counter(item.habitat for item in drawn) == dict.fromkeys(world_of(plan).names, 5)
    assert len({item.id for item in drawn}) == len(drawn)
    for item in drawn:
        assert item.verifier(item.answer) == 1  # without noise
        key = tasks.build(item.family).split_key(item.question)
        assert split_of(item.family, key) == "holdout"
    assert draw_shifts(mixture(toy_config()), ["habitats"], 5) == []


def test_drift_moves_as_many_habitats_as_it_says() -> None:
    world = world_of(config(count=24, kinds=4, drift_at=10))
    assert (world.kinds(9) == world.kinds(0)).all()
    assert int((world.kinds(10) != world.kinds(0)).sum()) == 6


def test_noise_turns_some_verdicts_and_a_fickle_habitat_draws_its_own() -> None:
    world = world_of(config(noise=0.1, fickle=1, questions=12))
    right: dict[str, list[bool]] = defaultdict(list)
    for generation in range(200):
        for item in world.questions(generation):
            right[item.habitat].append(bool(item.verifier(item.answer)))
    rates = sorted(float(np.mean(verdicts)) for verdicts in right.values())
    assert rates[0] == pytest.approx(0.5, abs=0.15)
    assert rates[1] > 0.8
    assert np.mean(rates[1:]) == pytest.approx(0.9, abs=0.03)


def test_every_habitat_goes_through_the_regimes_at_its_own_times() -> None:
    course = (0, 1, 0, 2, 1)
    world = world_of(config(count=4, kinds=3, apart=True, regimes=course, regime=20, length=100))
    kinds = np.array([world.kinds(generation) for generation in range(140)])
    for habitat in range(4):
        lived = kinds[:, habitat].tolist()
        phases = [
            kind for place, kind in enumerate(lived) if place == 0 or kind != lived[place - 1]
        ]
        names = dict(zip((0, 1, 2), (phases[0], phases[1], phases[3]), strict=True))
        assert phases == [names[kind] for kind in course]
    switches = {tuple(np.flatnonzero(np.diff(kinds[:, habitat]))) for habitat in range(4)}
    assert len(switches) == 4
    families = defaultdict(set)
    for generation in range(5):
        for item in world.questions(generation):
            families[item.habitat].add(item.family)
    assert sorted(len(one) for one in families.values()) == [1, 1, 1, 1]
    assert len(set.union(*families.values())) == 4


def sketched(direction: np.ndarray, server: str, *, accepted: bool = True) -> RememberedAnswer:
    answer = answered("math.add", accepted=accepted)
    return replace(answer, organelle_id=server).sketched(direction)


def organelle(name: str) -> Organelle:
    return Organelle(name, Genome("w", 4, {}), "m", (), "founder", born=0, inborn="w")


def settled(families: tuple[str, ...], **habitats: Habitat) -> Settlement:
    """Habitats where their servers are alive."""
    state = EcologyState(seed=0, habitats=dict(habitats))
    for habitat in habitats.values():
        state.population[habitat.chosen] = organelle(habitat.chosen)
    return Settlement.of(state, families, loyalty=2.0)


def test_habitats_that_refuse_the_same_need_not_be_alike() -> None:
    one, other, third = (np.eye(256)[place] for place in range(3))
    refused = tuple(sketched(third, "o3", accepted=False) for _ in range(8))
    settlement = settled(
        ("math.add", "string.sort"),
        first=Habitat("o1", answers=(*refused, *[sketched(one, "o1")] * 8)),
        second=Habitat("o2", answers=(*refused, *[sketched(other, "o2")] * 8)),
    )
    settlement.move("first")
    settlement.merge()
    assert settlement.servers == {"first": "o1", "second": "o2"}


def test_who_pleases_nobody_attracts_nobody() -> None:
    """Three habitats refuse what their server says. A fourth one leaves for who pleases another,
    although that is refused now and then."""
    wanted, wrong = np.eye(256)[0], np.eye(256)[1]
    refused = tuple(sketched(wrong, "o1", accepted=False) for _ in range(4))
    settlement = settled(
        ("math.add", "string.sort"),
        **{f"sad{number}": Habitat("o1", answers=refused) for number in range(3)},
        pleased=Habitat("o2", answers=(sketched(wanted, "o2"),) * 8),
        new=Habitat("o1", answers=refused[:1]),
    )
    settlement.move("new")
    assert settlement.servers["new"] == "o2"


def test_kinds_cannot_agree_by_chance_about_the_only_family() -> None:
    wanted = np.eye(256)[0]
    habitats = {
        f"h{number}": Habitat(f"o{number}", answers=(sketched(wanted, f"o{number}"),) * 8)
        for number in range(2)
    }
    alone, among = (
        settled(("math.add",), **habitats),
        settled(("math.add", "logic.bool"), **habitats),
    )
    for settlement in (alone, among):
        settlement.merge()
    assert len(set(alone.servers.values())) == 1
    assert len(set(among.servers.values())) == 2


@pytest.mark.parametrize("is_dormant", [False, True])
def test_a_habitat_that_comes_back_finds_who_knew_it(is_dormant: bool) -> None:
    old, new = (np.eye(256)[place] for place in range(2))
    knows_old = organelle("o1").remembering([sketched(old, "o1")] * 12)
    back = Habitat(
        chosen="o2", answers=(*[sketched(new, "o2", accepted=False)] * 3, sketched(old, "o2"))
    )
    other = Habitat(chosen="o2", answers=(sketched(new, "o2"),) * 12)
    state = EcologyState(seed=0, habitats={"back": back, "other": other})
    state.population["o2"] = organelle("o2")
    (state.dormant if is_dormant else state.population)["o1"] = knows_old
    settlement = Settlement.of(state, ("math.add",), loyalty=2.0)
    settlement.move("back")
    assert settlement.servers == {"back": "o1", "other": "o2"}


def test_who_remembers_something_becomes_dormant_and_wakes_up(tmp_path: Path) -> None:
    poor = toy_prices(ticket=0, rent=250_000, lowest=6000, base=6000, highest=6000, dowry=15_000)
    regimes = {"apart": True, "regimes": (0, 1, 0, 1), "regime": 20}
    plan = config(count=4, kinds=3, questions=8, length=90, **regimes)
    plan = plan.model_copy(update={"economy": poor})
    state, events = lived(tmp_path / "run", plan)
    woken = [event for event in events if isinstance(event, Born) and event.operator == "awakened"]
    assert woken
    born = {event.id: event for event in events if isinstance(event, Born)}
    assert all(event.parents[0] in born for event in woken)
    assert not state.dormant.keys() & state.population.keys()
    assert sum(state.ledger.balances.values()) + state.ledger.world == 0
    left = iter(range(43, 0, -1))
    start(plan, tmp_path / "again", host=ToyHost(), should_stop=lambda: next(left) == 1)
    resume(tmp_path / "again", host=ToyHost())
    assert list(read_events(tmp_path / "again" / "events.jsonl")) == events
    assert checkpoint.load_state(tmp_path / "again") == state


def test_an_organelle_remembers_the_newest_of_each_family() -> None:
    one = Organelle("o1", Genome("w", 4, {}), "m", (), "founder", born=0, inborn="w")
    adds = [answered("math.add", accepted=True) for _ in range(MOST_ANSWERS + 5)]
    one = one.remembering(adds).remembering([answered("logic.bool", accepted=True)])
    assert Counter(answer.family for answer in one.memories) == {
        "math.add": MOST_ANSWERS,
        "logic.bool": 1,
    }


def test_an_adapter_starts_anew_when_its_habitat_changed(tmp_path: Path) -> None:
    strategy = {"kind": "per_habitat", "reset": True, "learning_rate": 0.1, "aging": 0.0}
    plan = config(strategy, drift_at=25, length=60)
    _, events = lived(tmp_path / "run", plan)
    world = world_of(plan)
    reset = [event for event in events if isinstance(event, Retired) and event.cause == "reset"]
    moved = int((world.kinds(0) != world.kinds(59)).sum())
    assert moved <= len(reset) <= moved + 2
    assert all(event.generation >= 25 for event in reset)


def test_a_prompt_may_show_its_habitat() -> None:
    hidden, shown = world_of(config()), world_of(config(shown=True))
    for one, other in zip(hidden.questions(3), shown.questions(3), strict=True):
        assert other.prompt == f"{one.habitat} {one.prompt}"
        assert (one.id, one.habitat) == (other.id, other.habitat)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regimes": (0, 1), "drift_at": 5}, "by regimes or by drift_at: leave one out"),
        ({"regimes": (0, 7)}, "expected numbers of kinds, below 3, got 7"),
    ],
)
def test_changes_that_contradict_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mixture(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"kinds": 100}, "tasks.habitats.kinds: 4 groups of families have 81 kinds at most")],
)
def test_a_world_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixture(config(**changes))


def test_controls_for_habitats_need_habitats(tmp_path: Path) -> None:
    plan = toy_config(strategy="told")
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"habitats": None})})
    with pytest.raises(ConfigError, match=r"strategy: 'told' .* set tasks.habitats"):
        start(plan, tmp_path / "run", host=ToyHost())


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("independent", "strategy: 'independent' asks questions of its own"),
        ("ecology", r"strategy.mechanisms: 'upheaval' .* switch it off"),
        ({**ECOLOGY, "mechanisms": {**FORAGING, "thrift": True}}, "'thrift' asks questions"),
    ],
)
def test_who_asks_questions_of_its_own_does_not_fit(
    strategy: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        start(config(strategy), tmp_path / "run", host=ToyHost())
