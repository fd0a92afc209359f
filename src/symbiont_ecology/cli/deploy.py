"""``infer``, ``export`` and ``phylogeny``: what a run has bred, put to use here or elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.console import command_line, open_run, prepare, write_json
from symbiont_ecology.cli.options import HostOption, RoutingOption, RunFolder, argument, option
from symbiont_ecology.cli.readers import PEFT, check_reader, serving_lines
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.ecology import EcologyState
    from symbiont_ecology.run import LivingOrganelle
    from symbiont_ecology.types import OrganelleId
    from symbiont_ecology.weights import AdapterWeights

HABITATS_FILE = "habitats.json"
MOST_NAMES = 24
"""Users that a model card names."""
GOOD = 0.5
"""Believed success from which a model card names a cell."""
CARD = """\
# Organelle {organelle.id}

A LoRA adapter of rank {organelle.genome.rank}, bred by symbiont-ecology on `{model}`.

- run: `{run}`, seed {living.state.seed}, after {living.state.generation} generations
- lineage: born in generation {organelle.born} by `{organelle.operator}`; parents: {parents}
- serves: {serves}
- asked: {asked}
- balance: {living.balance:.1f} ATP

## Where it is good

{good}

{source}; it is not a holdout accuracy.
"""
"""The model card of one organelle."""
ELITE_CARD = """\
# Elite {name}

A LoRA adapter, bred by symbiont-ecology in the run `{run}`: an organelle as it was in that
generation.

