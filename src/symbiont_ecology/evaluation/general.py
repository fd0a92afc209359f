"""What is left alone: how likely plain English and ordinary conversation are to whoever answers.

Sixty passages and sixty questions with answers come with the package
(``evaluation/plain_english.jsonl``); no task is like them. Nothing is written: each text is read by
the host with an adapter and by the bare host beside it, and the difference is what learning did to
it. A passage is read as the continuation of its first words, an answer as the reply to its
question, in the host's chat template if the run uses that.

A router that leaves strange prompts to the host loses nothing here, whatever its adapters became;
so the adapters that serve are read, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.engine.act import Question, read_log
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.items import some_of
from symbiont_ecology.inference.pool import AdapterPool
from symbiont_ecology.inference.routings import Routing, ask_favourite
from symbiont_ecology.shipped import find_data
from symbiont_ecology.statistics import Interval, paired_interval
from symbiont_ecology.tasks.synthetic.styles import prompt_styles
from symbiont_ecology.types import Item, LoggedReply, OrganelleId
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.peft_files import read_peft

PLAIN_ENGLISH = Path("evaluation/plain_english.jsonl")
OPENING = 6
"""Words of a passage that are given, in tokens a little more."""
FEWEST_TOKENS = 1000
"""A host with a smaller vocabulary writes letter by letter, such as the embedded one. It was never
taught English, so there is nothing to keep."""
MOST_SERVERS, TEXTS_PER_SERVER, TEXTS_AT_END = 6, 6, 12
"""Adapters that read one by one; texts of each kind that each of them reads, and that are read at
the end of a run."""
TextKind = Literal["english", "chat"]


@dataclass(frozen=True)
class TextLikelihood:
    """Mean log-probability of a token, in nats, of texts that count alike: under who was asked, and
    under the bare host. ``change`` is the first minus the second, paired, with its 95 % interval.
    """

    nats: float
    host_nats: float
    change: Interval
    texts: int

    @property
    def perplexity(self) -> float:
        """Of a token, under who was asked."""
        return math.exp(-self.nats)

    @property
    def host_perplexity(self) -> float:
        """Of a token, under the bare host."""
        return math.exp(-self.host_nats)

    def summary(self) -> dict[str, object]:
        """Everything as plain values."""
        sizes = {"perplexity": self.perplexity, "host_perplexity": self.host_perplexity}
        return asdict(self) | sizes


@dataclass(frozen=True)
class GeneralAbility:
    """What texts of each kind are to who was asked. ``left_to_host`` is the share of all texts that
    the bare host would have answered."""

    english: TextLikelihood
    chat: TextLikelihood
    left_to_host: float

    def summary(self) -> dict[str, object]:
        """Everything as plain values."""
        kinds = {"english": self.english, "chat": self.chat}
        return {"left_to_host": self.left_to_host} | {
            kind: likelihood.summary() for kind, likelihood in kinds.items()
        }

    @property
    def change(self) -> float:
        """Nats that a token lost or won, the worse of both kinds."""
        return min(self.english.change.estimate, self.chat.change.estimate)


@dataclass(frozen=True)
class GeneralReader:
    """Lets organelles of a pool read the texts, and remembers what each of them made of each.

    ``most`` is how many texts of each kind are read; None is all. ``is_chat`` says whether the host
    is asked through its chat template.
    """

    host: Host
    weights: Mapping[OrganelleId, AdapterWeights]
    is_chat: bool = False
    most: int | None = None
    _known: dict[tuple[str, OrganelleId], Rollout] = field(default_factory=dict, repr=False)

    @cached_property
    def items(self) -> list[Item]:
        """The texts as prompts with logged replies."""
        return [
            item
            for kind in ("english", "chat")
            for item in some_of(general_items(kind, is_chat=self.is_chat), self.most)
        ]

    def of_routing(self, pool: AdapterPool, routing: Routing) -> GeneralAbility:
        """Of whoever answers by a routing."""
        return self._ability(routing(pool, self.items, self.read))

    def of(self, organelle_id: OrganelleId) -> GeneralAbility:
        """Of one organelle."""
        return self._ability(self.read(self.items, [organelle_id] * len(self.items)))

    def read(self, items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """One rollout for each text, with the log-probabilities of its tokens; ``choices`` says who
        reads which."""
        keys = [(item.id, choice) for item, choice in zip(items, choices, strict=True)]
        questions = {
            key: Question(item, key[1])
            for key, item in zip(keys, items, strict=True)
            if key not in self._known
        }
        rollouts, _ = read_log(list(questions.values()), self.host, self.weights.__getitem__)
        self._known.update(zip(questions, rollouts, strict=True))
        return [self._known[key] for key in keys]

    def _ability(self, rollouts: Sequence[Rollout]) -> GeneralAbility:
        host_rollouts = self.read(self.items, [HOST] * len(self.items))
        likelihoods: dict[str, TextLikelihood] = {}
        for kind in ("english", "chat"):
            pairs = [
                (_nats(own), _nats(host))
                for own, host in zip(rollouts, host_rollouts, strict=True)
                if host.item.family == kind
            ]
            nats, host_nats = zip(*pairs, strict=True)
            mean, host_mean = (sum(values) / len(values) for values in (nats, host_nats))
            change = paired_interval(nats, host_nats)
            likelihoods[kind] = TextLikelihood(mean, host_mean, change, len(pairs))
        to_host = sum(rollout.organelle_id == HOST for rollout in rollouts) / len(rollouts)
        return GeneralAbility(likelihoods["english"], likelihoods["chat"], to_host)


def general_reader(
    run_config: RunConfig, pool: AdapterPool, host: Host, most: int | None = None
) -> GeneralReader | None:
    """A reader for the candidates of a run; None where the host has no words to lose."""
    is_chat = prompt_styles.build(run_config.tasks.style).is_chat
    return GeneralReader(host, pool.weights, is_chat, most) if knows_english(host) else None


def general_of_servers(reader: GeneralReader, pool: AdapterPool) -> dict[str, GeneralAbility]:
    """Of each adapter that serves, from a part of the texts."""
    part = replace(reader, most=TEXTS_PER_SERVER)
    return {name: part.of(name) for name in servers_of(pool)}


def general_at_end(config: RunConfig, pool: AdapterPool, host: Host) -> dict[str, GeneralAbility]:
    """Of a run that ended, from a part of the texts: by whom strange prompts go to, and of the
    adapter that serves and lost most. Nothing where the host has no words to lose."""
    reader = general_reader(config, pool, host, TEXTS_AT_END)
    if reader is None:
        return {}
    abilities = {"learned": reader.of_routing(pool, ask_favourite)}
    servers = general_of_servers(reader, pool)
    worst = min(servers, key=lambda name: servers[name].change, default=None)
    return abilities if worst is None else abilities | {f"{worst}, the worst": servers[worst]}


def general_of_adapter(folder: Path, host: Host, *, is_chat: bool = False) -> GeneralAbility | None:
    """Of a PEFT adapter; None where the host has no words to lose.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    if not knows_english(host):
        return None
    return GeneralReader(host, {"adapter": read_peft(folder, host.layout)}, is_chat).of("adapter")


