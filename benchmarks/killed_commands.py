"""Every command that writes, in a world so small that it takes seconds, and what it begins with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

SMALL = (
    "host.rank=2 'host.targets=[q_proj,v_proj]' 'tasks.families=[math.add,word.count]' "
    "'tasks.depths=[short]' run.checkpoint_every=2"
)
ECOLOGY = f"base {SMALL} strategy.questions=2 run.generations=8"
USERS = (
    f"habitats/town {SMALL} tasks.habitats.count=6 tasks.habitats.kinds=2 "
    "tasks.habitats.questions=6 run.generations=6"
)
ES = "'strategy={kind: es, population: 4, questions: 2}' learning_rule=none"
GENETIC = "'strategy={kind: genetic, population: 4, elite: 2, questions: 2}' learning_rule=none"
EXPERIMENT = """
name: tiny
question: does it hold?
base: [base]
set: [host.rank=2, "tasks.families=[math.add, logic.bool]", "tasks.depths=[short]"]
unit_flops: 5.0e+8
budgets: [1]
seeds: [0, 1]
"""
PROTOCOL = (
    EXPERIMENT
    + """\
tuning_seeds: [7]
main: single
shifts: [in-distribution]
per_cell: 4
tuning_per_cell: 3
arms:
  single:
    about: one adapter
    set: [strategy.kind=single, strategy.samples=2]
    routing: single
    tune: [[strategy.questions=1], [strategy.questions=2]]
  alone-routed: {about: the same behind a router, of: single}
"""
)
ABLATION = (
    EXPERIMENT
    + """\
per_cell: 4
flip: {at: 1, back: 1.5, extra: [0, 0.5], per_cell: 3}
rows:
  - {mechanism: rent, purpose: energy, about: what is held costs, change: [economy.rent=0]}
