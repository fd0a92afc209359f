"""Results of a suite that were made up, so that the truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symbiont_ecology.analysis.results import Results
from symbiont_ecology.experiments.outcomes import ReportedOutcome, parse_outcomes
from symbiont_ecology.experiments.protocol import Protocol


def made_up_results(
    protocol: Mapping[str, object], rows: Iterable[Mapping[str, object]]
) -> Results:
    """Results of a protocol and outcomes in plain values."""
    reported = [outcome for outcome in parse_outcomes(rows) if isinstance(outcome, ReportedOutcome)]
    return Results(Protocol.model_validate(protocol), reported)
