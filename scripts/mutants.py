"""Mutation tests of what must never be wrong: the tests have to notice every small change of it.

    python scripts/mutants.py                               # all modules, long
    python scripts/mutants.py economics/ledger.py           # one of them
    python scripts/mutants.py --again weights/blobs.py      # those that survived last time alone
    python scripts/mutants.py --page                        # writes the table anew from the results

``[tool.mutants]`` in pyproject.toml names the modules and, for each, what pytest is told to run.
mutmut makes the mutants and runs the tests on them. It leaves three things out, which are added
here: decorated functions (they are decorated behind their end, which is the same), statements that
are left out, and numbers outside of functions (they are changed in the file, one at a time).

Results are in docs/results/mutants.json. The reason why a survivor may live is written there by
hand, and is kept as long as the survivor stays the same.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "src/symbiont_ecology"
RESULTS = ROOT / "docs" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"
WORK = ROOT / "build" / "mutants"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->"
SECONDS = 120
"""That tests may take on a number that was changed."""
COPIED = ("benchmarks", "config", "docs/results", "docs/merging.md", "tests")
MUTMUT = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["{module}"]
also_copy = {copied}
process_isolation = "forkserver"
pytest_add_cli_args = ["-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutants", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
track_dependencies = false
use_git_change_detection = false
timeout_multiplier = 5.0
timeout_constant = 5.0
"""
# Within the process that forks the mutants: an operator of our own, and properties that do not
# look for the smallest example of a failure.
RUN = """
import sys
import libcst as cst
from hypothesis import Phase, settings
from mutmut.__main__ import cli
from mutmut.mutation.mutators import mutation_operators

NOTHING = cst.SimpleStatementLine([cst.Pass()])

def without(statement):
    if not isinstance(statement.value, (cst.BaseString, cst.Ellipsis, cst.Yield)):
        yield cst.Pass()

def emptied(block):
    yield block.with_changes(body=[NOTHING])

mutation_operators.append((cst.Expr, without))
mutation_operators.append((cst.IndentedBlock, emptied))
phases = Phase.explicit, Phase.generate
profile = dict(max_examples=25, derandomize=True, deadline=None, phases=phases)
settings.register_profile("mutants", **profile)
cli(["run", "--max-children", "1", *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Mutant:
    """A change of one line, by the function or the name that it is in, and what became of it."""

    place: str
    before: str
    after: str
    end: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What is the same as long as nobody changes that line."""
        return self.place, self.before, self.after


def tried(module: str, tests: Sequence[str], again: bool) -> Iterator[Mutant]:
    """Every mutant of a module; ``again``: those that lived alone, others as last time."""
    folder = WORK / module.removesuffix(".py").replace("/", ".")
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    _copy(folder, module, tests)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    meta = folder / "mutants" / f"{PACKAGE}/{module}.meta"
    lived = [name for name, end in _ends(meta).items() if end not in ("killed", "timed out")]
    if lived or not again:
        command = [sys.executable, "-c", RUN, *(lived if again else [])]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"mutmut failed: type {sys.executable} -m mutmut run in {folder}")
    for name, end in _ends(meta).items():
        yield Mutant(*_shown(folder, module, name), end=end)
    yield from _numbers_tried(folder, module, tests, environment)


