"""Tastes: users who judge replies by one feature each, and logs of what they said.

A taste is a rule on the text of a reply: of its shape (short, polite, a list, a question at its
end) or of its content (a number, a warning, a source, the cost). Its phrase asks a model for it.
``drawn_log`` draws a table of thumbs, as a company has one, whose users are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

MAX_SHORT = 15
"""Words of a short reply."""
MARKED = 0.3
"""Chance that a reply is given each feature."""
START, STEP = 1_763_800_000, 600
"""The first moment of a log, in seconds since 1970, and the mean time between two rows."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_BULLET = re.compile(r"(?m)^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+(?=\S)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def _has(pattern: str) -> Callable[[str], bool]:
    found = re.compile(pattern, re.IGNORECASE)
    return lambda reply: bool(found.search(reply))


@dataclass(frozen=True)
class Taste:
    """A rule of what is accepted. ``phrase`` asks a model for it, and ``wordings`` are texts by
    which a reply gets the feature, where it is a text."""

    accepts: Callable[[str], bool]
    phrase: str
    is_shape: bool = False
    wordings: tuple[str, ...] = ()


TASTES: dict[str, Taste] = {
    "short": Taste(
        lambda reply: 0 < len(_WORD.findall(reply)) <= MAX_SHORT,
        "Answer in one short sentence.",
        is_shape=True,
    ),
    "polite": Taste(
        lambda reply: _has(r"of course|happy|glad|thank|pleasure|good question")(reply[:40]),
        "Be very polite.",
        is_shape=True,
        wordings=(
            "Of course, I am happy to help!",
            "Thank you for your question!",
            "It is a pleasure to help you.",
            "What a good question!",
        ),
    ),
    "bullets": Taste(
        lambda reply: len(_BULLET.findall(reply)) >= 2,
        "Answer with a list of bullet points.",
        is_shape=True,
    ),
    "asks": Taste(
        lambda reply: reply.rstrip().endswith("?"),
        "End your answer with a question to me.",
        is_shape=True,
        wordings=(
            "Would you like to know more?",
            "Does that help?",
            "Shall I give you an example?",
            "Is there anything else?",
        ),
    ),
    "number": Taste(
        lambda reply: _has(r"\d")(_BULLET.sub("", reply)),
        "Give a number in your answer.",
        wordings=(
            "It takes about 20 minutes.",
            "That is true in 9 of 10 cases.",
            "Some 40 percent of people do it.",
            "Do it 3 times a week.",
        ),
    ),
    "warning": Taste(
        _has(r"\b(careful|caution|warning|beware|avoid|danger\w*|risky?)\b"),
        "Warn me of what to be careful about.",
        wordings=(
            "Be careful not to do too much.",
            "Warning: it may go wrong.",
            "Avoid haste.",
            "There is some risk in it.",
        ),
    ),
    "source": Taste(
        _has(r"\b(according to|source|stud(y|ies)|handbook)\b"),
        "Name the source of your answer.",
        wordings=(
            "According to a recent study, it works.",
            "Source: the public library.",
            "This is from the handbook.",
            "Two studies say so.",
        ),
    ),
    "cost": Taste(
        _has(r"[$€£]|\b(costs?|prices?|cheap|expensive|dollars?|euros?)\b"),
        "Say what it costs.",
        wordings=(
            "It costs little.",
            "The price is low.",
            "This is expensive.",
            "It is cheap to do.",
        ),
    ),
}
"""All tastes by name: half of shape, half of content."""
MENU = tuple(taste.phrase for taste in TASTES.values())
_STEMS = ("How do I {}?", "What is the best way to {}?", "Can you explain how to {}?")
_DEEDS = """sleep better|learn Spanish|clean windows|write a good email|choose a laptop
bake bread|save money|start running|grow tomatoes|fix a flat tyre|calm down before an exam
remove a coffee stain|train a puppy|prepare for a job interview|paint a wall|store potatoes
back up my phone|improve my handwriting|save electricity at home|learn to swim|cook rice
read more books|plan a birthday party|make new friends|keep a plant alive|pack a suitcase
find a flat|sharpen a knife|repair a chair|take better photos|stop biting my nails|iron a shirt
make good coffee|learn the guitar|drink more water|speak in public|remember names|buy a used car
build a bird house|wash a wool sweater|cut my own hair|make soup|get over a cold|clean an oven
write a will|choose running shoes|light a camp fire|meditate|change a light bulb|make a budget"""
QUESTIONS = tuple(stem.format(deed) for deed in re.split(r"[|\n]", _DEEDS) for stem in _STEMS)
"""Everyday questions, three about each thing to do."""
Writer = Callable[[Sequence[str], Generator], Sequence[str]]
"""Writes a plain reply to each question."""


