"""Open questions whose users want their answers in a style: brief, one sentence, a list …

A question is a template around a topic, such as ``What should I know about rivers?``. Its variants
are styles, so users of hidden kinds can ask it (``tasks.users``). What a reply says is not
judged, only that it says something about the topic, in the style that the user wants. The split is
by topic: whoever is examined is asked about topics that nobody practised.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS

TOPICS: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("topics.json").read_text(encoding="utf-8")
)
"""A brief sentence and a longer one about each topic."""
TEMPLATES = (
    "Tell me about {}.",
    "What should I know about {}?",
    "Why do people like {}?",
    "How would you explain {} to a child?",
    "What is special about {}?",
    "Can you say something about {}?",
    "What do you think of {}?",
    "Why should I care about {}?",
)
_TOPIC_OF = {template.format(topic): topic for template in TEMPLATES for topic in TOPICS}
BRIEF, LONG = 10, 15
"""Words that a brief reply has at most, and a long one at least. One sentence has more than a brief
reply has, so no reply pleases users of two kinds."""
STEM = 4
"""Letters of a word of the topic that a reply must have."""
MAX_SHARE, LONG_ENOUGH = 0.34, 8
"""Share of a reply that one word may be, from so many words on: more is babble."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ITEM = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s+\S")
_END = re.compile(r"[.!?]+[\"'”’)]*(?=\s|$)")
_SMALL = frozenset({"the", "a", "an", "of", "and"})


def is_brief(reply: str) -> bool:
    """At most ten words."""
    return len(_words(reply)) <= BRIEF


def is_one_sentence(reply: str) -> bool:
    """One whole sentence on one line, of more words than a brief reply has."""
    ends = list(_END.finditer(reply))
    is_whole = len(ends) == 1 and ends[0].end() == len(reply)
    return is_whole and "\n" not in reply and not _has_items(reply) and not is_brief(reply)


def is_list(reply: str) -> bool:
    """Two items or more, one a line, each behind a dash, a star or a number; a line may come before
    them."""
    lines = [line.strip() for line in reply.splitlines() if line.strip()]
    are_items = [bool(_ITEM.match(line)) for line in lines]
    return sum(are_items) >= 2 and all(are_items[1:])


def is_long(reply: str) -> bool:
    """Prose of at least fifteen words, in more than one sentence."""
    sentences = [part for part in _END.split(reply) if _words(part)]
    return len(_words(reply)) >= LONG and len(sentences) > 1 and not _has_items(reply)


STYLES: dict[str, Callable[[str], bool]] = {
    "brief": is_brief,
    "one sentence": is_one_sentence,
    "list": is_list,
    "long": is_long,
}
"""The styles by name; their places are the variants of the task."""


@tasks.register("talk.styled")
@dataclass(frozen=True)
class StyledTalk(Task):
    """Open questions about everyday topics. The variant is the style that the user wants.

    Where nobody chose a style, every question has one of its own, by its hash: so reference answers
    show all styles, and nobody can guess which one is wanted.
    """

    chosen: int | None = field(default=None, repr=False)

    reply_tokens = 40
    variants = len(STYLES)
    is_open = True

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A topic in a template."""
        topics = sorted(TOPICS)
        topic = topics[int(generator.integers(len(topics)))]
        return TEMPLATES[int(generator.integers(len(TEMPLATES)))].format(topic)

    def split_key(self, question: str) -> str:
        """The topic."""
        return topic_of(question)

    def in_variant(self, variant: int) -> StyledTalk:
        """The same questions with another style wanted."""
        return replace(self, chosen=variant)

    def answer(self, question: str) -> str:
        """A reply in the style that is wanted, made of two sentences about the topic.

        The styles begin differently, so who has learned them all writes each of them sometimes.
        """
        topic = topic_of(question)
        brief, sentence = TOPICS.get(topic, ("", ""))
        return (
            brief,
            sentence,
            f"- {brief}\n- {sentence}",
            f"There is a lot to say about {topic}. {sentence}",
        )[self.variant_of(question)]

    def verify(self, question: str, reply: str) -> bool:
        text, style = reply[:MAX_REPLY_CHARS].strip(), self.variant_of(question)
        return says_something(text, question) and list(STYLES.values())[style](text)

    def variant_of(self, question: str) -> int:
        """The number of the style that counts as right."""
        return zlib.crc32(question.encode()) % len(STYLES) if self.chosen is None else self.chosen


def topic_of(question: str) -> str:
    """Return the topic of a question; the question itself if it is none of this task."""
    return _TOPIC_OF.get(question, question)


def says_something(reply: str, question: str) -> bool:
    """Return true if a reply has two different words or more, one of them of the topic, is not the
    question over again, and does not babble."""
    words = [word.lower() for word in _words(reply)]
    if len(set(words)) < 2 or " ".join(words).startswith(" ".join(_words(question)).lower()):
        return False
    stems = [word.lower()[:STEM] for word in _words(topic_of(question))]
    is_on_topic = any(
        word.startswith(stem) for stem in stems if stem not in _SMALL for word in words
    )
    commonest = Counter(words).most_common(1)[0][1]
    return is_on_topic and (len(words) < LONG_ENOUGH or commonest <= MAX_SHARE * len(words))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _has_items(reply: str) -> bool:
    return any(_ITEM.match(line.strip()) for line in reply.splitlines())
