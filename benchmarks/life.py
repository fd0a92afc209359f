"""The evidence of docs/life.md: lives of a thousand generations, invasions, catastrophes and
winters.

    python benchmarks/life.py [--seeds 5] [--processes 1] [--folder artifacts/life]

All on the embedded host, in the world of config/experiments/life.yaml. What is done is kept in the
folder, so it goes on where it stopped. Writes docs/results/life.json, from which
benchmarks/life_page.py makes the page.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fork import fork
from life_activity import activity, course_of
from life_history import (
    History,
    by_group,
    effective_specialists,
    group_of,
    inheritance,
    read_history,
    recovery,
    specialists,
)
from life_modes import potentials
from symbiont_ecology.config import RunConfig, load_config
from symbiont_ecology.ecology import Decision, Found, Organelle, Retire
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.build import build_host
from symbiont_ecology.engine.living import CONFIG_FILE, EVENTS_FILE
from symbiont_ecology.engine.provenance import source
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.files import write_whole
from symbiont_ecology.rng import Draw
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.blobs import BlobStore

ROOT = Path(__file__).parents[1]
CONFIG, RESULT = ROOT / "config/experiments/life.yaml", ROOT / "docs/results/life.json"
PAIRS = ROOT / "config/experiments/invasion.yaml"
FIRST = 5
"""Of the seeds: those before it were looked at under earlier rules."""
GENERATIONS = {"scarcity": 1000, "flat": 500}
"""Of the long lives, by their prices."""
WINDOW, STEP = 25, 5
"""Generations by which a specialist is judged, and between two judgements."""
INTERVAL = 50
"""Generations for which a line has to persist to count for change, novelty and diversity."""
BRED, RESIDENTS, SETTLING, TRIAL = 40, 24, 20, 30
"""Of an invasion: generations for which types are bred apart; how many of one type found a
community; generations that it has to itself, and those with newcomers."""
ARRIVAL = BRED + SETTLING
RARE = 0.1
"""Share of newcomers when they come."""
SHOCK, AFTER = 60, 80
"""Generations before a catastrophe and after it."""
ALIKE = "questions: 4, samples: 2, learning_rate: 0.015"
ARMS = {
    "ecology": (),
    "independent": (f"strategy={{kind: independent, {ALIKE}}}",),
    "single": (f"strategy={{kind: single, {ALIKE}}}",),
}
STRIKES = (
    ("ecology", 0.5),
    ("ecology", 0.9),
    ("independent", 0.5),
    ("independent", 0.9),
    ("single", 0.5),
)
"""Arms and tolls; half of one is one."""
YEAR, YEARS, WINTER = 60, 4, 0.7
Record = dict[str, Any]


def main() -> None:
    """Does everything that is not done yet and writes the JSON."""
    arguments = parse()
    folder, seeds = arguments.folder / source(), range(FIRST, FIRST + arguments.seeds)
    jobs: list[tuple[Any, ...]] = [(life, seed, "scarcity") for seed in seeds]
    jobs += [(invasions, seed) for seed in seeds]
    jobs += [(catastrophe, seed, arm, toll) for seed in seeds for arm, toll in STRIKES]
    jobs += [(seasons, seed) for seed in seeds]
    flats = [
        (life, seed, "flat") for seed in seeds
    ]  # one price, that of the same seed's life by scarcity
    records: dict[str, list[Record]] = {}
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        for stage in (jobs, flats):
            for job, record in zip(stage, pool.map(partial(kept, folder), stage), strict=True):
                records.setdefault(job[0].__name__, []).append(record)
    RESULT.write_text(
        json.dumps({"seeds": arguments.seeds, "year": YEAR, **records}) + "\n", encoding="utf-8"
    )


def parse() -> argparse.Namespace:
    """The command line of this benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "artifacts/life")
    return parser.parse_args()


def kept(folder: Path, job: tuple[Any, ...]) -> Record:
    """What a job, a function of this file and its arguments, came to: read back if it was done
    before."""
    work, *arguments = job
    name = "-".join([work.__name__, *map(str, arguments)])
    file = folder / f"{name}.json"
    if not file.exists():
        record = work(folder / name, *arguments)
        write_whole(file, json.dumps(record) + "\n")
    return dict(json.loads(file.read_text(encoding="utf-8")))


@cache
def embedded() -> Host:
    """The embedded host, loaded once per process."""
    return build_host(configured(0))


def configured(seed: int, *overrides: str) -> RunConfig:
    """The world of life.yaml."""
    return load_config(CONFIG, (f"seed={seed}", *overrides))


