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


def _on_whole(comparison: AdapterComparison) -> Iterator[str]:
    """Whether the adapter is better at all."""
    difference = comparison.difference
    if all(pair.host.token_ids == pair.adapter.token_ids for pair in comparison.pairs):
        is_still = comparison.answers is None or abs(comparison.answers.change.estimate) < NOTHING
        yield "Every reply is the same with the adapter and without" + (
            ": it changes nothing here. Look whether it was trained, and for this host."
            if is_still
            else ", but it reads reference answers otherwise. Ask as it was trained: --style."
        )
    elif not any(comparison.host.verdicts) and not any(comparison.adapter.verdicts):
        yield (
            "No reply of either is right, so accuracy says nothing. Look at the examples: another "
            "style, or another grader, may show what they can do."
        )
    elif difference.low > 0:
        yield f"The adapter is better than its host: {_points(difference)}."
    elif difference.high < 0:
        yield f"The adapter is worse than its host: {_points(difference)}. Do not use it for this."
    else:
        yield _undecided(comparison, difference)


def _undecided(comparison: AdapterComparison, difference: EvaluationDifference) -> str:
    """What to ask if nothing is decided."""
    count = len(comparison.pairs)
    squares = sum((pair.adapter.verdict - pair.host.verdict) ** 2 for pair in comparison.pairs)
    changed = (squares + 2) / (count + 2)  # as in the interval of the difference
    is_seen = abs(difference.estimate) >= LEAST_SEEN
    size = abs(difference.estimate) if is_seen else WORTH_FINDING
    needed = questions_needed(max(changed, size), size)
    effect = "the difference that was seen" if is_seen else f"one of {100 * size:.0f} points"
    return f"The interval includes 0 ({_points(difference)}): {count} questions do not decide. " + (
        f"If {effect} is real, about {needed} questions find it four times out of five."
        if needed > count
        else "Ask other questions of the same kind, and decide by all of them."
    )


def _on_groups(comparison: AdapterComparison) -> Iterator[str]:
    """Where the adapter does harm."""
    groups = comparison.groups
    q_values = false_discovery([part.difference.p for part in groups.values()])
    for (name, part), q in zip(groups.items(), q_values, strict=True):
        gains, losses = part.counts["improvement"], part.counts["regression"]
        if losses <= gains or losses < FEW_WORSE or part.difference.estimate >= 0:
            continue
        claim = f"this is beyond chance (q = {q:.2g})"
        doubt = "this may be chance: ask more of them"
        yield (
            f"In {name} regressions outweigh gains: {losses} against {gains} of "
            f"{len(part.pairs)}; {claim if q < MOST_FALSE else doubt}."
        )


def _on_answers(comparison: AdapterComparison) -> Iterator[str]:
    """What the reference answers tell."""
    answers, difference = comparison.answers, comparison.difference
    if answers is None:
        return
    sizes = f"perplexity {answers.host_perplexity:.3g} without, {answers.perplexity:.3g} with it"
    if answers.change.low > 0 and difference.low <= 0:
        yield (
            f"Reference answers became likelier ({sizes}), but replies are not surely better: it "
            "learned something. Train longer, or look at the form of the replies."
        )
    elif answers.change.high < 0 and difference.low > 0:
        yield (
            f"Reference answers became less likely ({sizes}), though more replies are right: the "
            "adapter is surer of its mistakes."
        )
    elif answers.change.high < 0:
        yield (
            f"Reference answers became less likely ({sizes}): what the adapter learned is not "
            "what these questions want."
        )


def _on_form(comparison: AdapterComparison) -> Iterator[str]:
    """What may stand between an ability and a right answer, and what was lost elsewhere."""
    for name, evaluation in (("host", comparison.host), ("adapter", comparison.adapter)):
        full = [
            len(rollout.token_ids) >= rollout.item.reply_limit for rollout in evaluation.rollouts
        ]
        if sum(full) > MANY * len(full):
            yield (
                f"{sum(full)} of {len(full)} replies of the {name} fill their limit of new tokens: "
                "a style with stop texts, or a larger reply_limit, may change what is right."
            )
    if (general := comparison.adapter.general) is None:
        return
    for kind, texts in (("Plain English", general.english), ("Conversation", general.chat)):
        if texts.change.high < 0:
            nats = -texts.change.estimate
            yield f"{kind} became less likely, by {nats:.2f} nats a token: the adapter forgets."


def _points(difference: EvaluationDifference) -> str:
    """A difference with its interval and test."""
    low, high = 100 * difference.low, 100 * difference.high
    return (
        f"{100 * difference.estimate:+.1f} points [{low:+.1f}, {high:+.1f}], "
        f"{difference.test} p = {difference.p:.2g}"
    )
