"""Export: what a run has bred, as PEFT folders with model cards and an index of them.

A reader is a program that loads the folders. ``peft`` is registered here; servers, which read less
of what PEFT can say, and readers of other files register as extensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.peft_files import write_portable
from symbiont_ecology.base.files import make_folder, write_whole
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.transcripts import escaped
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import HOST, EcologyState
from symbiont_ecology.ecology.users import User
from symbiont_ecology.evaluate.pool import elite_id
from symbiont_ecology.run.provenance import check_host
from symbiont_ecology.run.run import LivingOrganelle, Run
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

INDEX_FILE, USERS_FILE = "index.json", "users.json"
MAX_NAMES = 24
"""Users, cells or parents that a line of a model card names."""


class Reader(Protocol):
    """Program that loads exported adapters. One that ``is_portable`` wants them in the form that
    servers read, too."""

    is_portable: ClassVar[bool] = False

    def add(self, run: Run, folder: Path, weights: AdapterWeights, asked: str) -> None:
        """Write into the folder of an adapter what it reads beside the files of PEFT. ``asked``
        says how the run asked it.

        Raises:
            AdapterError: it cannot read such an adapter, or the folder cannot be written.
        """
        return

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        """Return lines that say how to load the adapters of these folders, if there is more to say
        than how to evaluate one."""
        return []


readers: Registry[Reader] = Registry("reader", __name__)


@readers.register("peft")
@dataclass(frozen=True)
class Peft(Reader):
    """PEFT, and all that reads its folders."""


def export_run(
    run: Run,
    target: Path,
    *,
    with_elites: bool = False,
    reader: Reader | None = None,
    scale: float = 1.0,
) -> list[str]:
    """Write the living as PEFT folders, with what is to be said of them; return the names of the
    folders, the best one first.

    In a world with users, these are those who serve somebody. Elites come last, if they are
    wanted. A ``reader`` may want more than what PEFT reads. ``scale`` multiplies every ΔW.

    Raises:
        AdapterError: the reader cannot read such adapters.
        HostError: the host is not the one that the run was founded with.
        RunError: the folder cannot be written.
    """
    fingerprint, state, kernel = check_host(run.folder, run.host), run.state, run.kernel
    living = {name: one for name, one in run.population.items() if one.users or not state.users}
    homes = dict[str, list[str]]()
    for cell, elite in sorted(state.archive.elites.items() if with_elites else ()):
        homes.setdefault(elite_id(elite), []).append(cell)
    facts = {name: _facts(one) for name, one in living.items()}
    facts |= {name: {"holds in the archive": cells} for name, cells in homes.items()}
    make_folder(target)
    reader = reader or Peft()
    for name, said in facts.items():
        weights = run.loaded.pool.weights[name].times(scale)
        asked = _asked_how(run, weights.phrase)
        card = _card(run, name, {**said, "asked": [asked]}, scale)
        if reader.is_portable:
            write_portable(
                target / name,
                weights,
                modules=kernel.modules,
                base_model=kernel.name_or_path,
                model_card=card,
            )
        else:
            kernel.place(0, weights)
            kernel.export(0, target / name, model_card=card)
        reader.add(run, target / name, weights, asked)
    best = run.best.id if living else HOST
    index = {
        "schema": 1,
        "run": str(run.folder),
        "generation": state.generation,
        "base_model": kernel.name_or_path,
        "host": fingerprint,
        "scale": scale,
        "best": best,
        "believed_by": "replies of a log" if run.config.learns_from_log else "own practice",
        "organelles": [facts[name] for name in living],
        "elites": [{"folder": name, "holds": cells} for name, cells in homes.items()],
    }
    _write_json(target / INDEX_FILE, index)
    if state.users:
        served = {name: _served(state, user) for name, user in sorted(state.users.items())}
        _write_json(target / USERS_FILE, {"schema": 1, "users": served})
    return [*sorted(living, key=lambda name: name != best), *homes]


def _asked_how(run: Run, phrase: str) -> str:
    """Return in words the form in which a run asks its questions, which is the form to ask its
    adapters in; and the phrase of one of them."""
    style = prompt_styles.build(run.config.tasks.style)
    template = ", through the model's chat template" if style.is_chat else ""
    ends = f", an answer ends at {' or '.join(map(repr, style.stops))}" if style.stops else ""
    behind = f", behind {phrase!r}" if phrase else ""
    return f"in the style {run.config.tasks.style}{template}{behind}{ends}"


def _write_json(path: Path, data: object) -> None:
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _served(state: EcologyState, user: User) -> dict[str, object]:
    """Return who serves a user, with what is believed of it."""
    return {
        "organelle": user.server if user.server in state.population else None,
        "asked": user.asked,
        "accepted_lately": round(len(user.accepted) / max(len(user.answers), 1), 4),
    }


def _facts(living: LivingOrganelle) -> dict[str, object]:
    """Return what the index, and the model card, say of one organelle."""
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
        "users": living.users,
        "believed_success": {cell: round(rate, 4) for cell, rate in sorted(living.success.items())},
    }


def _card(run: Run, name: str, facts: Mapping[str, object], scale: float) -> str:
    """Return a model card in Markdown, where nothing of a name is markup."""
    lines = [
        f"# {name}",
        f"A LoRA adapter for `{run.config.host.model}`, bred by symbiont-ecology in the run "
        f"`{run.folder.name}`, seed {run.state.seed}, in {run.state.generation} generations.",
        "Believed success is from its own practice, or from replies of a log: it is no accuracy.",
    ]
    if scale != 1:
        lines.append(f"ΔW is multiplied by {scale:g} here; what is said was measured without that.")
    said = (f"- {label}: {_as_code(fact)}\n" for label, fact in facts.items() if fact)
    return "\n\n".join([*lines, "".join(said)])


def _as_code(fact: object) -> str:
    """Return a fact in Markdown; some of it, if it is many."""
    parts = [f"{name} {value}" for name, value in fact.items()] if isinstance(fact, dict) else fact
    names = parts if isinstance(parts, list) else [parts]
    shown = [f"`{escaped(str(name)).replace('`', chr(39))}`" for name in names[:MAX_NAMES]]
    return ", ".join(shown) + (f" and {len(names) - MAX_NAMES} more" if names[MAX_NAMES:] else "")
