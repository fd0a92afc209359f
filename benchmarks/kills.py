"""Whether every command that writes survives SIGKILL: killed and typed again, it must leave the
same bytes as one that was left alone.

    python benchmarks/kills.py [--kills 4] [--only run suite …] [--seed 0] [--json FILE]

Each command is left alone once, and what it writes when is noted. Then it is killed at points that
are drawn by name: every other one at a write, of which half leave an empty file, the others at any
moment. What is typed again after a kill is killed at another such point, and typed again. At the
end all files are compared, byte by byte. Commands are processes of their own, forked from one that
has loaded torch, since loading it would take most of the time. ``killed_commands.py`` has the
table of commands. Typed again with the same ``--json`` it goes on. Leaves with 1 when bytes differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kill_points import KillPoint, Watch, Write, drawn_point, watch_as_parent, writes_in
from killed_commands import COMMANDS, READERS, KilledCommand
from killed_setups import Setups
from sides import machine
from symbiont_ecology.engine.provenance import source
from symbiont_ecology.rng import Draw

TIMES = ("timings.jsonl", "*.log", "seconds.json")
"""Files that hold times, and so are not compared."""
SECONDS = '"seconds"'
"""A key of JSON files whose line holds a time."""
IN_A_ROW = 2
"""Kills of one command, one after the other."""
LONG = 8.0
"""CPU seconds from which on a command takes long."""
PATIENCE = 1800.0
"""Seconds after which a command that goes on is given up."""


@dataclass
class Outcome:
    """What came of the kills of a command."""

    writes: int = 0
    """Of the command that was left alone."""
    cpu: float = 0.0
    """Seconds of a core that it took."""
    kills: int = 0
    """Kills of a living process."""
    before_writing: int = 0
    """Those of them before the first write."""
    too_late: int = 0
    """Points that a command did not come to."""
    clean: int = 0
    """Kills after which the command, typed again, left the same bytes."""
    failures: list[str] = field(default_factory=list)

    def wanted(self, kills: int) -> int:
        """How many kills are enough: half as many of a command that takes long."""
        return kills if self.cpu < LONG else (kills + 1) // 2


@dataclass(frozen=True)
class Ended:
    """How a process ended: by SIGKILL, or by itself with a code and what it said."""

    is_killed: bool
    code: int
    said: str
    seconds: float
    cpu: float


@dataclass(frozen=True)
class LeftAlone:
    """What a command that nobody killed left, what it wrote when, and the seconds that it took."""

    files: dict[str, bytes]
    writes: list[Write]
    seconds: float
    cpu: float


class CommandError(Exception):
    """A command that was not killed failed."""


class Trials:
    """Kills of commands, in folders below a place."""

    def __init__(self, place: Path, seed: int) -> None:
        self._place, self._draw = place, Draw(seed)
        self._setups = Setups(place / "setups", self._finish)

    def outcome(self, name: str, kills: int) -> Outcome:
        """At least so many kills of a command, as far as it comes to the points that are drawn."""
        try:
            alone = self._left_alone(name, COMMANDS[name])
        except CommandError as error:
            return Outcome(failures=[str(error)])
        tally = Outcome(len(alone.writes), round(alone.cpu, 2))
        number, target = 0, tally.wanted(kills)
        while tally.kills < target and number < 2 * target:
            self._try(name, number, alone, tally)
            number += 1
        return tally

    def reader(self, name: str) -> Outcome:
        """A command that must not write."""
        count = len(self._left_alone(name, READERS[name]).writes)
        return Outcome(count, failures=[f"{name} wrote {count} times"] if count else [])

    def _left_alone(self, name: str, command: KilledCommand) -> LeftAlone:
        folder, log = self._fresh(command), self._place / "writes.log"
        log.unlink(missing_ok=True)
        ended = self._type(self._words(command, folder), folder, log)
        if ended.code:
            raise CommandError(f"{name}, left alone, left with {ended.code}: {ended.said}")
        return LeftAlone(contents(folder), writes_in(log), ended.seconds, ended.cpu)

    def _try(self, name: str, number: int, alone: LeftAlone, tally: Outcome) -> None:
        """A command that is killed and typed again until it comes to its end."""
        command, log, killed = COMMANDS[name], self._place / "ignored.log", list[KillPoint]()
        folder = self._fresh(command)
        for turn in range(IN_A_ROW):
            draw, is_timed = self._draw(name, number, turn), (number + turn) % 2 == 1
            point = drawn_point(alone.writes, alone.seconds, draw, is_timed=is_timed)
            ended = self._type(self._words(command, folder), folder, log, point)
            if not ended.is_killed:
                tally.too_late += ended.code == 0
                break
            tally.kills += 1
            tally.before_writing += point.writes == 0
            killed.append(point)
        else:
            ended = self._type(self._words(command, folder), folder, log)
        if not killed:
            return
        wrong = f"left with {ended.code}: {ended.said}" if ended.code else ""
        wrong = wrong or difference(alone.files, contents(folder))
        if wrong:
            tally.failures.append(f"{name} {number}, killed at {killed}: {wrong}")
        else:
            tally.clean += len(killed)

    def _fresh(self, command: KilledCommand) -> Path:
        """A folder with what a command needs, and nothing else."""
        folder = self._place / "world"
        shutil.rmtree(folder, ignore_errors=True)
        self._setups.lay(command.needs, folder)
        return folder

    def _words(self, command: KilledCommand, folder: Path) -> list[str]:
        is_begun = (folder / "work/config.yaml").exists()
        return self._setups.named(command.typed(is_begun=is_begun), folder)

    def _type(
        self, words: Sequence[str], folder: Path, log: Path, point: KillPoint | None = None
    ) -> Ended:
        return run_command(words, folder, Watch(str(folder), str(log), time.monotonic(), point))

    def _finish(self, words: Sequence[str], folder: Path) -> None:
        ended = run_command(words, folder)
        # A run that waits for people has done what it could.
        if ended.is_killed or ended.code not in (0, 130):
            raise CommandError(f"symbiont {' '.join(words)} left with {ended.code}: {ended.said}")


def run_command(words: Sequence[str], folder: Path, watch: Watch | None = None) -> Ended:
    """Types a command in a folder, in a process group of its own."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _be(words, folder, watch, output.fileno())
        status, cpu = _wait(child)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that it left behind
        seconds = time.monotonic() - began
        output.seek(0)
        text = " ".join(output.read().decode(errors="replace").split())[-1500:]
    is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    code = 0 if is_killed else os.waitstatus_to_exitcode(status)
    return Ended(is_killed, code, text, seconds, cpu)


