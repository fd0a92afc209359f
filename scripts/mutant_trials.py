"""What ``scripts/mutants.py`` does with one module: its mutants, and the tests on each of them.

A function is changed in a process that is forked after the tests were collected: its code is
replaced, whoever has imported it. A number outside of functions is changed in a process that
imports everything anew.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import libcst as cst
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutmut.mutation.file_mutation import Mutation, create_mutations
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "mutants"
PACKAGE = "symbiont_ecology"
CPU_SECONDS, WALL_SECONDS = 20, 600
"""That the tests of one mutant may take; a mutant that takes longer is noticed, too."""
KILLED, LATE, LIVED, UNTESTED = "killed", "timed out", "survived", "not tested"
ALIVE = 250
"""The exit code of a process in which no test failed; others are the place of the test."""
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:warnings", "--hypothesis-profile=mutants")


@dataclass(frozen=True)
class Mutant:
    """A change, by the function or the name that it is in, and what became of it."""

    place: str
    before: str
    after: str
    end: str = UNTESTED

    @property
    def is_noticed(self) -> bool:
        """Whether some test failed, or took far too long."""
        return self.end in (KILLED, LATE)

    @property
    def key(self) -> tuple[str, str, str]:
        """The same as long as nobody changes that line."""
        return self.place, self.before, self.after


# How code is changed.


def _left_out(statement: cst.Expr) -> Iterator[cst.BaseSmallStatement]:
    if not isinstance(statement.value, cst.BaseString | cst.Ellipsis | cst.Yield):
        yield cst.Pass()


def _emptied(block: cst.IndentedBlock) -> Iterator[cst.IndentedBlock]:
    yield block.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])


OURS = [(cst.Expr, _left_out), (cst.IndentedBlock, _emptied)]


def undecorated(source: str) -> str:
    """The same module without decorators of functions, which mutmut would leave out."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            for expr in node.decorator_list:
                for number in range(expr.lineno, (expr.end_lineno or expr.lineno) + 1):
                    lines[number - 1] = ""
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Change:
    """A function with one change in it."""

    function: cst.FunctionDef
    mutation: Mutation
    qualname: str

    @cached_property
    def source(self) -> str:
        """Of the changed function."""
        changed = self.function.deep_replace(
            self.mutation.original_node, self.mutation.mutated_node
        )
        return _code(changed)

    @property
    def mutant(self) -> Mutant:
        """The lines that differ."""
        before, after = (
            [line.strip() for line in text.splitlines()]
            for text in (_code(self.function), self.source)
        )
        while before and after and before[0] == after[0]:
            del before[0], after[0]
        while before and after and before[-1] == after[-1]:
            del before[-1], after[-1]
        return Mutant(self.qualname, " ".join(before), " ".join(after))

    def apply(self, module: ModuleType) -> None:
        """Makes the change, whoever has imported the function already."""
        names = dict(vars(module))
        flags = annotations.compiler_flag
        exec(compile(self.source, module.__file__ or "", "exec", flags), names)
        changed, target = names[self.function.name.value], function_of(module, self.qualname)
        target.__code__ = changed.__code__
        target.__defaults__, target.__kwdefaults__ = changed.__defaults__, changed.__kwdefaults__


def _code(function: Any) -> str:
    return str(cst.Module([function.with_changes(leading_lines=[])]).code)


def function_of(module: ModuleType, qualname: str) -> FunctionType:
    """The plain function behind a name, whatever decorates it."""
    target: Any = module
    for part in qualname.split("."):
        target = vars(target)[part]
    for name in ("fget", "func", "__func__", "__wrapped__"):
        target = getattr(target, name, None) or target
    assert isinstance(target, FunctionType), qualname
    return target


def changes_of(source: str) -> list[Change]:
    """All of a module's functions, in their order."""
    module, mutations, _, _ = create_mutations("module", undecorated(source))
    names = dict[cst.FunctionDef, str]()
    for node in module.body:
        if isinstance(node, cst.FunctionDef):
            names[node] = node.name.value
        elif isinstance(node, cst.ClassDef):
            for method in node.body.body:
                if isinstance(method, cst.FunctionDef):
                    names[method] = f"{node.name.value}.{method.name.value}"
    return [
        Change(m.contained_by_top_level_function, m, names[m.contained_by_top_level_function])
        for m in mutations
        if m.contained_by_top_level_function in names
    ]


