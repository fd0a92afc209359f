"""Whether a run survives SIGKILL: killed at random moments and resumed, it must end in the same
bytes.

    python benchmarks/kill_resume.py [--kills 20] [--model FOLDER] [--seed 0] [--json FILE]

Runs the real command line on the real kernel, in processes of their own: once left alone, once
killed again and again. A kill falls at a random moment after the log is first touched; every fourth
falls within three seconds of the start, mostly while the host is being loaded. Prints PASS or FAIL
and one line of JSON; leaves with 1 when bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FILES = ("config.yaml", "provenance.json", "state.json", "events.jsonl")
PATIENCE = 600.0
"""Seconds after which a process that does nothing is given up."""


def main() -> int:
    """Runs the comparison; 0 when the bytes are equal."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="kill-resume-") as name:
        result = compare(arguments, Path(name))
    print("PASS" if result["passed"] else "FAIL")
    print(json.dumps(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["passed"] else 1


def parse() -> argparse.Namespace:
    """The command line of this benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="embedded", help="the host, as in host.model")
    parser.add_argument("--config", default="steady", help="preset or YAML file that is made small")
    parser.add_argument(
        "--generations", type=int, default=None, help="length of the run (default 4 per kill)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args()


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both runs, and what was found."""
    generations = arguments.generations or 4 * arguments.kills
    changes = [
        f"host.model={arguments.model}",
        "tasks.families=[math.add,logic.bool,string.sort]",
        "tasks.depths=[short]",
        f"run.generations={generations}",
        "run.train_flops=null",
        "run.checkpoint_every=2",
    ]
    whole, killed = folder / "whole", folder / "killed"
    found = ["run", arguments.config, *changes, "--quiet", "--out"]
    finish([*found, str(whole)])
    loop = sum(
        json.loads(line)["seconds"] for line in (whole / "timings.jsonl").read_text().splitlines()
    )
    print(f"left alone: {generations} generations in {loop:.1f} s", flush=True)

    generator = np.random.default_rng(arguments.seed)
    struck: list[int] = []
    early = 0
    for number in range(arguments.kills):
        words = (
            ["resume", str(killed), "--quiet"]
            if (killed / FILES[0]).exists()
            else [*found, str(killed)]
        )
        is_early = number % 4 == 3
        moment = generator.uniform(0, 3.0 if is_early else 2 * loop / arguments.kills)
        if not kill(words, killed / "events.jsonl", moment, is_early):
            break  # it came to its end first
        early += is_early
        struck.append(generation_of(killed))
        print(f"kill {number + 1} of {arguments.kills}: in generation {struck[-1]}", flush=True)
    finish(["resume", str(killed), "--quiet"])

    digests = {name: (digest(whole / name), digest(killed / name)) for name in FILES}
    blobs = [sorted(path.name for path in (run / "blobs").iterdir()) for run in (whole, killed)]
    equal = {name: left == right for name, (left, right) in digests.items()} | {
        "blobs": blobs[0] == blobs[1]
    }
    return {
        "passed": all(equal.values()) and len(struck) >= arguments.kills / 2,
        "kills": len(struck),
        "while_loading": early,
        "generations": generations,
        "killed_in": struck,
        "model": arguments.model,
        "seed": arguments.seed,
        "loop_seconds": round(loop, 2),
        "equal": equal,
        "sha256": {name: left for name, (left, _) in digests.items()},
    }


def symbiont(words: Sequence[str]) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "symbiont_ecology.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(words: Sequence[str]) -> None:
    """A command that must come to its end."""
    process = symbiont(words)
    said, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"symbiont {' '.join(words)} left with {process.returncode}: {said}")


def kill(words: Sequence[str], log: Path, moment: float, is_early: bool) -> bool:
    """Starts a command and kills it; False when it ended by itself before the moment came."""
    before = touched(log)
    process = symbiont(words)
    deadline = time.monotonic() + PATIENCE
    while not is_early and touched(log) == before and process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit(f"symbiont {' '.join(words)} did nothing for {PATIENCE:.0f} s")
        time.sleep(0.01)
    try:
        process.wait(timeout=moment)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    said, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"symbiont {' '.join(words)} left with {process.returncode}: {said}")
    return False


def touched(path: Path) -> int:
    """When a file was last written, in nanoseconds; 0 when there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def generation_of(run: Path) -> int:
    """How many generations a log holds, lost ones included."""
    log = run / "events.jsonl"
    return log.read_bytes().count(b'"GenerationEnded"') if log.exists() else 0


def digest(path: Path) -> str:
    """Hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