"""
)
QUESTIONS = "data math.add word.count --out {} --per-cell 4 --depths short --sft"


@dataclass(frozen=True)
class KilledCommand:
    """A command as it is typed, in a folder that holds what it ``needs``.

    ``again`` is what is typed after a kill once there is a ``config.yaml`` in ``work``; before, and
    where nothing is given, it is the same command.
    """

    words: str
    needs: tuple[str, ...] = ()
    again: str = ""

    def typed(self, *, is_begun: bool) -> list[str]:
        """The words of the command, or what goes on with it."""
        return shlex.split(self.again if is_begun and self.again else self.words)


def living(words: str, needs: tuple[str, ...] = ()) -> KilledCommand:
    """A run in ``work``, with which resume goes on."""
    return KilledCommand(f"run {words} --out work -q", needs, "resume work -q")


@dataclass(frozen=True)
class Setup:
    """What commands begin with: other setups, and commands that are typed there."""

    needs: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


MADE: Mapping[str, Setup] = {
    "run": Setup(typed=(f"run {ECOLOGY} --out run -q",)),
    "other": Setup(typed=(f"run {ECOLOGY} seed=1 --out other -q",)),
    "half": Setup(typed=(f"run {ECOLOGY} run.generations=3 --out work -q",)),
    "town": Setup(typed=(f"run {USERS} --out town -q",)),
    "questions": Setup(typed=(QUESTIONS.format("questions"),)),
    "adapters": Setup(("run",), ("export run --to adapters",)),
    "plans": Setup(),
    "suite": Setup(("plans",), ("suite tiny.yaml --out suite --workers 1",)),
    "pack": Setup(("suite",), ("pack suite --out packs/tiny",)),
    "damaged": Setup(("run",), ("evaluate run --per-cell 1",)),
    "table": Setup(),
    "wheels": Setup(),
    "held": Setup(("wheels",), ("host get tiny --from wheels",)),
}
"""The setups by name; what else is made by hand, ``killed_setups.py`` has."""

COMMANDS: Mapping[str, KilledCommand] = {
    "run": living(ECOLOGY),
    "run, users": living(USERS),
    "run, evolution strategies": living(f"base {SMALL} {ES} run.generations=6"),
    "run, genetic": living(f"base {SMALL} {GENETIC} run.generations=6"),
    "run, final holdout": living(
        f"{ECOLOGY} run.final_holdout=questions/holdout.jsonl", ("questions",)
    ),
    "resume": KilledCommand("resume work run.generations=8 -q", ("half",)),
    "evolve": KilledCommand(
        f"evolve {SMALL} strategy.ranks=[1,2] --quick-test --out work -q",
        again="evolve --resume work -q",
    ),
    "calibrate": KilledCommand(
        f"calibrate base {SMALL} strategy.questions=2 --generations 4 --full 8 --out work -q"
    ),
    "learn-from": KilledCommand(
        "learn-from logs/thumbs.jsonl host.rank=2 'host.targets=[q_proj,v_proj]' "
        "run.generations=4 run.checkpoint_every=1 --out work -q"
    ),
    "demo": KilledCommand(
        f"demo {SMALL} run.generations=6 tasks.habitats.count=6 tasks.habitats.kinds=2 "
        "tasks.habitats.arrivals=2 "
        "tasks.habitats.drift_at=4 --out work -q"
    ),
    "demo-real": KilledCommand(
        "demo-real host.model=embedded host.rank=2 'tasks.arrivals=[4.0e+9, 5.0e+9, 6.0e+9]' "
        "run.train_flops=7.0e+9 strategy.warm=1 strategy.questions=2 strategy.samples=2 "
        "run.checkpoint_every=2 --per-cell 2 --out work -q"
    ),
    "evaluate": KilledCommand(
        "evaluate run --holdout questions/holdout.jsonl --selection questions/selection.jsonl "
        "--json out.json",
        ("run", "questions"),
    ),
    "evaluate, adapter": KilledCommand(
        "evaluate --adapter adapters/{best} --holdout questions/holdout.jsonl --compare "
        "--report page.md --json out.json",
        ("adapters", "questions"),
    ),
    "transfer": KilledCommand("transfer run --per-cell 2 --json out.json", ("run",)),
    "compare": KilledCommand("compare run other --per-cell 2 --json out.json", ("run", "other")),
    "diff": KilledCommand("diff run other --json out.json", ("run", "other")),
    "show": KilledCommand("show run --json out.json", ("run",)),
    "look": KilledCommand(
        f"look base {SMALL} --style terse --per-cell 1 --samples 1 --json out.json"
    ),
    "sft": KilledCommand(
        "sft --match run --rates 0.01 --per-cell 2 --amount 1e9 --workers 1 --out work", ("run",)
    ),
    "suite": KilledCommand("suite tiny.yaml --out work --workers 1 --json out.json", ("plans",)),
    "ablate": KilledCommand(
        "ablate rent.yaml --out work --page pages/rent.md --workers 1", ("plans",)
    ),
    "pack": KilledCommand("pack suite --out packs/tiny", ("suite",)),
    "pack, runs": KilledCommand("pack run other --per-cell 1 --out packs/runs", ("run", "other")),
    "pack, again": KilledCommand("pack packs/tiny", ("pack",)),
    "report": KilledCommand("report run", ("run",)),
    "export": KilledCommand("export run --elites", ("run",)),
    "export, users": KilledCommand("export town --for vllm", ("town",)),
    "publish": KilledCommand("publish run me/adapter --per-cell 2", ("run",)),
    "infer": KilledCommand("infer run 'math.add: 4+7'", ("run",)),
    "phylogeny": KilledCommand("phylogeny run", ("run",)),
    "evoscope": KilledCommand("evoscope run --figures figures", ("run",)),
    "evoscope, film": KilledCommand("evoscope town --animate film.gif", ("town",)),
    "data": KilledCommand(QUESTIONS.format("work")),
    "datasets convert": KilledCommand(
        "datasets convert table.jsonl --name own --out work/own.jsonl", ("table",)
    ),
    "verify": KilledCommand("verify damaged --repair", ("damaged",)),
    "host get": KilledCommand("host get tiny --from wheels", ("wheels",)),
    "host remove": KilledCommand("host remove tiny", ("held",)),
}
"""Commands by name; behind a comma stands what differs from others of that name."""

NOT_KILLED: Mapping[str, str] = {
    "serve": "answers people, who come at any moment: benchmarks/service_faults.py kills it, and "
    "looks for all that it had acknowledged",
    "key": "draws another key each time; it adds one line in one write",
    "bench": "writes nothing but times",
    "doctor": "writes nothing but times",
    "lm-eval": "is another program's command line, which writes its own results; of a run it reads",
    "datasets get": "needs the network; it writes as datasets convert does",
}
"""Commands that write and are left out, and why."""

READERS: Mapping[str, KilledCommand] = {
    "explain": KilledCommand("explain strategies ecology"),
    "list": KilledCommand("list presets"),
    "host list": KilledCommand("host list", ("held",)),
    "host info": KilledCommand("host info tiny", ("held",)),
    "datasets list": KilledCommand("datasets list"),
}
"""Commands that write nothing."""
