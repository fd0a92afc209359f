"""Export: what a run has bred, as PEFT folders with model cards and an index of them.

A reader is a program that loads the folders. ``peft`` is registered here; servers, which read less
of what PEFT can say, register as extensions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from symbiont_ecology.adapters.peft_files import write_portable
from symbiont_ecology.base.files import make_folder, write_whole
from symbiont_ecology.base.registry import Registry, kind_of
from symbiont_ecology.base.transcripts import escaped
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import HOST, EcologyState
from symbiont_ecology.evaluate.pool import elite_id
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.provenance import check_host
from symbiont_ecology.run.run import LivingOrganelle, Run
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

INDEX_FILE, HABITATS_FILE = "index.json", "habitats.json"
MAX_NAMES = 24
"""Users or cells that a model card names."""
GOOD = 0.5
"""Believed success from which a model card names a cell."""


class Reader(Protocol):
    """Program that loads exported adapters. One that ``is_portable`` wants them in the form that
    servers read, too."""

    is_portable: ClassVar[bool]

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        """Return lines that say how to load the adapters of these folders."""


readers: Registry[Reader] = Registry("reader", __name__)


@readers.register("peft")
@dataclass(frozen=True)
class Peft:
    """PEFT, and all that reads its folders."""

    is_portable: ClassVar[bool] = False

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        return []


def export_run(
    run: Run,
    target: Path,
    *,
    with_elites: bool = False,
    is_portable: bool = False,
    scale: float = 1.0,
) -> list[str]:
    """Write the living as PEFT folders, with what is to be said of them; return the names of the
    folders, the best one first.

    In a world with habitats, these are those who serve somebody. Elites come last, if they are
    wanted. Portable folders are those that servers read, too. ``scale`` multiplies every ΔW.

    Raises:
        HostError: the host is not the one that the run was founded with.
        RunError: the folder cannot be written.
    """
    fingerprint, state = check_host(run.folder, run.host), run.state
    living = {
        name: one for name, one in run.population.items() if one.habitats or not state.habitats
    }
    homes = dict[str, list[str]]()
    for cell, elite in sorted(state.archive.elites.items() if with_elites else ()):
        homes.setdefault(elite_id(elite), []).append(cell)
    adapters = {name: (one.weights, _living_card(one)) for name, one in living.items()}
    for name, cells in homes.items():
        weights = run.loaded.pool.weights[name]
        facts = {
            "holds in the archive": _as_code(cells),
            "asked": asked_how(run.config, weights.phrase),
        }
        adapters[name] = weights, _card(f"Elite {name}", run, facts)
    make_folder(target)
    kernel = run.kernel
    for name, (weights, card) in adapters.items():
        if scale != 1:
            weights = weights.times(scale)
            card += (
                f"\nΔW is multiplied by {scale:g} in this folder; what is said above was measured "
                "without that.\n"
            )
        if is_portable:
            base = kernel.name_or_path
            write_portable(
                target / name, weights, modules=kernel.modules, base_model=base, model_card=card
            )
        else:
            kernel.place(0, weights)
            kernel.export(0, target / name, model_card=card)
    best = run.best.id if living else HOST
    order = sorted(living, key=lambda name: name != best)
    index = {
        "schema": 1,
        "run": str(run.folder),
        "generation": state.generation,
        "base_model": kernel.name_or_path,
        "host": fingerprint,
        "scale": scale,
        "best": order[0] if order else HOST,
        "believed_by": "replies of a log" if run.config.learns_from_log else "own practice",
        "organelles": [_facts(one) for one in living.values()],
        "elites": [{"folder": name, "holds": cells} for name, cells in homes.items()],
    }
    _write_json(target / INDEX_FILE, index)
    if state.habitats:
        _write_json(target / HABITATS_FILE, {"schema": 1, "habitats": _served(state)})
    return [*order, *homes]


def asked_how(config: RunConfig, phrase: str = "") -> str:
    """Return in words the form in which a run asks its questions, which is the form to ask its
    adapters in; and the phrase of one of them."""
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


def _write_json(path: Path, data: object) -> None:
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _served(state: EcologyState) -> dict[str, object]:
    """Return who serves each user, with what is believed of it."""
    return {
        name: {
            "organelle": habitat.server if habitat.server in state.population else None,
            "asked": habitat.asked,
            "accepted_lately": round(len(habitat.accepted) / max(len(habitat.answers), 1), 4),
        }
        for name, habitat in sorted(state.habitats.items())
    }


def _facts(living: LivingOrganelle) -> dict[str, object]:
    """Return what the index says of one organelle."""
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


def _living_card(living: LivingOrganelle) -> str:
    organelle, config = living.organelle, living.run.config
    cells = [f"{cell}: {rate:.0%}" for cell, rate in living.success.items() if rate >= GOOD]
    source = "how often the logged replies were accepted, whoever wrote them"
    if not config.learns_from_log:
        source = "from the verdicts on its own practice"
    facts = {
        "rank": str(organelle.genome.rank),
        "lineage": f"born in generation {organelle.born} by `{organelle.operator}`; parents: "
        f"{', '.join(organelle.parents) or 'none'}",
        "serves": _as_code(living.habitats) or "nobody by name",
        "asked": asked_how(config, living.weights.phrase),
        "good at": _as_code(cells) or f"no cell yet: none reaches a believed success of {GOOD:.0%}",
    }
    card = _card(f"Organelle {organelle.id}", living.run, facts)
    return f"{card}\nBelieved success is {source}; it is not a holdout accuracy.\n"


def _card(title: str, run: Run, facts: dict[str, str]) -> str:
    """Return a model card in Markdown, where nothing of a name is markup."""
    lines = "".join(f"- {label}: {fact}\n" for label, fact in facts.items())
    return (
        f"# {title}\n\nA LoRA adapter for `{run.config.host.model}`, bred by symbiont-ecology in "
        f"the run `{run.folder.name}`, seed {run.state.seed}, in {run.state.generation} "
        f"generations.\n\n{lines}"
    )


def _as_code(names: Sequence[str]) -> str:
    """Return names in Markdown; some of them, if they are many."""
    text = ", ".join(f"`{escaped(name).replace('`', chr(39))}`" for name in names[:MAX_NAMES])
    return text if len(names) <= MAX_NAMES else f"{text} and {len(names) - MAX_NAMES} more"
