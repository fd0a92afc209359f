"""What follows from an adapter beside its host, in plain words: each line from numbers that are
there."""

from __future__ import annotations

from collections.abc import Iterator

from symbiont_ecology.evaluation.adapter_comparison import AdapterComparison
from symbiont_ecology.evaluation.measure import EvaluationDifference
from symbiont_ecology.statistics import false_discovery, questions_needed

WORTH_FINDING, LEAST_SEEN = 0.05, 0.01
"""A difference that one would want to know of, and below which a difference that was seen is as
good as none."""
MOST_FALSE = 0.05
"""Share of false discoveries among families, or cells."""
NOTHING = 1e-3
"""Nats a token below which two systems read alike."""
MANY = 0.5
"""The share from which on something is the rule."""
FEW_WORSE = 2
"""Regressions of a family, or a cell, from which on they are told."""


def advice(found: AdapterComparison) -> list[str]:
    """Recommendations, the most important first."""
    return [*_on_whole(found), *_on_groups(found), *_on_answers(found), *_on_form(found)]


def _on_whole(found: AdapterComparison) -> Iterator[str]:
    """Whether the adapter is better at all."""
    apart = found.difference
    if all(pair.host.token_ids == pair.adapter.token_ids for pair in found.pairs):
        is_still = found.answers is None or abs(found.answers.change.estimate) < NOTHING
        yield "Every reply is the same with the adapter and without" + (
            ": it changes nothing here. Look whether it was trained, and for this host."
            if is_still
            else ", but it reads reference answers otherwise. Ask as it was trained: --style."
        )
    elif not any(found.host.verdicts) and not any(found.adapter.verdicts):
        yield (
            "No reply of either is right, so accuracy says nothing. Look at the examples: another "
            "style, or another grader, may show what they can do."
        )
    elif apart.low > 0:
        yield f"The adapter is better than its host: {_points(apart)}."
    elif apart.high < 0:
        yield f"The adapter is worse than its host: {_points(apart)}. Do not use it for this."
    else:
        yield _undecided(found, apart)


def _undecided(found: AdapterComparison, apart: EvaluationDifference) -> str:
    """What to ask if nothing is decided."""
    count = len(found.pairs)
    squares = sum((pair.adapter.verdict - pair.host.verdict) ** 2 for pair in found.pairs)
    changed = (squares + 2) / (count + 2)  # as in the interval of the difference
    is_seen = abs(apart.estimate) >= LEAST_SEEN
    size = abs(apart.estimate) if is_seen else WORTH_FINDING
    needed = questions_needed(max(changed, size), size)
    which = "the difference that was seen" if is_seen else f"one of {100 * size:.0f} points"
    return f"The interval includes 0 ({_points(apart)}): {count} questions do not decide. " + (
        f"If {which} is real, about {needed} questions find it four times out of five."
        if needed > count
        else "Ask other questions of the same kind, and decide by all of them."
    )


def _on_groups(found: AdapterComparison) -> Iterator[str]:
    """Where the adapter does harm."""
    groups = found.groups
    adjusted = false_discovery([part.difference.p for part in groups.values()])
    for (name, part), q in zip(groups.items(), adjusted, strict=True):
        gained, lost = part.counts["improvement"], part.counts["regression"]
        if lost <= gained or lost < FEW_WORSE or part.difference.estimate >= 0:
            continue
        beyond = f"this is beyond chance (q = {q:.2g})"
        may_be = "this may be chance: ask more of them"
        yield (
            f"In {name} regressions outweigh gains: {lost} against {gained} of "
            f"{len(part.pairs)}; {beyond if q < MOST_FALSE else may_be}."
        )


def _on_answers(found: AdapterComparison) -> Iterator[str]:
    """What the reference answers tell."""
    answers, apart = found.answers, found.difference
    if answers is None:
        return
    sizes = f"perplexity {answers.host_perplexity:.3g} without, {answers.perplexity:.3g} with it"
    if answers.change.low > 0 and apart.low <= 0:
        yield (
            f"Reference answers became likelier ({sizes}), but replies are not surely better: it "
            "learned something. Train longer, or look at the form of the replies."
        )
    elif answers.change.high < 0 and apart.low > 0:
        yield (
            f"Reference answers became less likely ({sizes}), though more replies are right: the "
            "adapter is surer of its mistakes."
        )
    elif answers.change.high < 0:
        yield (
            f"Reference answers became less likely ({sizes}): what the adapter learned is not "
            "what these questions want."
        )


def _on_form(found: AdapterComparison) -> Iterator[str]:
    """What may stand between an ability and a right answer, and what was lost elsewhere."""
    for name, one in (("host", found.host), ("adapter", found.adapter)):
        full = [len(each.token_ids) >= each.item.reply_limit for each in one.rollouts]
        if sum(full) > MANY * len(full):
            yield (
                f"{sum(full)} of {len(full)} replies of the {name} fill their limit of new tokens: "
                "a style with stop texts, or a larger reply_limit, may change what is right."
            )
    if (general := found.adapter.general) is None:
        return
    for kind, texts in (("Plain English", general.english), ("Conversation", general.chat)):
        if texts.change.high < 0:
            nats = -texts.change.estimate
            yield f"{kind} became less likely, by {nats:.2f} nats a token: the adapter forgets."


def _points(apart: EvaluationDifference) -> str:
    """A difference with its interval and test."""
    low, high = 100 * apart.low, 100 * apart.high
    return (
        f"{100 * apart.estimate:+.1f} points [{low:+.1f}, {high:+.1f}], "
        f"{apart.test} p = {apart.p:.2g}"
    )
