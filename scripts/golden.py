"""Golden runs: what a change of the code must not change.

    python scripts/golden.py run build/golden                     # on the fastest back end
    python scripts/golden.py run build/golden --back-end torch --only demo,city
    python scripts/golden.py compare build/before build/golden

``compare`` holds the events, replies and states of two sets of runs against each other: verdicts,
balances and hashes of weights have to be equal to the last byte. ``golden_map.json`` beside this
file lists the only exceptions: names that changed, and fields that are gone. To make the runs of an
earlier commit, check it out in another folder and call this script with that folder's Python.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

RUNS = {
    "demo": ["demo"],
    "city": ["habitats/city", "run.generations=40"],
    "steady": ["steady", "run.train_flops=1.5e11"],
    "single": ["steady_single", "run.train_flops=5e10"],
    "frozen": ["steady_frozen", "run.train_flops=2e10"],
    "hebbian": ["steady", "learning_rule=hebbian", "run.generations=25"],
    "drift": ["habitats/drift", "run.generations=30"],
    "es": ["es-countdown", "run.generations=4"],
    "ga": ["ga-gpt2", "run.generations=4"],
    "loralab": ["loralab", "run.generations=3"],
    "smollm2": ["habitats/styles", "run.generations=8"],
}
FILES = ("events.jsonl", "transcripts.jsonl", "state.json")
MAP = Path(__file__).with_name("golden_map.json")


def main() -> None:
    """Make golden runs, or compare two sets of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("--only", default=",".join(RUNS), help="names, separated by commas")
    run.add_argument("--back-end", choices=("native", "torch"), default="native")
    run.add_argument("--set", nargs="*", default=[], help="overrides of every config")
    compare = actions.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    live = actions.add_parser("live", help=argparse.SUPPRESS)
    live.add_argument("back_end")
    live.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.action == "live":
        _live(options.back_end, options.words)
    elif options.action == "run":
        for name in options.only.split(","):
            folder = options.out / f"{name}-{options.back_end}"
            words = [*RUNS[name], *options.set, "--out", str(folder)]
            shutil.rmtree(folder, ignore_errors=True)
            call = [sys.executable, __file__, "live", options.back_end, "--", "run", *words]
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr}")
            print(folder, flush=True)
    else:
        folders = [
            folder for folder in sorted(options.after.iterdir()) if (folder / FILES[0]).is_file()
        ]
        wrong = [line for folder in folders for line in _differences(options.before, folder)]
        print("\n".join(wrong) or f"equal: {', '.join(folder.name for folder in folders)}")
        raise SystemExit(bool(wrong))


def _live(back_end: str, words: list[str]) -> None:
    """Type a command with the compiled passes left out, if the back end is torch."""
    if back_end == "torch":
        from symbiont_ecology.model.backend.torch_backend import back_ends

        for name in set(back_ends.names()) - {"torch"}:
            back_ends[name].suits = lambda *_, **__: False  # type: ignore[method-assign]
    from symbiont_ecology.cli import main as command_line

    sys.argv[1:] = words
    command_line()


def _differences(before: Path, after: Path) -> Iterator[str]:
    """Yield the first difference of each file of a run."""
    names = json.loads(MAP.read_text(encoding="utf-8"))
    for file in FILES:
        old = _lines(before / after.name / file)
        new = _lines(after / file)
        pairs = zip_longest(old, new)
        for number, (was, now) in enumerate(pairs, 1):
            was = _mapped(was, names)
            now = _mapped(now, names)
            if was != now:
                yield f"{after.name}/{file}:{number}: {_first_difference(was, now)}"
                break


def _lines(path: Path) -> list[Any]:
    """Return the lines of a log, or a whole file of JSON as one line."""
    text = path.read_text(encoding="utf-8")
    return (
        [json.loads(text)] if path.suffix == ".json" else list(map(json.loads, text.splitlines()))
    )


def _mapped(value: Any, names: dict[str, Any]) -> Any:
    """Return a value with old names changed into new ones, and without fields that are gone."""
    if isinstance(value, list):
        return [_mapped(part, names) for part in value]
    if isinstance(value, dict):
        gone = [key for mark, keys in names["gone_beside"].items() if mark in value for key in keys]
        return {
            names["fields"].get(key, key): names["kinds"].get(part, part)
            if key == "kind" and isinstance(part, str)
            else _mapped(part, names)
            for key, part in value.items()
            if key not in names["gone"] and key not in gone
        }
    return value


def _first_difference(was: Any, now: Any, path: str = "") -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*was, *now]):
            if was.get(key) != now.get(key):
                return _first_difference(was.get(key), now.get(key), f"{path}.{key}")
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        place = next(place for place, part in enumerate(was) if part != now[place])
        return _first_difference(was[place], now[place], f"{path}[{place}]")
    return f"{path or 'line'} was {was!r:.120}, is {now!r:.120}"


if __name__ == "__main__":
    main()
