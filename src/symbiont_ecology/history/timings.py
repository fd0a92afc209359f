"""How long generations took, and what they spent it on: the side file of a run, which nothing
else depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from symbiont_ecology.engine.living import TIMINGS_FILE
from symbiont_ecology.errors import RunError
from symbiont_ecology.files import read_lines


@dataclass(frozen=True)
class Timing:
    """Seconds of a generation, and of each of its phases; none where an older version wrote it."""

    generation: int
    seconds: float
    phases: Mapping[str, float]


def read_timings(folder: Path) -> list[Timing]:
    """Of every generation the last time that it was lived.

    Raises:
        RunError: the file cannot be read, or is no file of timings.
    """
    path = folder / TIMINGS_FILE
    timings: dict[int, Timing] = {}
    for number, line in read_lines(path):
        try:
            generation, seconds = int(str(line["generation"])), float(str(line["seconds"]))
            spans = cast("Mapping[str, object]", line.get("phases", {}))
            phases = {name: float(str(part)) for name, part in dict(spans).items()}
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} line {number}: expected generation, seconds and phases, got {line!r:.80}"
            ) from error
        timings[generation] = Timing(generation, seconds, phases)
    return [timings[generation] for generation in sorted(timings)]