It holds {cells} in the archive. It was asked {asked}.
"""
"""The model card of one elite."""


def infer(
    folder: RunFolder,
    prompt: Annotated[str, argument("A question, such as 'math.add: 47+8'; - reads stdin.")],
    routing: RoutingOption = "learned",
    habitat: Annotated[
        str | None,
        option("The user who asks. The adapter that serves this user answers.", metavar="ID"),
    ] = None,
    max_new_tokens: Annotated[int, option("Longest answer.", least=1)] = 64,
    host: HostOption = None,
) -> None:
    """Answer one prompt. The answer is on stdout, the name of the organelle on stderr.

    A run that learned from a log needs --habitat.
    """
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.ecology.state import load_state
    from symbiont_ecology.inference.routings import check_asker, check_habitat, prompt_routing
    from symbiont_ecology.tasks.tables import check_length

    prompt_routing(routing)  # before the host: a wrong word costs no time
    if habitat is not None:
        if routing not in ("learned", "habitat"):
            raise ConfigError(
                f"--routing: expected none beside --habitat, whose server answers, got {routing!r}"
            )
        check_habitat(load_state(folder).habitats, habitat, str(folder))
        routing = "habitat"
    run = open_run(folder, host)
    check_asker(run.config, habitat or "")
    text = sys.stdin.read() if prompt == "-" else prompt
    check_length(text, "infer")
    rollout = run.ask(text, routing, max_new_tokens, habitat or "")
    print(rollout.text)
    name = "the bare host" if rollout.organelle_id == HOST else rollout.organelle_id
    print(f"answered by {name}", file=sys.stderr)


def export(
    folder: RunFolder,
    to: Annotated[Path | None, option("Folder to write to.", default="DIR/export")] = None,
    elites: Annotated[
        bool, option("Also write the elites: the best of each cell or user, as it last answered.")
    ] = False,
    reader: Annotated[
        str, option("What loads them: peft, vllm or sglang. Says how to start a server.", "--for")
    ] = PEFT,
    host: HostOption = None,
) -> None:
    """Write the living organelles as PEFT folders with model cards, and an index.json. In a run
    with habitats only those that serve users are written, with a habitats.json."""
    check_reader(reader)
    run, target = open_run(folder, host), to or folder / "export"
    names = export_run(run, target, with_elites=elites, is_portable=reader != PEFT)
    print(f"{len(names)} adapters in {target}, described in {target / 'index.json'}")
    if run.state.habitats:
        print(f"who serves whom: {target / HABITATS_FILE}")
    if names and reader != PEFT:
        print("\n".join(serving_lines(run, reader, target, names)))
    elif names:
        words = ("evaluate", "--adapter", target / names[0], "--holdout", "FILE", "--host")
        print(f"next: {command_line(*words, run.config.host.model)}")


def export_run(
    run: Run, target: Path, *, with_elites: bool = False, is_portable: bool = False
) -> list[OrganelleId]:
    """Writes the living as PEFT folders, with what is to be said of them; returns who was written,
    the best one first. In a world with habitats, these are those who serve somebody. Elites come
    last, if they are wanted. Portable folders are those that servers read, too.

    Raises:
        HostError: the host is not the one that the run was founded with.
        RunError: the folder cannot be written.
    """
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.engine.provenance import check_host
    from symbiont_ecology.tasks.logs import learns_from_log

    prepare(target / "index.json")
    fingerprint, has_habitats = check_host(run.folder, run.host), bool(run.state.habitats)
    population = {
        name: living
        for name, living in run.population.items()
        if living.habitats or not has_habitats
    }
    for organelle_id, organelle in population.items():
        card = _card(organelle)
        _write_adapter(run, organelle.weights, target / organelle_id, card, is_portable)
    homes = _write_elites(run, target, is_portable) if with_elites else {}
    best = run.best.id if population else HOST
    order = sorted(population, key=lambda name: name != best)
    index = {
        "schema": 1,
        "run": str(run.folder),
        "generation": run.state.generation,
        "base_model": run.kernel.name_or_path,
        "host": fingerprint,
        "best": order[0] if order else HOST,
        "believed_by": "replies of a log" if learns_from_log(run.config) else "own practice",
        "organelles": [_facts(organelle) for organelle in population.values()],
        "elites": [{"folder": name, "holds": cells} for name, cells in homes.items()],
    }
    write_json(target / "index.json", index)
    if habitats := _served(run.state):
        write_json(target / HABITATS_FILE, {"schema": 1, "habitats": habitats})
    return [*order, *homes]


def _write_adapter(
    run: Run, weights: AdapterWeights, folder: Path, card: str, is_portable: bool
) -> None:
    """Writes one PEFT folder."""
    from symbiont_ecology.weights.portable import write_portable

    kernel = run.kernel
    if is_portable:
        model = kernel.name_or_path
        write_portable(folder, weights, modules=kernel.modules, base_model=model, model_card=card)
    else:
        kernel.place(0, weights)
        kernel.export(0, folder, model_card=card)


def _write_elites(run: Run, target: Path, is_portable: bool) -> dict[OrganelleId, list[str]]:
    """Writes the elites, such as ``o7@42``; returns the cells or habitats that each of them
    holds."""
    from symbiont_ecology.inference.pool import elite_id

    state, weights = run.state, run.loaded.pool.weights
    homes: dict[OrganelleId, list[str]] = {}
    for cell, elite in sorted(state.archive.elites.items()):
        homes.setdefault(elite_id(elite), []).append(cell)
    for name, cells in homes.items():
        card = ELITE_CARD.format(
            name=name,
            run=run.folder.name,
            cells=_as_code(cells),
            asked=asked_how(run.config, weights[name].phrase),
        )
        _write_adapter(run, weights[name], target / name, card, is_portable)
    return homes


def phylogeny(
    folder: RunFolder,
    out: Annotated[
        Path | None,
        option("The file.", default="DIR/phylogeny.csv, or here where DIR is read-only"),
    ] = None,
    tree: Annotated[
        bool,
        option("Write only the first parent of a merge, for programs that read trees.", "--tree"),
    ] = False,
) -> None:
    """Write who descends from whom, in the artificial-life data standard."""
    from symbiont_ecology.engine.living import EVENTS_FILE
    from symbiont_ecology.engine.run import read_config
    from symbiont_ecology.event_log import read_events
    from symbiont_ecology.files import is_writable
    from symbiont_ecology.history.phylogeny import taxa_of, write_phylogeny

    read_config(folder, runs_plugins=False)  # raises where there is no run
    taxa = taxa_of(read_events(folder / EVENTS_FILE))
    path = out or (folder if is_writable(folder) else Path()) / "phylogeny.csv"
    write_phylogeny(taxa, path, is_tree=tree)
    print(f"{len(taxa)} organelles in {path}")


def _served(state: EcologyState) -> dict[str, object]:
    """Who serves whom, with what is believed of it."""
    return {
        name: {
            "organelle": habitat.server if habitat.server in state.population else None,
            "asked": habitat.asked,
            "accepted_lately": round(len(habitat.accepted) / max(len(habitat.answers), 1), 4),
        }
        for name, habitat in sorted(state.habitats.items())
    }


def _facts(living: LivingOrganelle) -> dict[str, object]:
    """What the index says of one organelle."""
    organelle = living.organelle
    return {
        "folder": living.id,
        "id": living.id,
        "born": organelle.born,
        "parents": list(organelle.parents),
        "operator": organelle.operator,
        "rank": organelle.genome.rank,
        "phrase": living.weights.phrase,
        "traits": organelle.genome.traits,
        "balance_matp": living.state.ledger.balance(living.id),
        "habitats": living.habitats,
        "believed_success": {cell: round(rate, 4) for cell, rate in sorted(living.success.items())},
    }


def asked_how(config: RunConfig, phrase: str = "") -> str:
    """In what form a run asks its questions, which is the form to ask its adapters in; and the
    phrase of one of them."""
    from symbiont_ecology.registry import kind_of
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    style = prompt_styles.build(config.tasks.style)
    fields = config.tasks.style if isinstance(config.tasks.style, dict) else {}
    knobs = ", ".join(f"{name} {value}" for name, value in fields.items() if name != "kind")
    text = f"in the style `{kind_of(config.tasks.style)}`{f' (`{knobs}`)' if knobs else ''}"
    if style.is_chat:
        text += ", through the model's chat template"
    if phrase:
        text += f", behind {_as_code([repr(phrase)])}"
    ends = ", ".join(map(repr, style.stops))
    return f"{text}; an answer ends at {ends}" if ends else text


def _as_code(names: Sequence[str]) -> str:
    """Names of users in Markdown, where nothing of them is markup; some of them, if they are
    many."""
    from symbiont_ecology.transcripts import escaped

    text = ", ".join(f"`{escaped(name).replace('`', chr(39))}`" for name in names[:MOST_NAMES])
    return text if len(names) <= MOST_NAMES else f"{text} and {len(names) - MOST_NAMES} more"


def _card(living: LivingOrganelle) -> str:
    from symbiont_ecology.tasks.logs import learns_from_log

    cells = [f"- `{cell}`: {rate:.0%}" for cell, rate in living.success.items() if rate >= GOOD]
    return CARD.format(
        living=living,
        organelle=living.organelle,
        run=living.run.folder.name,
        model=living.run.config.host.model,
        parents=", ".join(living.organelle.parents) or "none",
        serves=_as_code(living.habitats) or "nobody by name",
        asked=asked_how(living.run.config, living.weights.phrase),
        good="\n".join(cells) or f"Nowhere yet: no cell reaches a believed success of {GOOD:.0%}.",
        source="Believed success is how often the logged replies were accepted, whoever wrote them"
        if learns_from_log(living.run.config)
        else "Believed success comes from the verdicts on its own practice",
    )