def knows_english(host: Host) -> bool:
    """Whether a host has words to lose."""
    return host.shape.vocab >= FEWEST_TOKENS


def servers_of(pool: AdapterPool) -> list[OrganelleId]:
    """The adapters that answer users, or that a router chooses among; those first that serve
    most."""
    served = pool.state.served
    names = sorted(served, key=lambda name: (-len(served[name]), name)) or pool.elites
    return [name for name in names if name in pool.weights][:MOST_SERVERS]


def general_items(kind: TextKind, *, is_chat: bool = False) -> list[Item]:
    """The texts of a kind that come with the package, each with its reply."""
    lines = find_data(PLAIN_ENGLISH).read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, str]] = [json.loads(line) for line in lines]
    if kind == "chat":
        end = "" if is_chat else "\n"
        pairs = [(row["question"] + end, row["answer"]) for row in rows if "question" in row]
    else:
        pairs = [_continued(row["text"], is_chat) for row in rows if "text" in row]
    return [
        Item(
            id=f"{kind}/{number}",
            family=kind,
            depth="all",
            question=prompt,
            prompt=prompt,
            reply_limit=1,
            verifier=lambda reply: False,
            answer=reply,
            logged=LoggedReply(reply, is_accepted=True),
        )
        for number, (prompt, reply) in enumerate(pairs)
    ]


def _continued(text: str, is_chat: bool) -> tuple[str, str]:
    """The first words of a passage, and the rest with the space in front of it, unless a turn of
    its own begins there."""
    words = text.split(" ")
    rest = " ".join(words[OPENING:])
    return " ".join(words[:OPENING]), rest if is_chat else f" {rest}"


def _nats(rollout: Rollout) -> float:
    """Mean log-probability of a token of the text, without the end that was put behind it: a
    passage has none."""
    return float(rollout.log_probabilities[:-1].mean())