def lived(config: RunConfig, folder: Path) -> History:
    """A run, begun or gone on with as its folder demands, and read back."""
    host = embedded()
    if (folder / CONFIG_FILE).exists():
        resume(folder, host=host)
    else:
        start(config, folder, host=host)
    return read_history(read_events(folder / EVENTS_FILE))


def demand(config: RunConfig) -> int:
    """Rollouts that are asked for in a generation."""
    strategy: Any = config.strategy
    return int(strategy["questions"] * strategy["samples"] * len(config.tasks.families))


def rounded(values: Any, digits: int = 4) -> list[float]:
    """For the record."""
    return [round(float(value), digits) for value in values]


# Coexistence, activity, change and novelty.


def life(folder: Path, seed: int, prices: str) -> Record:
    """A thousand generations, with prices by scarcity or with one price for everything.

    The one price is what a verified answer paid on average at the end of the same seed's life by
    scarcity.
    """
    config = configured(seed, f"run.generations={GENERATIONS[prices]}")
    if prices == "flat":
        twin = kept(folder.parent, (life, seed, "scarcity"))
        config = config.model_copy(update={"economy": flat(config.economy, twin["price"])})
    history = lived(config, folder)
    stops = range(WINDOW, history.generations + 1, STEP)
    counts = [len(set(specialists(history, stop, WINDOW).values())) for stop in stops]
    effective = [
        effective_specialists(by_group(history.earned(stop - WINDOW, stop))) for stop in stops
    ]
    course = activity(course_of(history), Draw(seed)("shadow"))
    births = Counter(taxon.operator for taxon in history.taxa.values())
    return {
        "seed": seed,
        "prices": prices,
        "groups": len({group_of(f"{name}/short") for name in config.tasks.families}),
        "price": mean_price(config.economy, checkpoint.load_state(folder).success.values()),
        "stops": list(stops),
        "held": counts,
        "effective": rounded(effective, 3),
        "served": rounded(history.served(demand(config))[::STEP]),
        "population": [len(alive) for alive in history.alive[::STEP]],
        "inheritance": asdict(inheritance(history)),
        "births": dict(births),
        "deaths": sum(taxon.died is not None for taxon in history.taxa.values()),
        "activity": {name: rounded(curve[::STEP], 1) for name, curve in asdict(course).items()},
        "potentials": [asdict(snapshot) for snapshot in potentials(history, INTERVAL)],
    }


def flat(economy: Prices, price: float) -> Prices:
    """The same economy with one price for everything."""
    amount = round(price)
    return replace(economy, base=amount, slope=0, lowest=amount, highest=amount)


def mean_price(economy: Prices, success: Collection[float]) -> float:
    """What a verified answer pays on average where the cells have such success rates, in mATP."""
    return sum(economy.price(rate) * rate for rate in success) / sum(success)


# Invasion when rare.


def invasions(folder: Path, seed: int) -> Record:
    """Of two types that know one family each, either comes as a tenth to a community of the
    other."""
    config = configured(
        seed, *ARMS["independent"], "strategy.questions=8", f"run.generations={BRED}"
    )
    lived(config, folder / "bred")
    bred = checkpoint.load_state(folder / "bred").population.values()
    types = sorted(bred, key=lambda organelle: organelle.genome.traits["niche"])
    around = [(number, (number + 1) % len(types)) for number in range(len(types))]
    trials: list[Record] = []
    for resident, newcomer in [*around, *((after, number) for number, after in around)]:
        trials += invaded(folder, seed, types, resident, newcomer)
    return {"seed": seed, "trials": trials}


def invaded(
    folder: Path, seed: int, types: Sequence[Organelle], resident: int, newcomer: int
) -> list[Record]:
    """A community of one type in a world of both families, and what becomes of a few of the other
    type."""
    families = [configured(seed).tasks.families[index] for index in (resident, newcomer)]
    world = (f"seed={seed}", f"tasks.families=[{','.join(families)}]")
    base = load_config(PAIRS, (*world, f"run.generations={ARRIVAL}"))
    removals = [Retire(organelle.id, "removed") for organelle in types]
    settlers = [founder(types[resident], "resident")] * RESIDENTS
    before = forked(folder / "bred", folder / "community", base, [*removals, *settlers])
    success = checkpoint.load_state(folder / "community").success
    price = mean_price(base.economy, [success[f"{name}/short"] for name in families])
    one_price = flat(base.economy, price)
    count = max(round(RARE / (1 - RARE) * len(before.alive[-1])), 1)
    weights = BlobStore(folder / "bred/blobs").weights(types[newcomer].genome.weights)
    trials = []
    for name, economy, allocator in (
        ("scarcity", base.economy, "uniform"),
        ("flat", one_price, "uniform"),
        ("suited", one_price, "thompson"),
    ):
        longer = (f"allocator={allocator}", f"run.generations={ARRIVAL + TRIAL}")
        config = load_config(PAIRS, (*world, *longer)).model_copy(update={"economy": economy})
        coming = [founder(types[newcomer], "newcomer")] * count
        history = forked(folder / "community", folder / "trial", config, coming, [weights])
        facts = {
            "resident": families[0],
            "newcomer": families[1],
            "arm": name,
            "price": round(price),
        }
        trials.append(facts | invasion(history, Draw(seed)("marked", resident, newcomer)))
    return trials


