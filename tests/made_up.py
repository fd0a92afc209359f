"""Results of a suite that were made up, so that the truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symbiont_ecology.extensions.study.outcomes import parse_outcomes
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results


def made_up_results(
    protocol: Mapping[str, object], rows: Iterable[Mapping[str, object]]
) -> Results:
    """Results of a protocol and outcomes in plain values."""
    return Results(Protocol.model_validate(protocol), parse_outcomes(rows))