def _copy(folder: Path, module: str, tests: Sequence[str]) -> None:
    """A project of its own, in which the module's decorators come behind its functions."""
    for name in (*COPIED, "src"):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.pack", "unfinished")
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(source, target)
    source, target = ROOT / PACKAGE / module, folder / PACKAGE / module
    target.write_text(undecorated(source.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copystat(source, target)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    filters = settings["tool"]["pytest"]["ini_options"]["filterwarnings"]
    copied = json.dumps(list(COPIED))
    text = MUTMUT.format(module=f"{PACKAGE}/{module}", tests=json.dumps(list(tests)), copied=copied)
    text += f"\n[tool.pytest.ini_options]\nfilterwarnings = {json.dumps(filters)}\n"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def undecorated(source: str) -> str:
    """The same module with ``name = decorator(name)`` behind a function in place of ``@decorator``
    above it: mutmut leaves decorated functions out."""
    lines = source.splitlines()
    added: dict[int, list[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            for one in reversed(node.decorator_list):
                decorator = ast.unparse(one)
                if decorator in ("classmethod", "staticmethod"):  # which mutmut knows
                    continue
                for number in range(one.lineno, (one.end_lineno or one.lineno) + 1):
                    lines[number - 1] = ""
                indent = " " * node.col_offset
                text = f"{indent}{node.name} = {decorator}({node.name})"
                added.setdefault(node.end_lineno or node.lineno, []).append(text)
    whole = [[line, *added.get(number, [])] for number, line in enumerate(lines, start=1)]
    return "\n".join(line for part in whole for line in part) + "\n"


def _ends(meta: Path) -> dict[str, str]:
    """What became of mutmut's mutants, by their names."""
    if not meta.is_file():
        return {}
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    words = {0: "lived", 1: "killed", 3: "killed", 5: "not tested", 33: "not tested"}
    words |= dict.fromkeys((36, -24, 24, 152, 255), "timed out")
    return {name: words.get(code, f"ended with {code}") for name, code in codes.items()}


def _shown(folder: Path, module: str, name: str) -> tuple[str, str, str]:
    """The place of one of mutmut's mutants, and the lines that it changes."""
    mutated = folder / "mutants" / PACKAGE / module
    spans = json.loads(Path(f"{mutated}.spans").read_text(encoding="utf-8"))["spans"]
    short = name.rpartition(".")[2]
    stem = short.rpartition("_")[0]
    lines = mutated.read_text(encoding="utf-8").splitlines()
    original, changed = (
        [*lines[spans[one][0] - 1 : spans[one][1]]] for one in (f"{stem}_orig", short)
    )
    original = [line.strip() for line in original if "def x" not in line]
    changed = [line.strip() for line in changed if "def x" not in line]
    while original and changed and original[0] == changed[0]:
        del original[0], changed[0]
    while original and changed and original[-1] == changed[-1]:
        del original[-1], changed[-1]
    place = stem.removesuffix("__mutmut").removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return place, " ".join(original), " ".join(changed)


def _numbers_tried(
    folder: Path, module: str, tests: Sequence[str], environment: dict[str, str]
) -> Iterator[Mutant]:
    """The numbers outside of functions: whole ones one less and one more, others halved and
    doubled."""
    path = folder / PACKAGE / module
    source = path.read_text(encoding="utf-8")
    paths = os.pathsep.join([str(folder / "src")])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    for name, line, begin, end in numbers(source):
        lines = source.splitlines()
        number = lines[line][begin:end]
        value = ast.literal_eval(number)
        is_whole = isinstance(value, int)
        for other in (value - 1, value + 1) if is_whole else (value / 2, value * 2):
            changed = list(lines)
            changed[line] = lines[line][:begin] + repr(other) + lines[line][end:]
            path.write_text("\n".join(changed) + "\n", encoding="utf-8")
            try:
                ran = subprocess.run(
                    command,
                    cwd=folder,
                    env=environment | {"PYTHONPATH": paths},
                    timeout=SECONDS,
                    capture_output=True,
                )
                became = {0: "lived", 1: "killed", 2: "killed", 4: "killed"}[ran.returncode]
            except subprocess.TimeoutExpired:
                became = "timed out"
            finally:
                path.write_text(source, encoding="utf-8")
            before, after = (
                text.partition("  #")[0].strip() for text in (lines[line], changed[line])
            )
            yield Mutant(name, before, after, became)


def numbers(source: str) -> Iterator[tuple[str, int, int, int]]:
    """Names that are given numbers outside of functions, with the line and the columns of each
    number."""
    module = ast.parse(source)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    for within in (module, *classes):
        for node in within.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Constant) and type(part.value) in (int, float):
                        columns = part.col_offset, part.end_col_offset or part.col_offset
                        yield ast.unparse(target), part.lineno - 1, *columns


def told(modules: dict[str, dict[str, object]]) -> str:
    """The results as tables."""
    head = "| module | mutants | killed | timed out | survived | killed, % |\n|---|---|---|---|---|---|\n"
    rows, reasons = [], []
    total = Counter[str]()
    for module, found in modules.items():
        counts: Counter[str] = Counter(found["counts"])  # type: ignore[arg-type]
        total += counts
        rows.append(_row(f"`{module}`", counts))
        for one in found["survivors"]:  # type: ignore[attr-defined]
            cells = [one["place"], f"{one['before']} ⟶ {one['after']}"]
            reasons.append(
                f"| `{module}` {cells[0]} | `` {cells[1].replace('|', chr(92) + '|')} `` | {one['reason']} |"
            )
    table = head + "\n".join([*rows, _row("all", total)])
    second = "| where | survivor | reason |\n|---|---|---|\n" + "\n".join(reasons)
    return f"{table}\n\n{second}\n"


def _row(name: str, counts: Counter[str]) -> str:
    total, killed, late = counts.total(), counts["killed"], counts["timed out"]
    rest = total - killed - late
    return (
        f"| {name} | {total} | {killed} | {late} | {rest} | {100 * (killed + late) / total:.1f} |"
    )


def write_page(modules: dict[str, dict[str, object]]) -> None:
    """Puts the tables into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}{told(modules)}{END}{after}", encoding="utf-8")


def main() -> None:
    """Tries the modules and keeps what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="below src/symbiont_ecology; all, if none")
    parser.add_argument("--again", action="store_true", help="only what lived last time")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts: dict[str, list[str]] = settings["tool"]["mutants"]
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    for module in [] if options.page else options.modules or parts:
        began = time.monotonic()
        mutants = list(tried(module, parts[module], options.again))
        reasons = {
            (one["place"], one["before"], one["after"]): one["reason"]
            for one in known.get(module, {}).get("survivors", ())
        }
        survivors = [
            {
                **dict(zip(("place", "before", "after"), one.key, strict=True)),
                "reason": reasons.get(one.key, ""),
            }
            for one in mutants
            if one.end not in ("killed", "timed out")
        ]
        counts = Counter(one.end for one in mutants)
        known[module] = {"counts": dict(sorted(counts.items())), "survivors": survivors}
        known = {name: known[name] for name in parts if name in known}
        RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{module}: {dict(counts)}, {time.monotonic() - began:.0f} s", flush=True)
    if PAGE.is_file():
        write_page(known)


if __name__ == "__main__":
    main()
