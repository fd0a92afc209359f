"""``learn-from``: from a log of what users accepted and refused to adapters, and who uses which."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape

from symbiont_ecology.cli import console
from symbiont_ecology.cli.calibrate import folder_for, is_free_for
from symbiont_ecology.cli.deploy import HABITATS_FILE, export_run
from symbiont_ecology.cli.options import (
    DryRunOption,
    Overrides,
    Quiet,
    argument,
    option,
    resumable_folder,
)
from symbiont_ecology.cli.run import live, tell_run_plan
from symbiont_ecology.errors import ConfigError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.logged import HeldOut
    from symbiont_ecology.tasks.logs import LogRow, LogTasks

LOG_PRESET, LEARNED_FILE, EXPORT = "habitats/log", "report.json", "adapters"
MOST_FAMILIES = 64
"""More of them are no families: then the column is left out."""
MOST_ASKED = 500
"""Held-out rows that the report asks about, at most."""


def learn_from(
    log: Annotated[Path, argument("JSONL or Parquet file with a row per reply.", "LOG")],
    overrides: Overrides = None,
    host: Annotated[str, option("Folder or name of the model.")] = "embedded",
    out: Annotated[Path | None, resumable_folder("artifacts/learned-<n>")] = None,
    passes: Annotated[float, option("How often every row is learned.")] = 1.0,
    habitat: Annotated[str, option("Column that says who asked.")] = "habitat",
    prompt: Annotated[str, option("Column of the prompts.")] = "prompt",
    reply: Annotated[str, option("Column of the replies.")] = "reply",
    accepted: Annotated[str, option("Column of the verdicts.")] = "accepted",
    family: Annotated[str, option("Column that says what a row is about; may be missing.")] = (
        "family"
    ),
    dry_run: DryRunOption = False,
    quiet: Quiet = False,
) -> None:
    """Learn adapters from a log of accepted and refused replies. The model is not asked again.

    Finds out who wants the same, writes an adapter for each such group, and says how well it does
    on a tenth of the log that it never saw. Ctrl-C is safe: typed again, it goes on.
    """
    from symbiont_ecology import Run
    from symbiont_ecology.tasks.logs import LOG_COLUMNS, LogTasks

    named = dict(zip(LOG_COLUMNS, (habitat, prompt, reply, accepted, family), strict=True))
    columns = {name: column for name, column in named.items() if column != name}
    source = LogTasks("log", str(log), columns)
    rows = source.rows()
    config = _config(source, rows, host, passes, overrides or [])
    folder = folder_for("learned", out, lambda place: is_free_for(place, config))
    if not quiet or dry_run:
        _tell_log(log, rows)
    if dry_run:
        tell_run_plan(config, folder)
        return
    run = Run(folder, config)
    if not run.is_complete:
        words = ["learn-from", str(log), *(overrides or []), "--host", host]
        words += ["--passes", f"{passes:g}", "--out", str(folder)]
        for name, column in columns.items():
            words += [f"--{name}", column]
        live(run, quiet, f"{console.typed()} {shlex.join(words)}")
    _report(run, rows)


def _config(
    source: LogTasks, rows: tuple[LogRow, ...], host: str, passes: float, overrides: list[str]
) -> RunConfig:
    """The run that learns all rows so many times.

    Raises:
        ConfigError: it does not fit together.
        DataError: no reply was accepted.
    """
    from symbiont_ecology.config import compose
    from symbiont_ecology.engine.build import check, mixture
    from symbiont_ecology.tasks.own_habitats import LoggedHabitats

    if not 0 < passes < math.inf:
        raise ConfigError(f"--passes: expected a number above 0, got {passes:g}")
    families = [{"kind": "log", **spec} for spec in _families(source, rows)]
    changes = [f"host.model={json.dumps(host)}", f"tasks.families={json.dumps(families)}"]
    where = f"learn-from {source.path}"
    config = compose((LOG_PRESET,), [*changes, *overrides], where)
    check(config)
    if not any(change.startswith("run.generations=") for change in overrides):
        habitats = mixture(config).habitats
        assert isinstance(habitats, LoggedHabitats)
        generations = math.ceil(passes * habitats.length / habitats.config.questions)
        changes.append(f"run.generations={generations}")
        config = compose((LOG_PRESET,), [*changes, *overrides], where)
    return config


def _families(source: LogTasks, rows: tuple[LogRow, ...]) -> list[dict[str, object]]:
    """A source for each family of which something was accepted; one for all if there are none."""
    from symbiont_ecology.tasks.logs import is_held_out

    knobs = {key: value for key, value in vars(source).items() if value is not None}
    wanted = (row for row in rows if row.is_accepted and not is_held_out(row.prompt))
    counts = Counter(row.family for row in wanted)
    if not 1 < len(counts) <= MOST_FAMILIES:
        return [knobs]
    names = {family: _slug(family, number) for number, family in enumerate(sorted(counts), 1)}
    return [{**knobs, "name": name, "only": family} for family, name in names.items()]


def _slug(family: str, number: int) -> str:
    """A name of a task: no other has it, since it begins with the family's number."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", family).strip("-.")[:48]
    return f"log{number}.{word}" if word else f"log{number}"


