"""The vocabulary: small frozen values that every other module speaks in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

OrganelleId: TypeAlias = str
BlobRef: TypeAlias = str
"""Content hash of an immutable blob: adapter weights or an optimizer state."""

Cell: TypeAlias = tuple[str, str]
"""(family, depth): the unit of allocation, prices and archive."""


def cell_name(cell: Cell) -> str:
    """Return ``family/depth``, the form of a cell in events, prices and state."""
    return f"{cell[0]}/{cell[1]}"


def cell_family(name: str) -> str:
    """Return the family of a cell, given the cell's name."""
    return name.rpartition("/")[0]


HOST_SLOT = -1
"""The slot number of the bare host, without any adapter."""

TURN_END = "\x1d"
"""Between the turns of a prompt (U+001D, the group separator of ASCII). Neither data nor typed
prompts may bring it."""


def is_text(value: object) -> bool:
    """Return true for a text of whole characters, which can be written down."""
    if not isinstance(value, str):
        return False
    if value.isascii():  # which costs nothing
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def turns(prompt: str) -> list[str]:
    """Return the turns of a prompt: user and assistant by turns, the question last.

    An even number of them begins with what the system says.
    """
    return prompt.split(TURN_END)


def messages(prompt: str) -> list[dict[str, str]]:
    """Return the turns of a prompt with their roles, as chat templates want them."""
    texts = turns(prompt)
    roles = ["system"] * (len(texts) % 2 == 0)
    roles += ["user", "assistant"] * (len(texts) // 2) + ["user"]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def last_turn(prompt: str) -> str:
    """Return the question itself, without what stands in front of it: all that a user types."""
    return prompt.rpartition(TURN_END)[2]


def in_turns(*said: str) -> str:
    """Return the prompt that says these turns."""
    return TURN_END.join(said)


def without_turns(text: str) -> str:
    """Return a text without separators of turns: how a host without chat template reads a
    prompt."""
    return text.replace(TURN_END, "")


def as_line(turn: str) -> str:
    """Return a turn as a line of its own, for a host that reads all of them as one text."""
    return turn if turn.endswith("\n") else f"{turn}\n"


def map_last_turn(change: Callable[[str], str], prompt: str) -> str:
    """Return the prompt with its question changed."""
    before, end, question = prompt.rpartition(TURN_END)
    return before + end + change(question)


def prepend_phrase(phrase: str, prompt: str) -> str:
    """Return the prompt with a phrase in front of its question."""
    return map_last_turn(phrase.__add__, prompt) if phrase else prompt


def examples_in(prompt: str) -> int:
    """Return the number of solved examples in front of the question."""
    return prompt.count(TURN_END) // 2


@dataclass(frozen=True, slots=True)
class LoggedReply:
    """Reply to an item in the past, by whatever model, and if it was accepted; None
    for a text that is only there to be read, such as a reference answer. ``author`` is the
    organelle that gave it, if one did, and ``log_probability`` (nats) how sure it was then, if that
    is known."""

    text: str
    is_accepted: bool | None = None
    author: OrganelleId = ""
    log_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One question, ready to be asked, with the verifier that judges every reply to it.

    ``question`` is what the task drew, ``prompt`` how the host is asked it: one text, which may
    have turns (``turns``). ``answer`` is the
    reference answer, or empty where the task has none. ``reply_limit`` is in new tokens.
    ``variant`` says which of several ways to be right is in force (a convention), so a change of
    what counts as right is data and not code. ``shift`` says how an evaluation item differs from
    training items. ``user`` is the id of the one who asks (a person, a team, a site), or empty:
    every service knows its user, and what counts as right there is hidden. With a ``logged`` reply
    nobody is asked: it was given and judged before.
    """

    id: str
    family: str
    depth: str
    question: str
    prompt: str
    reply_limit: int
    verifier: Callable[[str], object] = field(compare=False, repr=False)
    answer: str = ""
    variant: int = 0
    shift: str = ""
    user: str = ""
    logged: LoggedReply | None = None

    @property
    def cell(self) -> Cell:
        """The (family, depth) that this item belongs to."""
        return (self.family, self.depth)

    @property
    def niche(self) -> str:
        """Unit in which success is counted, paid and archived: the user, or else the cell by
        name."""
        return self.user or cell_name(self.cell)

    @property
    def to_read(self) -> Item:
        """The item with its reference answer, which is read instead of asking anybody."""
        return replace(self, logged=LoggedReply(self.answer))

    @property
    def subject(self) -> str:
        """Question in whatever words: two items of one subject are not independent."""
        return f"{self.family}/{self.question}"


def judged_elsewhere(reply: str) -> object:
    """Verifier of an item whose verdicts are given by a user."""
    raise RuntimeError("expected the verdict of a user: this reply is not judged here")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for one slot: the unit of a batched call."""

    prompt: str
    slot: int = HOST_SLOT
    max_new_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Decoding:
    """Choice of tokens. ``temperature=0`` is greedy; otherwise ancestral sampling within
    ``top_p``.

    An answer ends with the host's end token, at its row's limit, or with the token that completes
    one of the ``stop`` texts; its text is then cut in front of that.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()

    def cut(self, text: str) -> str:
        """Return the text up to the first of the stop texts."""
        places = (text.index(stop) for stop in self.stop if stop in text)
        return text[: min(places, default=len(text))]


@dataclass(frozen=True, repr=False)
class Completions:
    """Answers of the host to a batch of rows, in the order of the rows.

    ``ids`` and ``log_probabilities`` are ``(rows, new_tokens)``, padded with 0 beyond ``lengths``.
    A row that ended by itself holds its end-of-answer token as last id. Log-probabilities are the
    model's own (temperature 1, no truncation), in nats.

    What it took, ``(rows,)`` each: ``read`` are prompt tokens that went through the host for this
    row, ``fed`` new tokens that did, those after its end included; a host that does not count
    leaves both None. ``stopped`` says which texts a stop text cut; None is none of them.
    """

    texts: tuple[str, ...]
    ids: np.ndarray
    log_probabilities: np.ndarray
    lengths: np.ndarray
    prompt_lengths: np.ndarray
    read: np.ndarray | None = None
    fed: np.ndarray | None = None
    stopped: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<{len(self)} completions, {int(self.lengths.sum())} tokens>"

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> Completion:
        length, prompt_tokens = int(self.lengths[row]), int(self.prompt_lengths[row])
        return Completion(
            text=self.texts[row],
            token_ids=tuple(self.ids[row, :length].tolist()),
            log_probabilities=self.log_probabilities[row, :length],
            prompt_tokens=prompt_tokens,
            tokens_read=prompt_tokens if self.read is None else int(self.read[row]),
            steps=max(length - 1, 0) if self.fed is None else int(self.fed[row]),
            is_stopped=self.stopped is not None and bool(self.stopped[row]),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Completion:
    """Answer of the host to one request.

    ``token_ids`` hold the end-of-answer token, if the answer ended by itself; ``log_probabilities``
    (tokens,) are the model's own, in nats. ``tokens_read`` are prompt tokens that went through the
    host for this row (a shared prompt is read once), ``steps`` the passes over one new token.
    ``is_stopped`` says that a stop text ended it, which the ids hold and ``text`` does not.
    """

    text: str
    token_ids: tuple[int, ...]
    log_probabilities: np.ndarray
    prompt_tokens: int
    tokens_read: int
    steps: int
    is_stopped: bool = False

    def __repr__(self) -> str:
        return f"<{self.text!r:.60}, {len(self.token_ids)} tokens>"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One row to learn from: raise (weight > 0) or lower (weight < 0) the completion's
    log-probability.

    ``weight`` is one number for all tokens of the completion, or one for each token.
    """

    prompt: str
    completion: tuple[int, ...]
    slot: int
    weight: float | tuple[float, ...] = 1.0


@dataclass(frozen=True)
class LearningBatch:
    """One gradient step for many slots at once.

    The loss of a slot is −Σ weightₜ · log p(tokenₜ | prompt, earlier tokens) ÷ Σ completion tokens
    of that slot, so gradients of slots never mix. ``learning_rates`` are those of Adam, by slot;
    ``clip`` bounds the gradient norm of each slot apart. ``dropout`` is the share of inputs that a
    slot's adapter does not see (LoRA dropout), 0 for slots that it does not name;
    ``dropout_seeds`` (64-bit, one per slot) draw the masks, which do not depend on neighbours.
    """

    lessons: tuple[Lesson, ...]
    learning_rates: Mapping[int, float]
    clip: float = 1.0
    dropout: Mapping[int, float] = field(default_factory=dict)
    dropout_seeds: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LearningStatistics:
    """Per slot: loss (nats per token), gradient norm before clipping, tokens; ``sick`` slots met a
    NaN."""

    loss: Mapping[int, float] = field(default_factory=dict)
    gradient_norm: Mapping[int, float] = field(default_factory=dict)
    tokens: Mapping[int, int] = field(default_factory=dict)
    sick: tuple[int, ...] = ()
