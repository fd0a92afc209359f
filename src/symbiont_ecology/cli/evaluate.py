"""Use of what a run has bred: ``evaluate``, ``infer`` and ``export``."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symbiont_ecology.base.errors import AdapterError, ConfigError
from symbiont_ecology.cli import console, options
from symbiont_ecology.cli.options import argument, option

if TYPE_CHECKING:
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.evaluate.measure import Record, SystemComparison


def evaluate(
    context: typer.Context,
    folder: Annotated[Path | None, argument("Folder of a run.", "DIR")] = None,
    adapter: Annotated[Path | None, option("A PEFT folder, instead of a run.")] = None,
    holdout: options.HoldoutOption = None,
    shift: options.ShiftOption = options.IN_DISTRIBUTION,
    per_cell: options.PerCellOption = 20,
    max_samples: options.MaxSamplesOption = None,
    routing: options.RoutingOption = "learned",
    json_file: options.JsonOption = None,
    host: options.HostOption = None,
    style: Annotated[
        str | None, option("Style to ask an adapter in.", default="the host's")
    ] = None,
) -> None:
    """Ask holdout questions of a run, which is not changed but for new lines of its
    evaluations.jsonl; or of any adapter and its bare host."""
    from symbiont_ecology.evaluate.evaluation_log import EvaluationSpec
    from symbiont_ecology.evaluate.routings import routings

    if (folder is None) == (adapter is None):
        raise ConfigError("evaluate: expected either a run folder or --adapter FOLDER")
    if adapter is not None:
        options.refuse_beside(context, "--adapter", "--shift", "--per-cell", "--routing")
    elif style is not None:
        raise ConfigError("evaluate --style: expected --adapter beside it")
    options.check_drawn(context, holdout, max_samples)
    spec = EvaluationSpec(
        holdout=holdout,
        most_asked=max_samples,
        shifts=tuple(shift),
        per_cell=per_cell,
        routing=routings.present_name(routing),
    )
    with console.report(json_file) as write_json:
        if folder is not None:
            write_json(_evaluate_run(folder, spec, host))
        elif adapter is not None:
            write_json(_evaluate_adapter(adapter, spec, host or "embedded", style))


def _evaluate_run(folder: Path, spec: EvaluationSpec, host: str | None) -> Record:
    """Ask the run, its best organelle and the bare host.

    A wrong word or file costs no time: no host is loaded before all is known to fit.
    """
    from symbiont_ecology.evaluate.evaluation_log import log_evaluation
    from symbiont_ecology.evaluate.measure import LoadedRun, SystemComparison
    from symbiont_ecology.evaluate.routings import routings

    run = LoadedRun.of_run(folder)
    items = spec.items(run)
    routings.build(spec.routing)
    model = console.open_run(folder, host).host
    with console.asking() as progress:
        systems = {
            name: run.evaluate(items, model, name, progress=progress)
            for name in dict.fromkeys(("host", "single", spec.routing))
        }
    for name, evaluation in systems.items():
        log_evaluation(evaluation, run, spec.model_copy(update={"routing": name}))
    comparison = SystemComparison(systems, spec.routing)
    tell_systems(comparison)
    return comparison.record()


def tell_systems(comparison: SystemComparison) -> None:
    """Print accuracies by family and system, how the main one differs, and what it costs."""
    console.print_table(console.accuracy_table(comparison.systems))
    for name, gap in comparison.differences.items():
        print(f"{comparison.main} - {name}: {console.points(gap)}")
    console.tell_answerers(comparison.systems[comparison.main])


def _evaluate_adapter(adapter: Path, spec: EvaluationSpec, host: str, style: str | None) -> Record:
    """Ask an adapter, and its bare host. All files are checked before the host is loaded."""
    from symbiont_ecology.adapters.peft_files import stated_rank
    from symbiont_ecology.base.config_layers import host_layer, parse_override
    from symbiont_ecology.evaluate.adapter_comparison import AdapterComparison
    from symbiont_ecology.evaluate.items import in_style, read_items, some_of
    from symbiont_ecology.evaluate.measure import evaluate_adapter
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.tasks.synthetic.styles import prompt_styles

    if spec.holdout is None:
        raise ConfigError("evaluate --adapter: expected --holdout FILE, a JSONL file of questions")
    items = some_of(read_items(spec.holdout), spec.most_asked)
    is_chat, stops, layer = False, tuple[str, ...](), host_layer(host)
    asked: Any = parse_override(f"style={style}") if style else layer.get("tasks", {})
    built = prompt_styles.build(asked["style"]) if "style" in asked else None
    if built and (style or built.is_chat):  # examples of a preset are not about any file
        items = in_style(items, built)
        is_chat, stops = built.is_chat, built.stops
    host = layer["host"]["model"]
    _check_fit(adapter, host)
    rank = stated_rank(adapter)
    kernel = HostKernel.from_pretrained(host, slots=1, rank=rank, is_chat=is_chat)
    with console.asking() as progress:
        bare, adapted = (
            evaluate_adapter(
                adapter, items, kernel, is_bare=is_bare, progress=progress, stops=stops
            )
            for is_bare in (True, False)
        )
    comparison = AdapterComparison(bare, adapted)
    tell_systems(comparison.systems)
    print(", ".join(f"{name}: {count}" for name, count in comparison.counts.items()))
    return comparison.record()


def _check_fit(adapter: Path, host: str) -> None:
    """Refuse an adapter that is damaged or made for a host of another width, before it is loaded.

    Raises:
        AdapterError: it is one of these.
        HostError: the host is not on this machine.
    """
    from symbiont_ecology.adapters.peft_files import (
        GROUPS,
        adapter_modules,
        ending_of,
        warn_of_base,
    )
    from symbiont_ecology.model.locating import check_is_here, local_folder, read_json

    modules, place = adapter_modules(adapter), local_folder(host)
    check_is_here(host)
    warn_of_base(adapter, host)
    width = read_json(place / "config.json").get("hidden_size") if place else None
    for module, (d_in, _) in modules.items():
        if width not in (None, d_in) and ending_of(module) in chain(*GROUPS):
            raise AdapterError(
                f"expected an adapter for a host of width {width}, got {d_in} for {module} in "
                f"{adapter}: name the host that it was made for, --host MODEL"
            )


def infer(
    folder: options.RunFolder,
    prompt: Annotated[str, argument("A question, such as 'math.add: 47+8'; - reads stdin.")],
    routing: options.RoutingOption = "learned",
    user: Annotated[str | None, option("Who asks.", *options.USER, metavar="ID")] = None,
    max_new_tokens: Annotated[int, option("Longest answer.", least=1)] = 64,
    host: options.HostOption = None,
) -> None:
    """Answer one prompt. The answer is on stdout, the name of the organelle on stderr.

    A run that learned from a log needs --user.
    """
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.evaluate.routings import prompt_routing, routings
    from symbiont_ecology.tasks.tables import check_whole

    way = routings.present_name(routing)
    prompt_routing(way)  # before the host: a wrong word costs no time
    if user is not None:
        if way not in ("learned", "user"):
            raise ConfigError(f"--routing: expected none beside --user, got {routing!r}")
        way = "user"
    run = console.open_run(folder, host)
    if user is None and run.config.learns_from_log:
        raise ConfigError(f"infer: {folder} learned from a log: expected who asks, --user ID")
    text = sys.stdin.read() if prompt == "-" else prompt
    check_whole([text], "infer")
    rollout = run.ask(text, way, max_new_tokens, user or "")
    print(rollout.text)
    name = "the bare host" if rollout.organelle_id == HOST else rollout.organelle_id
    print(f"answered by {name}", file=sys.stderr)


def export(
    folder: options.RunFolder,
    out: Annotated[
        Path | None, option("Folder to write to.", "--out", "--to", default="DIR/export")
    ] = None,
    elites: Annotated[bool, option("Also write the best of each cell or user.")] = False,
    reader: Annotated[str, option("What loads them: symbiont list readers.", "--for")] = "peft",
    scale: Annotated[float, option("Multiply ΔW; 0.65 keeps more of the model.")] = 1.0,
    host: options.HostOption = None,
) -> None:
    """Write the living organelles as PEFT folders with model cards, and an index.json. In a run
    with users only those that serve users are written, with a users.json."""
    from symbiont_ecology.evaluate.export import INDEX_FILE, USERS_FILE, export_run, readers

    loader = readers.build(reader)
    if not 0 < scale <= 100:
        raise ConfigError(f"--scale: expected more than 0 and at most 100, got {scale:g}")
    run, target = console.open_run(folder, host), out or folder / "export"
    console.prepare(target / INDEX_FILE)
    names = export_run(run, target, with_elites=elites, reader=loader, scale=scale)
    print(f"{len(names)} adapters in {target}, described in {target / INDEX_FILE}")
    if run.state.users:
        print(f"who serves whom: {target / USERS_FILE}")
    if names:
        words = ("evaluate", "--adapter", target / names[0], "--holdout", "FILE", "--host")
        usual = [f"next: {console.command_line(*words, run.config.host.model)}"]
        print("\n".join(loader.advice(run, target, names) or usual))
