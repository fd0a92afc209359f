"""The populations of docs/results.md: long lives and invasions.

    python benchmarks/life.py [--seeds 5] [--processes 1] [--folder artifacts/life]

All on the embedded host, in the world of config/experiments/life.yaml. What is done is kept in the
folder, so it goes on where it stopped. Writes docs/results/life.json.
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

from life_measures import (
    History,
    activity,
    by_group,
    course_of,
    effective_specialists,
    group_of,
    inheritance,
    potentials,
    read_history,
    specialists,
)
from symbiont_ecology import Run
from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.event_log import EventLog, read_events
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import Decision, Found, Organelle, Retire
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.checkpoint_header import GrowingLog
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.run.build import build_host, build_runtime
from symbiont_ecology.run.config import RunConfig, load_config
from symbiont_ecology.run.generation import execute
from symbiont_ecology.run.open_run import CONFIG_FILE, EVENTS_FILE
from symbiont_ecology.run.provenance import PROVENANCE_FILE, source, write_config
from symbiont_ecology.run.runtime import GenerationContext, Host

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
INDEPENDENT = "strategy={kind: independent, questions: 4, samples: 2, learning_rate: 0.015}"
Record = dict[str, Any]


def main() -> None:
    """Do everything that is not done yet and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "artifacts/life")
    arguments = parser.parse_args()
    folder = arguments.folder / source()
    seeds = range(FIRST, FIRST + arguments.seeds)
    jobs: list[tuple[Any, ...]] = [(life, seed, "scarcity") for seed in seeds]
    jobs += [(invasions, seed) for seed in seeds]
    flats = [(life, seed, "flat") for seed in seeds]  # at the price of a life by scarcity
    records: dict[str, list[Record]] = {}
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        for stage in (jobs, flats):
            for job, record in zip(stage, pool.map(partial(kept, folder), stage), strict=True):
                records.setdefault(job[0].__name__, []).append(record)
    RESULT.write_text(json.dumps({"seeds": arguments.seeds, **records}) + "\n", encoding="utf-8")


def kept(folder: Path, job: tuple[Any, ...]) -> Record:
    """Return the record of a job, a function of this file and its arguments; do it if it is new."""
    work, *arguments = job
    name = "-".join([work.__name__, *map(str, arguments)])
    file = folder / f"{name}.json"
    if not file.exists():
        record = work(folder / name, *arguments)
        write_whole(file, json.dumps(record) + "\n")
    return dict(json.loads(file.read_text(encoding="utf-8")))


@cache
def embedded() -> Host:
    """Load the embedded host, once per process."""
    return build_host(configured(0))


def configured(seed: int, *overrides: str) -> RunConfig:
    """Return the world of life.yaml."""
    return load_config(CONFIG, (f"seed={seed}", *overrides))


def lived(config: RunConfig, folder: Path) -> History:
    """Begin a run, or go on with it; return its history."""
    host = embedded()
    if (folder / CONFIG_FILE).exists():
        Run.open(folder, host=host).finish()
    else:
        Run.start(config, folder=folder, host=host).finish()
    return read_history(read_events(folder / EVENTS_FILE))


def demand(config: RunConfig) -> int:
    """Return the number of rollouts that are asked for in a generation."""
    strategy: Any = config.strategy
    return int(strategy["questions"] * strategy["samples"] * len(config.tasks.families))


def rounded(values: Any, digits: int = 4) -> list[float]:
    """Round for the record."""
    return [round(float(value), digits) for value in values]


# Coexistence, activity, change and novelty.


def life(folder: Path, seed: int, prices: str) -> Record:
    """Live a thousand generations by scarcity, or half of that at one price for everything: what a
    verified answer paid on average at the end of the same seed's life by scarcity."""
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
    """Return the same economy with one price for everything."""
    amount = round(price)
    return replace(economy, base=amount, slope=0, lowest=amount, highest=amount)


def mean_price(economy: Prices, success: Collection[float]) -> float:
    """Return the mean pay of a verified answer at such success rates of the cells, in mATP."""
    return sum(economy.price(rate) * rate for rate in success) / sum(success)


# Invasion when rare.


def invasions(folder: Path, seed: int) -> Record:
    """Let each of two types that know one family come as a tenth to a community of the other."""
    config = configured(seed, INDEPENDENT, "strategy.questions=8", f"run.generations={BRED}")
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
    """Let a few of one type come to a community of the other, in a world of both families."""
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
    """Live a fork of a run; return its history."""
    shutil.rmtree(to, ignore_errors=True)
    fork(folder, to, config, embedded(), decisions, weights)
    return lived(config, to)


def fork(
    folder: Path,
    to: Path,
    config: RunConfig,
    host: Host,
    decisions: Sequence[Decision] = (),
    weights: Sequence[AdapterWeights] = (),
) -> None:
    """Copy a run as of its last checkpoint, apply decisions, and leave it to be resumed.

    ``weights`` are adapters from elsewhere, for decisions that found organelles with them. The
    config may differ in all that a state does not depend on: prices, allocator, length, seed.
    """
    state = checkpoint.load_state(folder)
    shutil.copytree(folder / "blobs", to / "blobs")
    for name in (PROVENANCE_FILE, EVENTS_FILE):
        shutil.copyfile(folder / name, to / name)
    write_config(config, to / CONFIG_FILE)
    runtime = build_runtime(config, host, to)
    log = EventLog(to / EVENTS_FILE)
    for adapter in weights:
        runtime.store.put_weights(adapter)
    state.seed = config.seed
    draw = Draw(state.seed, state.generation)
    events = execute(decisions, GenerationContext(**vars(runtime), state=state, draw=draw))
    log.rewind(state.next_seq)
    state.next_seq = log.emit(state.next_seq, *events)
    log.sync()
    runtime.store.flush(state.reachable())
    checkpoint.save_state(state, to, log=GrowingLog(log.path).mark(state.next_seq))


def founder(organelle: Organelle, operator: str) -> Found:
    """Return a decision that founds an organelle with the same weights."""
    traits = {"learning_rate": organelle.genome.traits["learning_rate"]}
    return Found(traits, organelle.genome.rank, organelle.genome.weights, operator=operator)


def invasion(history: History, generator: np.random.Generator) -> Record:
    """Return the sizes of the newcomers' line and of all, and the share that each type had right.

    The neutral expectation is how often as many residents, marked at random, double their share.
    """
    ids = [taxon.id for taxon in history.taxa.values() if taxon.operator == "newcomer"]
    line = {organelle_id for newcomer in ids for organelle_id in history.line(newcomer)}
    asked = Counter[bool]()
    right = Counter[bool]()
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


if __name__ == "__main__":
    main()