def _tell_log(log: Path, rows: tuple[LogRow, ...]) -> None:
    accepted, habitats = sum(row.is_accepted for row in rows), {row.habitat for row in rows}
    families = len({row.family for row in rows})
    about = f", {families} families" if families > 1 else ""
    print(
        f"{log}: {len(rows)} replies, {accepted / len(rows):.0%} accepted, {len(habitats)} "
        f"habitats{about}"
    )
    if families > MOST_FAMILIES:
        print(f"warning: {families} families are too many (at most {MOST_FAMILIES}): left out")


def _report(run: Run, rows: tuple[LogRow, ...]) -> None:
    """Writes the adapters and the report, and prints who needs which."""
    from symbiont_ecology.evaluation.logged import held_out

    target = run.folder / EXPORT
    export_run(run, target)
    with console.asking() as progress:
        unseen = held_out(run.loaded, run.host, MOST_ASKED, progress)
    answered = Counter(row.habitat for row in rows)
    made = console.table(
        *(
            "adapter",
            "habitats",
            "rows",
            "written so",
            "by the model",
            "likelihood",
            "of the model",
        ),
        title="\naccepted replies that were held out: who writes them so, how likely they are",
    )
    adapters: dict[str, object] = {}
    for name, living in sorted(run.population.items()):
        part = unseen.of(name)
        if living.habitats:
            made.add_row(name, _names(living.habitats), *_cells(part, living.habitats, answered))
            adapters[name] = {"habitats": living.habitats, **_figures(part)}
    served = [name for living in run.population.values() for name in living.habitats]
    made.add_row("all", f"{len(served)}", *_cells(unseen, served, answered), style="bold")
    console.show(made)
    unserved = sorted(set(answered) - set(served))
    if unserved:
        print(f"nobody serves {_names(unserved)}: nothing that they accepted was learned")
    report = {"schema": 1, "rows": len(rows), "adapters": adapters, "all": _figures(unseen)}
    console.write_json(run.folder / LEARNED_FILE, {**report, "unserved": unserved})
    print(f"\nadapters:         {target}\nwho needs which:  {target / HABITATS_FILE}")
    print(f"report:           {run.folder / LEARNED_FILE}")
    if served:
        print(
            f"next:             {console.typed()} infer {run.folder} PROMPT --habitat {served[0]}"
        )


def _names(habitats: list[str]) -> str:
    """A few of them by name."""
    shown = ", ".join(habitats[:2])
    return escape(shown if len(habitats) <= 2 else f"{shown}, {len(habitats) - 2} more")


def _cells(part: HeldOut, habitats: list[str], answered: Counter[str]) -> list[str]:
    rows = str(sum(answered[name] for name in habitats))
    if not part.items:
        return [rows, "–", "–", "–", "–"]
    likelihood = [f"{math.exp(nats.mean()):.2f}" for nats in (part.served_nats, part.host_nats)]
    writes = [f"{one.accuracy().estimate:.0%}" for one in (part.served, part.host)]
    return [rows, *writes, *likelihood]


def _figures(part: HeldOut) -> dict[str, object]:
    """Held-out replies in numbers: share written exactly so, and nats per token."""
    if not part.items:
        return {"held_out": 0}
    from symbiont_ecology.evaluation.measure import interval_values

    return {
        "held_out": len(part.items),
        "written": interval_values(part.served.accuracy()),
        "written_by_host": interval_values(part.host.accuracy()),
        "nats_per_token": float(part.served_nats.mean()),
        "nats_per_token_of_host": float(part.host_nats.mean()),
    }
