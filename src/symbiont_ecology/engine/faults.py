"""What is made of the faults of parts that others wrote: events, a line of warning, or the end of
the run."""

import warnings

from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.errors import EcologyWarning
from symbiont_ecology.events import PartFailed


def faults_of(turn: Turn) -> list[PartFailed]:
    """The events that name parts which failed in a generation. A part that fails for the first time
    in this process is warned of; the log has the rest.

    Raises:
        RunError: one of them does nothing but fail.
    """
    turn.faults.check(turn.state.faults)
    failed = [(part, tally) for part, tally in turn.faults.tallies.items() if tally.failed]
    for part, tally in failed:
        if part not in turn.warned:
            turn.warned.add(part)
            line = f"{part} {tally.fault}: the event log counts how often"
            warnings.warn(line, EcologyWarning, stacklevel=2)
    return [
        PartFailed(turn.state.generation, part, tally.calls, tally.failed, tally.fault)
        for part, tally in failed
        if tally.is_told
    ]