def numbers_of(source: str) -> Iterator[tuple[Mutant, str]]:
    """Changes of numbers outside of functions, with the source of the module that has each."""
    module, lines = ast.parse(source), source.splitlines()
    classes = [node.body for node in module.body if isinstance(node, ast.ClassDef)]
    for statements in (module.body, *classes):
        for node in statements:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            for part in ast.walk(node.value):
                if not isinstance(part, ast.Constant) or type(part.value) not in (int, float):
                    continue
                row = part.lineno - 1
                value: Any = part.value
                is_whole = isinstance(value, int)
                for number in (value - 1, value + 1) if is_whole else (value / 2, value * 2):
                    line = lines[row]
                    new = f"{line[: part.col_offset]}{number}{line[part.end_col_offset :]}"
                    texts = (text.partition("  #")[0].strip() for text in (line, new))
                    changed = [*lines[:row], new, *lines[row + 1 :]]
                    yield Mutant(ast.unparse(target), *texts), "\n".join(changed) + "\n"


# How mutants are tried.


class Notes:
    """What became of the mutants of a module, by their numbers, in a file."""

    def __init__(self, name: str, source: str) -> None:
        digest = hashlib.sha256(source.encode()).hexdigest()[:12]
        self.path = WORK / f"{name.removesuffix('.py').replace('/', '.')}-{digest}.jsonl"
        self.mutants = dict[int, Mutant]()
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                number, facts = json.loads(line)
                self.mutants[number] = Mutant(**facts)

    def add(self, number: int, mutant: Mutant) -> None:
        """At once: whoever interrupts this loses nothing."""
        self.mutants[number] = mutant
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([number, asdict(mutant)]) + "\n")
        if not mutant.is_noticed:
            print(f"  {mutant.end}: {mutant.place}: {mutant.before} ⟶ {mutant.after}", flush=True)

    def are_due(self, number: int, is_again: bool) -> bool:
        """Whether a mutant is still to be tried, or again."""
        mutant = self.mutants.get(number)
        return mutant is None or (is_again and not mutant.is_noticed)


class Trial:
    """Runs, in place of the tests, the tests of each change."""

    def __init__(self, module: ModuleType, changes: dict[int, Change], notes: Notes) -> None:
        self.module, self.changes, self.notes = module, changes, notes

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Finds out which tests call which functions, then tries one change after the other."""
        if session.testsfailed:
            return False
        items = sorted(session.items, key=lambda item: hasattr(_function(item), "hypothesis"))
        calls = _calls(items, self.module)
        gc.freeze()
        began = time.monotonic()
        for done, (number, change) in enumerate(self.changes.items()):
            places = calls.get(change.qualname, [])
            end, killer = _in_a_fork(change, self.module, [items[place] for place in places])
            if end == KILLED:  # likely the next one's, too
                places.insert(0, places.pop(killer))
            self.notes.add(number, Mutant(*change.mutant.key, end))
            seconds_left = (time.monotonic() - began) / (done + 1) * (len(self.changes) - done - 1)
            if done % 20 == 19:
                print(f"{done + 1} of {len(self.changes)}, {seconds_left:.0f} s left", flush=True)
        return True


def _function(item: pytest.Item) -> object:
    return getattr(item, "obj", None)


def _calls(items: Sequence[pytest.Item], module: ModuleType) -> dict[str, list[int]]:
    """Places of the tests that call each function, found out in a process of its own."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        callers, file = defaultdict[str, list[int]](list), str(module.__file__)

        def look(frame: FrameType, event: str, argument: object) -> None:
            """Notes the functions of the module, the outermost of nested ones."""
            code: CodeType = frame.f_code
            if event == "call" and code.co_filename == file:
                name = code.co_qualname.partition(".<locals>")[0]
                if place not in callers[name]:
                    callers[name].append(place)

        failed = False
        for place in range(len(items)):
            sys.setprofile(look)
            failed = failed or _fails(items, place)
            sys.setprofile(None)
        with os.fdopen(writing, "w") as pipe:
            json.dump(None if failed else callers, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    calls = json.loads(text or "null")
    if calls is None:
        raise pytest.UsageError("the tests fail without any change")
    return dict(calls)


def _in_a_fork(change: Change, module: ModuleType, items: Sequence[pytest.Item]) -> tuple[str, int]:
    """What becomes of one change, and by which of the tests."""
    if not items:
        return UNTESTED, 0
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it is waited for
    if not (child := os.fork()):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        gc.disable()  # what is not touched need not be copied
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        code, place = ALIVE, 0
        try:
            change.apply(module)
            for place in range(len(items)):
                if _fails(items, place):
                    code = min(place, ALIVE - 1)
                    break
        except BaseException:
            code = min(place, ALIVE - 1)
        os._exit(code)
    if signal.sigtimedwait({signal.SIGCHLD}, WALL_SECONDS) is None:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status[1]):
        return LATE, 0
    code = os.WEXITSTATUS(status[1])
    return (LIVED, 0) if code == ALIVE else (KILLED, code)


