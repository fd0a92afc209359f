"""Who of a portfolio answers a question: one function per way, from questions to answers.

*host*: the bare host. *single*: the one candidate that is best over all cells. *family* and *cell*:
the elite with the best record there; oracles, since they read labels. *learned*: the run's
label-free router, which may abstain to the host; *committed*: the same without abstaining. *vote*:
what most of the router's favourites say. *cascade*: the router's favourite, and the next one where
it is unsure. *surest*: everyone, and who is surest has the say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import Cost
from symbiont_ecology.errors import ConfigError, DataError
from symbiont_ecology.evaluation.answers import Answer
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.inference.pool import AdapterPool
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.tasks.grading import final_answer
from symbiont_ecology.types import OrganelleId

VOTERS = 3
"""How many are asked in a vote, and at most in a cascade."""
CONFIDENT = -0.05
"""Mean log-probability per token, in nats, from which an answer of a cascade stands."""

Ask = Callable[[Sequence[Question], Sequence[OrganelleId]], list[Answer]]
Routing = Callable[[AdapterPool, Sequence[Question], Ask], list[Answer]]


def host(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The bare host answers everything."""
    return ask(questions, [HOST] * len(questions))


def single(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The best candidate answers everything."""
    return ask(questions, [portfolio.best()] * len(questions))


def family(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The best elite of any cell of the question's family."""
    cells: dict[str, list[str]] = {}
    for cell in portfolio.scores:
        cells.setdefault(cell.rpartition("/")[0], []).append(cell)
    chosen = {one.family: portfolio.best_of(cells.get(one.family, [])) for one in questions}
    return ask(questions, [chosen[one.family] for one in questions])


def cell(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The best elite of the question's cell."""
    chosen = {one.cell: portfolio.best_of([one.cell]) for one in questions}
    return ask(questions, [chosen[one.cell] for one in questions])


def learned(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """Whoever the router promises most of, the host included."""
    return ask(questions, [favourites[0] for favourites in _ranked(portfolio, questions, 1)])


def committed(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """Whoever of the organelles the router promises most of."""
    ranked = _ranked(portfolio, questions, 2)
    return ask(
        questions,
        [
            next((organelle_id for organelle_id in some if organelle_id != HOST), HOST)
            for some in ranked
        ],
    )


def vote(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The favourites answer; the final answer that most of them give stands, the favourite's in a
    tie."""
    ranked = _ranked(portfolio, questions, VOTERS)
    ballots: list[list[Answer]] = [[] for _ in questions]
    for place in range(max(map(len, ranked), default=0)):
        asked = [index for index, some in enumerate(ranked) if place < len(some)]
        answers = ask(
            [questions[index] for index in asked], [ranked[index][place] for index in asked]
        )
        for index, one in zip(asked, answers, strict=True):
            ballots[index].append(one)
    return [_elected(ballot) for ballot in ballots]


def cascade(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """The favourite answers; while nobody is sure the next one is asked, and the surest answer
    stands."""
    ranked = _ranked(portfolio, questions, VOTERS)
    found: list[list[Answer]] = [[] for _ in questions]
    for place in range(max(map(len, ranked), default=0)):
        asked = [
            index
            for index, some in enumerate(ranked)
            if place < len(some) and all(one.confidence < CONFIDENT for one in found[index])
        ]
        answers = ask(
            [questions[index] for index in asked], [ranked[index][place] for index in asked]
        )
        for index, one in zip(asked, answers, strict=True):
            found[index].append(one)
    return [_surest(some) for some in found]


def surest(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
    """Everyone answers, the host too, and the surest answer stands: neither labels nor a router are
    needed.

    Of an organelle that holds several cells, only its latest moment is asked.
    """
    moments = sorted(
        portfolio.elites, key=lambda organelle_id: int(organelle_id.partition("@")[2] or 0)
    )
    latest = {organelle_id.partition("@")[0]: organelle_id for organelle_id in moments}
    return _together([HOST, *latest.values()], questions, ask)


ROUTINGS: Mapping[str, Routing] = {
    one.__name__: one
    for one in (host, single, family, cell, learned, committed, vote, cascade, surest)
}


def find_routing(name: str) -> Routing:
    """The routing of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in ROUTINGS:
        hint = did_you_mean(name, ROUTINGS)
        raise ConfigError(f"routing: expected one of {', '.join(ROUTINGS)}, got {name!r};{hint}")
    return ROUTINGS[name]


def mapped(path: Path, known: Sequence[OrganelleId]) -> Routing:
    """The routing of a JSON file ``{"family" or "family/depth": "candidate"}``; the rest is the
    host's.

    Raises:
        DataError: the file cannot be used, or names nobody that can be asked.
    """
    try:
        table: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the routing map {path}: {error}") from error
    if not isinstance(table, dict) or not all(
        isinstance(organelle_id, str) for organelle_id in table.values()
    ):
        raise DataError(
            f'routing map {path}: expected {{"family": "candidate", …}}, got {table!r:.60}'
        )
    for where, organelle_id in table.items():
        if organelle_id != HOST and organelle_id not in known:
            raise DataError(
                f"routing map {path}: {where!r} is given to {organelle_id!r};{did_you_mean(organelle_id, known)} "
                f"candidates: {', '.join(sorted(known))}"
            )

    def by_map(portfolio: AdapterPool, questions: Sequence[Question], ask: Ask) -> list[Answer]:
        """Whom the file names for the cell, or for the family."""
        return ask(
            questions, [table.get(one.cell, table.get(one.family, HOST)) for one in questions]
        )

    return by_map


def _ranked(
    portfolio: AdapterPool, questions: Sequence[Question], most: int
) -> list[list[OrganelleId]]:
    """The router's favourites for each question, best first, the host among them."""
    everyone = (HOST, *portfolio.elites)
    prompts = list(dict.fromkeys(one.prompt for one in questions))
    order = np.argsort(-portfolio.promise(prompts), axis=1, kind="stable")[:, :most]
    ranked = {
        prompt: [everyone[place] for place in row]
        for prompt, row in zip(prompts, order, strict=True)
    }
    return [ranked[one.prompt] for one in questions]


def _together(whom: Sequence[OrganelleId], questions: Sequence[Question], ask: Ask) -> list[Answer]:
    answers = ask(
        [one for one in questions for _ in whom],
        [organelle_id for _ in questions for organelle_id in whom],
    )
    return [
        _surest(answers[start : start + len(whom)]) for start in range(0, len(answers), len(whom))
    ]


def _surest(some: Sequence[Answer]) -> Answer:
    """Paid for are all."""
    return replace(
        max(some, key=lambda one: one.confidence), cost=sum((one.cost for one in some), Cost())
    )


def _elected(ballot: Sequence[Answer]) -> Answer:
    votes = Counter(final_answer(one.reply) for one in ballot)
    most = max(votes.values())
    chosen = next(one for one in ballot if votes[final_answer(one.reply)] == most)
    return replace(chosen, cost=sum((one.cost for one in ballot), Cost()))
