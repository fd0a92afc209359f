"""``infer`` and ``export``: adapters that a run has bred, put to use here or elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.cli import options
from symbiont_ecology.cli.console import command_line, open_run, prepare
from symbiont_ecology.cli.options import argument, option

MAX_SCALE = 100
PEFT = "peft"


def infer(
    folder: options.RunFolder,
    prompt: Annotated[str, argument("A question, such as 'math.add: 47+8'; - reads stdin.")],
    routing: options.RoutingOption = "learned",
    habitat: Annotated[
        str | None, option("The user who asks.", *options.USER, metavar="ID")
    ] = None,
    max_new_tokens: Annotated[int, option("Longest answer.", least=1)] = 64,
    host: options.HostOption = None,
) -> None:
    """Answer one prompt. The answer is on stdout, the name of the organelle on stderr.

    A run that learned from a log needs --habitat.
    """
    from symbiont_ecology.ecology import HOST
    from symbiont_ecology.evaluate.routings import check_user, prompt_routing
    from symbiont_ecology.tasks.tables import check_whole

    way = options.typed_spec(routing, "--routing")
    prompt_routing(way)  # before the host: a wrong word costs no time
    if habitat is not None:
        if way not in ("learned", "habitat"):
            raise ConfigError(
                f"--routing: expected none beside --habitat, whose server answers, got {routing!r}"
            )
        way = "habitat"
    run = open_run(folder, host)
    check_user(run.config, run.state.habitats, habitat, str(folder), "--habitat")
    text = sys.stdin.read() if prompt == "-" else prompt
    check_whole([text], "infer")
    rollout = run.ask(text, way, max_new_tokens, habitat or "")
    print(rollout.text)
    name = "the bare host" if rollout.organelle_id == HOST else rollout.organelle_id
    print(f"answered by {name}", file=sys.stderr)


def export(
    folder: options.RunFolder,
    to: Annotated[Path | None, option("Folder to write to.", default="DIR/export")] = None,
    elites: Annotated[bool, option("Also write the best of each cell or user.")] = False,
    reader: Annotated[str, option("What loads them: symbiont list readers.", "--for")] = PEFT,
    scale: Annotated[
        float, option("Multiply ΔW. 0.65 keeps more of what the model could do before.")
    ] = 1.0,
    host: options.HostOption = None,
) -> None:
    """Write the living organelles as PEFT folders with model cards, and an index.json. In a run
    with habitats only those that serve users are written, with a habitats.json."""
    from symbiont_ecology.evaluate.export import HABITATS_FILE, INDEX_FILE, export_run, readers

    loader = readers.build(reader)
    if not 0 < scale <= MAX_SCALE:
        raise ConfigError(f"--scale: expected more than 0 and at most {MAX_SCALE}, got {scale:g}")
    run, target = open_run(folder, host), to or folder / "export"
    prepare(target / INDEX_FILE)
    names = export_run(run, target, with_elites=elites, is_portable=loader.is_portable, scale=scale)
    print(f"{len(names)} adapters in {target}, described in {target / INDEX_FILE}")
    if run.state.habitats:
        print(f"who serves whom: {target / HABITATS_FILE}")
    if names:
        words = ("evaluate", "--adapter", target / names[0], "--holdout", "FILE", "--host")
        usual = [f"next: {command_line(*words, run.config.host.model)}"]
        print("\n".join(loader.advice(run, target, names) or usual))
