"""Every flag of every script of the original ecology (strangeloopcanon/evolora), and what it is
here.

``python scripts/original_table.py docs/coming-from.md`` writes the tables into the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from original import Flag, Script, generations_more, lines_per_cell, part_of_budget

BEGIN, END = "<!-- original -->\n", "<!-- /original -->"
"""What stands around the tables in the page."""


def left_out(why: str, *names: str, takes: str = "1") -> tuple[Flag, ...]:
    """Flags without which the command does the same, or nearly so; the reason is said."""
    return tuple(Flag(name, why=why, takes=takes) for name in names)


def refused(why: str, *names: str, takes: str = "1") -> tuple[Flag, ...]:
    """Flags that ask for something that is not here."""
    return tuple(Flag(name, why=why, takes=takes, is_refused=True) for name in names)


_NO_PICKLE = left_out("no file here is a pickle", "--allow-unsafe-pickle", takes="0")
_NO_HUMAN = left_out("no human is asked here", "--disable-human", takes="0")
_OWN_MODEL = left_out("a run is asked on its own host; another place of it is --host", "--model")
_OWN_DEVICE = left_out("a run is asked on its own device (host.device)", "--device")
_OWN_CONFIG = left_out("a run has its own config", "--config", "--seed", "--device", "--batch-size")
_ATTENTION = left_out("there is one kind of attention here", "--attn-implementation")
_VERBOSE = left_out("symbiont show prints replies of a run", "--verbose", takes="0")
_REMOTE_CODE = refused(
    "code that comes with a model is never run: take another model",
    "--trust-remote-code",
    takes="0",
)
_DRAWN = left_out(
    "questions of --max-samples are drawn at random, always the same ones",
    "--holdout-sampling",
    "--holdout-seed",
)
_LIMIT = left_out("every question says how long its reply may be", "--evo-selection-max-new-tokens")

_FINAL = (
    Flag("--final-holdout", "run.final_holdout={}"),
    Flag("--final-holdout-sample-size", "run.final_holdout_samples={}"),
)
_RUN = (
    Flag("--config", "{:config}"),
    Flag("--generations", "run.generations={}"),
    Flag("--output", "--out {}"),
    Flag("--device", "host.device={}", unless=("auto",)),
    Flag("--seed", "seed={}"),
    Flag("--batch-size", "strategy.questions={}"),
    *_NO_HUMAN,
    *_NO_PICKLE,
    Flag("--checkpoint-every", "run.checkpoint_every={}", unless=("0",)),
    *_FINAL,
)
_RESUME = (
    Flag("--resume-from", "{:run}"),
    Flag(
        "--generations", why="run.generations is what was lived, and so many more", is_computed=True
    ),
    *_OWN_CONFIG,
    *left_out("a run goes on in its own folder", "--output"),
    *_NO_HUMAN,
    *_NO_PICKLE,
    Flag("--checkpoint-every", "run.checkpoint_every={}", unless=("0",)),
    *_FINAL,
)
_CALIBRATE = (
    Flag("--config", "{:config}"),
    Flag("--output", "--out {}"),
    Flag("--calib-gens", "--generations {}"),
    Flag("--full-gens", "--full {}"),
    Flag("--checkpoint-every", "run.checkpoint_every={}"),
    Flag("--seed", "seed={}"),
    Flag("--device", "host.device={}", unless=("auto",)),
    Flag("--batch-size", "strategy.questions={}"),
    *_NO_HUMAN,
    *_FINAL,
    *left_out("symbiont report DIR is a command of its own", "--no-analyze", takes="0"),
)
_SFT_BUDGET = (
    Flag("--checkpoint", "--match {:run}"),
    *_NO_PICKLE,
    Flag("--token-budget", "--budget train_tokens --amount {}"),
    *refused(
        "its FLOPs are tokens × hidden size × 2, ours are all that are computed: give "
        "--token-budget N, or ours as --amount N",
        "--flops-budget",
    ),
    Flag("--wall-clock-budget-seconds", "--budget wall_clock_seconds --amount {}"),
    Flag("--match-budget-field", "--budget {}"),
    Flag(
        "--backprop-multiplier",
        why="--scale is divided by it where tokens are matched; FLOPs here hold backward passes",
        is_computed=True,
    ),
    Flag("--budget-scale", why="--scale is made of it", is_computed=True),
)
_SFT = (
    *_SFT_BUDGET,
    Flag("--data", "--data {}"),
    Flag("--model", "host.model={}"),
    *_REMOTE_CODE,
    *_ATTENTION,
    Flag("--lora-rank", "--ranks {}"),
    *left_out(
        "the adapters of the ecology have one alpha for all ranks, and SFT has the same",
        "--lora-alpha",
    ),
    Flag("--batch-size", "--questions {}"),
    Flag("--learning-rate", "--rates {}"),
    *left_out(
        "SFT has the optimizer of the ecology (Adam), so that the comparison is fair",
        *("--weight-decay", "--warmup-ratio", "--max-grad-norm", "--adam-epsilon"),
        *("--lr-scheduler-type", "--optim", "--engine"),
    ),
    *left_out("an answer that does not fit into the host is refused", "--max-length"),
    *left_out("the budget alone says when it ends", "--epochs"),
    *left_out(
        "runs are checkpointed and logged as all others", "--log-every-steps", "--save-every-steps"
    ),
    *left_out("a folder that exists goes on", "--resume", takes="0"),
    *left_out(
        "an adapter that is not finite is quarantined, and its step is not made",
        *("--max-consecutive-nonfinite", "--max-nonfinite-restarts"),
        *("--nonfinite-lr-reduce-factor", "--nonfinite-lr-min"),
    ),
    Flag("--output", "--out {}"),
    Flag("--device", "host.device={}", unless=("auto",)),
    Flag("--seed", "seed={}"),
)
_EVALUATE = (
    Flag("--holdout", "--holdout {}"),
    *_REMOTE_CODE,
    *_ATTENTION,
    *_NO_PICKLE,
    Flag("--max-samples", "--max-samples {}"),
    *_DRAWN,
    *refused(
        "--shift perturbed writes questions in other ways: it draws them, so leave --holdout out",
        "--grid-prompt-augmentations",
    ),
    *_VERBOSE,
    Flag("--output", "--json {}"),
)
_EVALUATE_RUN = (
    Flag("--evo-checkpoint", "{:run}"),
    Flag("--sft-adapter", "--sft {}"),
    *refused(
        "symbiont export writes every organelle as a PEFT folder: evaluate --adapter FOLDER",
        "--evo-organelle-id",
    ),
    Flag("--evo-selection-tasks", "--selection {}"),
    Flag("--evo-selection-max-samples", "--selection-max-samples {}"),
    *left_out("the draw of selection questions is always the same", "--evo-selection-seed"),
    *left_out("take the other families out of the file", "--evo-selection-family"),
    Flag("--evo-routing-json", "--routing-map {}"),
    Flag("--evo-eval-routing", "--routing {}"),
    *left_out("all candidates are asked", "--evo-selection-top-k-by-roi"),
    *left_out("without --selection practice judges", "--no-evo-selection", takes="0"),
    *_LIMIT,
    *_OWN_MODEL,
    *_OWN_DEVICE,
    *_EVALUATE,
)
_EVALUATE_ADAPTER = (
    Flag("--sft-adapter", "--adapter {}"),
    Flag("--model", "--host {}"),
    *left_out("an adapter is asked on the CPU", "--device"),
    *_EVALUATE,
)
_DATA = (
    Flag("--config", "{:config}"),
    Flag("--seed", "--seed {}"),
    *(
        Flag(name, why="--per-cell has lines of every cell, rounded up", is_computed=True)
        for name in ("--train-size", "--selection-size", "--holdout-size")
    ),
    *refused("every cell has as many lines: take families out, or in twice", "--weights-json"),
    Flag("--out-dir", "--out {} --sft"),
)
_TRANSFER = (
    Flag("--evo-checkpoint", "{:run}"),
    *left_out("every family of the run is a source, one per row", "--source-family"),
    *left_out("every family that is asked is a column", "--target-families", takes="+"),
    Flag("--holdout", "--holdout {}"),
    *left_out("all questions of the file are asked", "--samples-per-family"),
    *left_out("evaluate --sft compares with it", "--sft-adapter"),
    *_OWN_MODEL,
    *_OWN_DEVICE,
    *_NO_PICKLE,
    *_VERBOSE,
    Flag("--output", "--json {}"),
)
_SUITE = (
    Flag("--output", "--out {}"),
    Flag("--generations", "--set run.generations={}"),
    Flag("--seeds", "seeds={:list}"),
)
_ANALYZE = (
    *left_out(
        "the report is Markdown; symbiont evoscope DIR --figures FOLDER draws", "--plots", takes="0"
    ),
    *left_out("it is always written", "--report", takes="0"),
)
_EXPORT = (
    Flag("--run", "{}"),
    *left_out("a run has one checkpoint", "--checkpoint"),
    *left_out("all that live are written, in the order of their ids", "--top-n", "--sort-by"),
    Flag("--output", "--to {}"),
    *_NO_PICKLE,
)
_INFER = (
    *left_out("a run has its own config", "--config", "--rank", "--device"),
    *refused("load the PEFT folder with peft, or name the run: --run DIR", "--adapter"),
    Flag("--run", "{}"),
    *refused("the routing chooses: --routing, see symbiont list routings", "--organelle-id"),
    Flag("--prompt", "{}", takes="*"),
)
_LOOK = (Flag("--config", "{:config}"), Flag("--per-cell", "--per-cell {}"))
_PACK = (
    Flag("--frozen", "{}"),
    Flag("--single", "{}"),
    Flag("--ecology", "{}"),
    Flag("--output", "--out {}"),
    *_NO_PICKLE,
)
SCRIPTS = (
    Script("run_evolution", "run", _RUN),
    Script("run_evolution", "resume", _RESUME, "--resume-from", generations_more),
    Script("run_calibration_then_resume", "calibrate", _CALIBRATE),
    Script("run_sft", "sft", _SFT, more=part_of_budget),
    Script("evaluate_holdout", "evaluate", _EVALUATE_ADAPTER),
    Script("evaluate_holdout", "evaluate", _EVALUATE_RUN, "--evo-checkpoint"),
    Script("evaluate_transfer", "transfer", _TRANSFER),
    Script("generate_grid_datasets", "data", _DATA, more=lines_per_cell),
    Script("benchmark_suite", "suite --ci", _SUITE),
    Script("benchmark_suite", "suite", (Flag("--mode", "{:protocol}"), *_SUITE), "--mode"),
    Script("benchmark_suite", "suite", (Flag("--suite", "{}"), *_SUITE), "--suite"),
    Script("paper_pack", "pack", _PACK),
    Script("analyze_ecology_run", "report", _ANALYZE),
    Script("compare_runs", "diff"),
    Script("diagnose_model_capabilities", "look", _LOOK),
    Script("export_run_adapters", "export", _EXPORT),
    Script("infer_saved_adapter", "infer", _INFER),
)
"""The scripts that are here. Of several with one name the last one counts whose ``when`` was
typed."""
INSTEAD = {
    "bootstrap_ecology.py": "`symbiont run demo`",
    "build_holdout_paper_qwen3.py": "`symbiont data CONFIG --out DIR`; "
    "`evaluation/paper_holdout.jsonl` comes with the package",
    "colony_infer.py": '`symbiont infer DIR "prompt" --routing vote`; there are no colonies',
    "eval_gemma.py": "`symbiont run strategy/ecology host=gemma3-270m`, with families of yours",
    "eval_regex_generalization.py": "`symbiont look --host MODEL --tasks "
    "regex.match,regex.write,regex.mend,regex.find`",
    "evoscope.py": "`symbiont evoscope DIR`",
    "evoscope_anim.py": "`symbiont evoscope DIR`: the page plays the run",
    "generate_regex_generalization_datasets.py": "`symbiont data experiments/regex --out DIR "
    "--sft`",
    "generate_regex_grid_datasets.py": "`symbiont data experiments/regex --out DIR --sft`",
    "generate_regex_sft_data.py": "`symbiont data regex.write --out DIR --sft`",
    "llm_live.py": "no provider is called: models are on this machine",
    "merge_audit.py": "`symbiont report DIR`: its audit of trials and merges",
    "modal_*.py": "no cloud is called: copy the folder, and type the commands there",
    "run_grid_multiobjective_evo_vs_sft.sh": "`make calibrate-resume`, then `symbiont sft --match` "
    "and `symbiont evaluate --sft`; with seeds and tuning: `symbiont suite`",
    "run_ood_suite.py": "`symbiont evaluate DIR --shift depth --shift wording --shift "
    "shared-families --shift unrelated-families`",
    "run_regex_evo_vs_sft.sh": "`make regex-evo-vs-sft`",
    "run_regex_generalization_evo_vs_sft.sh": "`make regex-evo-vs-sft`",
    "visualize_grid.py": "`symbiont evoscope DIR --figures FOLDER`",
}
"""Scripts that are not here, and what to type instead."""
VARIABLES = {
    "FINAL_HOLDOUT_TASKS, FINAL_HOLDOUT": "`run.final_holdout`, in `make calibrate-resume` and in "
    "`scripts/run_paper_ecology_suite.sh`",
    "FINAL_HOLDOUT_SAMPLE_SIZE": "`run.final_holdout_samples`, likewise",
    "PY, VENV_BIN": "the interpreter of `scripts/*.sh`, as `PYTHON`",
    "CONFIG, OUTPUT, CALIB_GENS, FULL_GENS, CHECKPOINT_EVERY, SEED, DEVICE, BATCH_SIZE": "as "
    "there, in `make calibrate-resume`",
    "REGEX_CONFIG, REGEX_OUTPUT, REGEX_CALIB_GENS, REGEX_FULL_GENS, REGEX_CHECKPOINT_EVERY, "
    "REGEX_SEED, REGEX_DEVICE, REGEX_BATCH_SIZE, REGEX_EVAL_MAX_SAMPLES": "as there, in "
    "`make regex-evo-vs-sft`",
    "EVOLORA_PLASTICITY": "`hebbian` is `learning_rule=hebbian` in `run_evolution.py`, "
    "`run_calibration_then_resume.sh` and the make targets; `backprop` is the usual rule here",
    "EVOLORA_BP_REPLAY_SIZE, EVOLORA_BP_REPLAY_K": "`learning_rule.replay`: remembered answers "
    "for each rollout; how many are remembered is fixed",
    "DISABLE_HUMAN, REGEX_DISABLE_HUMAN, NO_ANALYZE, AGENT_MODE": "not read: there is nobody to "
    "ask, and a report is a command of its own",
    "MPLCONFIGDIR, TOKENIZERS_PARALLELISM, PYTORCH_MPS_HIGH_WATERMARK_RATIO": "matplotlib, "
    "tokenizers and torch read them themselves",
}
"""Environment variables of the original, and what heeds them here."""


def script_for(name: str, typed: Sequence[str]) -> Script:
    """The row of a script, by what was typed at it."""
    flags = {word.partition("=")[0] for word in typed}
    return [row for row in SCRIPTS if row.name == name and (not row.when or row.when in flags)][-1]


def tables() -> str:
    """The tables of the page, as Markdown."""
    lines = []
    for script in SCRIPTS:
        when = f" with `{script.when}`" if script.when else ""
        lines += [f"### {script.name}{when}", "", f"It is `symbiont {script.command}`.", ""]
        if script.flags:
            lines += ["| typed there | here |", "|---|---|"]
            lines += [f"| `{flag.name}` | {_meaning(flag)} |" for flag in script.flags]
            lines += [""]
    lines += ["### Other scripts", "", "| there | here |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in INSTEAD.items()]
    lines += ["", "### Variables", "", "| there | here |", "|---|---|"]
    for names, text in VARIABLES.items():
        listed = ", ".join(f"`{name}`" for name in names.split(", "))
        lines.append(f"| {listed} | {text} |")
    return "\n".join(lines) + "\n"


def _meaning(flag: Flag) -> str:
    """What stands behind a flag in the page."""
    if flag.is_refused:
        return f"refused: {flag.why}"
    if flag.is_computed:
        return flag.why
    if not flag.becomes:
        return f"left out: {flag.why}"
    text = flag.becomes
    for conversion in ("config", "list", "protocol", "run"):
        text = text.replace(f"{{:{conversion}}}", f"{conversion.upper()}")
    return f"`{text.replace('{}', 'VALUE')}`"


def main(page: Path) -> None:
    """Writes the tables into a page, between its marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    page.write_text(before + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