def _be(words: Sequence[str], folder: Path, watch: Watch | None, output: int) -> None:
    """In the new process: the command, from its first word to its end."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        for number in (1, 2):
            os.dup2(output, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if words[0] == "host":
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        sys.argv = ["symbiont", *words]
        if watch is not None:
            watch.begin()
        from symbiont_ecology import cli

        cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> tuple[int, float]:
    """The status of a process that ended, and the CPU seconds that it took with its workers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return status, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGTERM)
            deadline += PATIENCE
        time.sleep(0.005)


def contents(folder: Path) -> dict[str, bytes]:
    """The files in a folder that are compared, without lines that hold a time."""
    return dict(_contents(folder))


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(fnmatch(path.name, kind) for kind in TIMES):
            continue
        data = path.read_bytes()
        if path.suffix == ".json" and SECONDS.encode() in data:
            lines = data.splitlines(keepends=True)
            data = b"".join(line for line in lines if SECONDS.encode() not in line)
        yield name, data


def difference(whole: dict[str, bytes], found: dict[str, bytes]) -> str:
    """What is not as it should be; nothing if all is."""
    names = sorted(whole.keys() | found.keys())
    wrong = [
        f"{name} {'missing' if name not in found else 'too much' if name not in whole else 'other'}"
        for name in names
        if whole.get(name) != found.get(name)
    ]
    return ", ".join(wrong[:6])


def load() -> None:
    """What commands import, before they are forked."""
    import matplotlib.figure
    import torch
    import transformers

    from symbiont_ecology import Comparison, Run, Suite, cli

    _ = matplotlib.figure, torch, transformers, Run, Suite, Comparison, cli


def main() -> int:
    """Kills what was asked for; 0 when all bytes are equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=4, help="of each command, at least")
    parser.add_argument("--only", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--readers", action="store_true", help="make sure that these write nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load()
    finished = _known(options)
    outcomes = {name: finished[name] for name in options.only if name in finished}
    began, pending = time.monotonic(), [name for name in options.only if name not in finished]
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        trials = Trials(Path(place).resolve(), options.seed)
        for number, name in enumerate(pending, 1):
            outcome = outcomes[name] = trials.outcome(name, options.kills)
            print(
                f"{number} of {len(pending)}, {time.monotonic() - began:.0f} s: {name}: "
                f"{outcome.kills} kills, {outcome.clean} clean, {outcome.too_late} too late",
                flush=True,
            )
            _write(outcomes, options)
        if options.readers:
            outcomes |= {name: trials.reader(name) for name in READERS}
    figures = _write(outcomes, options)
    print(json.dumps(figures["all"]))
    failures = [failure for outcome in outcomes.values() for failure in outcome.failures]
    print("\n".join(failures), end="\n" * bool(failures))
    return int(bool(failures))


def _known(options: argparse.Namespace) -> dict[str, Outcome]:
    """What the file of figures has of the same code and points, if nothing failed there."""
    if options.json is None or not options.json.exists():
        return {}
    figures = json.loads(options.json.read_text(encoding="utf-8"))
    if figures.get("of") != _of(options):
        return {}
    outcomes = {name: Outcome(**outcome) for name, outcome in figures["commands"].items()}
    return {
        name: outcome
        for name, outcome in outcomes.items()
        if not outcome.failures and outcome.kills >= outcome.wanted(options.kills)
    }


def _of(options: argparse.Namespace) -> dict[str, object]:
    return {"source": source(), "seed": options.seed}


def _write(outcomes: dict[str, Outcome], options: argparse.Namespace) -> dict[str, Any]:
    """The figures as they are now, also into the file."""
    counts = ("kills", "clean", "before_writing", "too_late")
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes.values()) for name in counts}
    commands = {name: asdict(outcome) for name, outcome in sorted(outcomes.items())}
    figures = {"machine": machine(), "of": _of(options), "all": sums, "commands": commands}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


if __name__ == "__mp_main__":
    watch_as_parent()
elif __name__ == "__main__":
    sys.exit(main())