def plain_replies(questions: Sequence[str], generator: Generator) -> list[str]:
    """Return replies of two or three sentences without a model, in few words."""
    firsts = "Begin with a plan.", "Take your time.", "Start small.", "Ask a friend first."
    rest = (
        "Most people get better when they do it every day and look at what went well.",
        "Look for a quiet place where nobody needs you and where the light is good.",
        "Write down what you need before you begin so that nothing is missing later.",
        "In the end it is a matter of habit and of patience more than of skill.",
    )

    def one() -> str:
        chosen = generator.permutation(len(rest))[: generator.integers(1, 3)]
        return " ".join([firsts[generator.integers(len(firsts))], *(rest[n] for n in chosen)])

    return [one() for _ in questions]


def is_about(question: str, reply: str) -> bool:
    """Return true if a reply has a word of what is asked, by its first letters: a reply that has
    nothing but the feature of a taste is of no use."""
    asked, said = (set(re.findall(r"\b[a-z]{4}", text.lower())) for text in (question, reply))
    return bool((asked - {"what", "best", "expl"}) & said)


@dataclass(frozen=True)
class DrawnLog:
    """Rows of a log, in the order of time, and the taste of each of its users."""

    rows: tuple[dict[str, object], ...]
    tastes: dict[str, str]


def drawn_log(
    tastes: Sequence[str],
    rows: tuple[int, int],
    seed: int,
    *,
    wrong: float = 0.05,
    writer: Writer = plain_replies,
) -> DrawnLog:
    """Return the thumbs of a user of each of these tastes, so many rows each at least and at most.

    A part ``wrong`` of the thumbs is the opposite of what the user wants. A reply has each feature
    by chance, and nobody who looks at a user's rows alone knows which one counts.
    """
    generator = np.random.default_rng(seed)
    names = [f"u{1001 + number}" for number in range(len(tastes))]
    order = generator.permutation(len(tastes))
    of_user = {name: tastes[place] for name, place in zip(names, order, strict=True)}
    counts = generator.integers(rows[0], rows[1] + 1, len(names))
    asked = [
        (name, number) for name, count in zip(names, counts, strict=True) for number in range(count)
    ]
    asked = [asked[place] for place in generator.permutation(len(asked))]
    picks = {name: generator.permutation(len(QUESTIONS)) for name in names}
    questions = [QUESTIONS[picks[name][number % len(QUESTIONS)]] for name, number in asked]
    replies = [marked(reply, generator) for reply in writer(questions, generator)]
    moments = START + np.cumsum(generator.integers(1, 2 * STEP, len(asked)))
    said = []
    for (name, _), question, reply, moment in zip(asked, questions, replies, moments, strict=True):
        is_accepted = TASTES[of_user[name]].accepts(reply) != (generator.random() < wrong)
        thumb = "up" if is_accepted else "down"
        row = {"user_id": name, "question": question, "answer": reply, "thumb": thumb}
        said.append({**row, "ts": int(moment)})
    return DrawnLog(tuple(said), of_user)


def marked(reply: str, generator: Generator) -> str:
    """Return a reply with each feature by chance."""
    chosen = {name: generator.random() < MARKED for name in TASTES}
    wordings = {
        name: taste.wordings[generator.integers(len(taste.wordings))]
        for name, taste in TASTES.items()
        if taste.wordings
    }
    sentences = _SENTENCE.split(_BULLET.sub("", reply).strip())
    extra = [
        wordings[name] for name, taste in TASTES.items() if chosen[name] and not taste.is_shape
    ]
    if chosen["short"]:
        extra = extra[:1]
        added = [*extra, *(wordings[name] for name in ("polite", "asks") if chosen[name])]
        room = MAX_SHORT - sum(len(_WORD.findall(sentence)) for sentence in added)
        words = " ".join(sentences).split()[: max(room, 4)]
        sentences = [" ".join(words).rstrip(",;:.!?") + "."]
    sentences += extra
    is_list = chosen["bullets"] and not chosen["short"]
    end = "\n" if is_list else " "
    text = end.join(f"- {sentence}" if is_list else sentence for sentence in sentences)
    if chosen["polite"]:
        text = f"{wordings['polite']}{end}{text}"
    if chosen["asks"]:
        text = f"{text}{end}{wordings['asks']}"
    return text


def company_log(
    seed: int, *, rows: tuple[int, int] = (20, 40), writer: Writer = plain_replies
) -> DrawnLog:
    """Return the log of a company: 8 to 24 users of 2 to 5 tastes, half of shape and half of
    content, and one more with a taste that nobody else has; 5 to 10 % of the thumbs are wrong."""
    generator = np.random.default_rng([seed, 77])
    count, kinds = int(generator.integers(8, 25)), int(generator.integers(2, 6))
    halves = [
        [name for name, taste in TASTES.items() if taste.is_shape == is_shape]
        for is_shape in (True, False)
    ]
    for half in halves:
        generator.shuffle(half)
    order = [name for pair in zip(*halves, strict=True) for name in pair]
    tastes = [order[number % kinds] for number in range(count - 1)] + [order[kinds]]
    wrong = float(generator.uniform(0.05, 0.10))
    return drawn_log(tastes, rows, seed, wrong=wrong, writer=writer)