def _fails(items: Sequence[pytest.Item], place: int) -> bool:
    following = items[place + 1] if place + 1 < len(items) else None
    reports = runtestprotocol(items[place], nextitem=following, log=False)
    return any(report.failed for report in reports)


def _prepare() -> None:
    """Properties stop at the first failure, and do not look for a smaller one."""
    mutation_operators.extend(OURS)
    phases = (Phase.explicit, Phase.generate)
    profile: dict[str, Any] = {"derandomize": True, "deadline": None, "phases": phases}
    settings.register_profile("mutants", max_examples=25, **profile)


def tried(name: str, tests: Sequence[str], is_again: bool) -> list[Mutant]:
    """The mutants of a module, and what became of each."""
    _prepare()
    module = importlib.import_module(f"{PACKAGE}.{name.removesuffix('.py').replace('/', '.')}")
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    changes, notes = changes_of(source), Notes(name, source)
    numbers = dict(enumerate(numbers_of(source), start=len(changes)))
    due = {
        number: change for number, change in enumerate(changes) if notes.are_due(number, is_again)
    }
    if due:
        code = pytest.main([*PYTEST, *tests], plugins=[Trial(module, due, notes)])
        if code not in (0, 5):
            raise SystemExit(f"{name}: pytest ended with {code}")
    for number, (mutant, changed) in numbers.items():
        if notes.are_due(number, is_again):
            notes.add(number, Mutant(*mutant.key, _with_source(module, changed, tests)))
    return [notes.mutants[number] for number in range(len(changes) + len(numbers))]


def _with_source(module: ModuleType, source: str, tests: Sequence[str]) -> str:
    """What becomes of another source of a module, in a process that imports it anew."""
    script = Path(__file__).with_name("mutants.py")
    command = [sys.executable, str(script), "--source", module.__name__, "--", *tests]
    try:
        process = subprocess.run(
            command, cwd=ROOT, input=source, text=True, capture_output=True, timeout=WALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return LATE
    return KILLED if process.returncode else LIVED


def run_with_source(name: str, source: str, tests: Sequence[str]) -> int:
    """pytest's exit code where the module has that source."""
    _prepare()
    package = importlib.import_module(PACKAGE)
    parts = name.split(".")[1:]
    path = Path(str(package.__file__)).parent.joinpath(*parts).with_suffix(".py")

    class Changed(importlib.machinery.SourceFileLoader):
        """Gives the module the other source."""

        def get_code(self, fullname: str) -> CodeType:
            """Compiled in place of what the file says."""
            return compile(source, str(path), "exec", dont_inherit=True)

    class Finder:
        """Finds that module alone."""

        def find_spec(self, fullname: str, *_: object) -> Any:
            """Of the changed module."""
            if fullname == name:
                return importlib.util.spec_from_file_location(
                    name, path, loader=Changed(name, str(path))
                )
            return None

    for loaded in [module for module in sys.modules if module.partition(".")[0] == PACKAGE]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, Finder())
    return int(pytest.main(["-x", *PYTEST, *tests]))