def forked(
    folder: Path,
    to: Path,
    config: RunConfig,
    decisions: Sequence[Decision],
    weights: Sequence[AdapterWeights] = (),
) -> History:
    """A fork of a run and what became of it."""
    shutil.rmtree(to, ignore_errors=True)
    fork(folder, to, config, embedded(), decisions, weights)
    return lived(config, to)


def founder(organelle: Organelle, operator: str) -> Found:
    """The same weights, as someone whom nobody knows."""
    traits = {"learning_rate": organelle.genome.traits["learning_rate"]}
    return Found(traits, organelle.genome.rank, organelle.genome.weights, operator=operator)


def invasion(history: History, generator: np.random.Generator) -> Record:
    """How many the newcomers' line and all of them were, and how often either type was right
    overall.

    The neutral expectation is how often as many residents, marked at random, double their share of
    them.
    """
    ids = [taxon.id for taxon in history.taxa.values() if taxon.operator == "newcomer"]
    line = {organelle_id for newcomer in ids for organelle_id in history.line(newcomer)}
    asked, right = Counter[bool](), Counter[bool]()
    for work in (work for works in history.work[ARRIVAL:] for work in works):
        asked[work.organelle_id in line] += work.asked
        right[work.organelle_id in line] += work.right
    residents = sorted(history.alive[ARRIVAL] - line)
    # The lines begin at the marking: a resident's child that lives by then has a line of its own.
    later = {
        organelle_id: taxon for organelle_id, taxon in history.taxa.items() if taxon.born >= ARRIVAL
    }
    since = replace(history, taxa=later)
    kin = np.array(
        [len(since.line(organelle_id) & history.alive[-1]) for organelle_id in residents]
    )
    marked = np.array([generator.choice(kin, len(ids), replace=False).sum() for _ in range(1000)])
    return {
        "line": [len(line & alive) for alive in history.alive[ARRIVAL:]],
        "population": [len(alive) for alive in history.alive[ARRIVAL:]],
        "skill": round(right[True] / asked[True], 3),
        "resident skill": round(right[False] / max(asked[False], 1), 3),
        "neutral": float(np.mean(marked * len(residents) >= 2 * len(ids) * max(kin.sum(), 1))),
    }


# Shocks.


def catastrophe(folder: Path, seed: int, arm: str, toll: float) -> Record:
    """A part of everyone living dies at once: how far success falls, and how long it takes to come
    back."""
    config = configured(
        seed,
        *ARMS[arm],
        f"run.generations={SHOCK + AFTER}",
        f"climate.catastrophes=[{SHOCK}]",
        f"climate.toll={toll}",
    )
    history = lived(config, folder)
    curve = history.served(demand(config))
    later = Counter(taxon.operator for taxon in history.taxa.values() if taxon.born >= SHOCK)
    killed = sum(taxon.cause == "catastrophe" for taxon in history.taxa.values())
    facts = {"seed": seed, "arm": arm, "toll": toll, "killed": killed, "born after": dict(later)}
    return facts | {"served": rounded(curve), "recovery": asdict(recovery(curve, SHOCK))}


def seasons(folder: Path, seed: int) -> Record:
    """Some years with hard winters."""
    climate = (f"climate.year={YEAR}", f"climate.winter={WINTER}")
    config = configured(seed, f"run.generations={YEARS * YEAR}", *climate)
    history = lived(config, folder)
    events = read_events(folder / EVENTS_FILE)
    energy = [event.energy_total / 1000 for event in events if isinstance(event, GenerationEnded)]
    return {
        "seed": seed,
        "energy": rounded(energy, 1),
        "population": [len(alive) for alive in history.alive],
        "served": rounded(history.served(demand(config))),
    }


if __name__ == "__main__":
    main()
