"""Likelihood of plain English and ordinary conversation to whoever answers: what is left alone.

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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.peft_files import read_peft, stated_rank
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.base.statistics import Interval, paired_interval
from symbiont_ecology.base.types import Item, OrganelleId
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.items import some_of
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import Routing, Spec, routings
from symbiont_ecology.run.act import Question, read_log
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks.synthetic.styles import prompt_styles

PLAIN_ENGLISH = Path("evaluation/plain_english.jsonl")
KINDS = ("english", "chat")
OPENING = 6
"""Words of a passage that are given, in tokens a little more."""
MIN_VOCABULARY = 1000
"""A host with a smaller vocabulary writes letter by letter, such as the embedded one. It was never
taught English, so there is nothing to keep."""
MAX_SERVERS, TEXTS_PER_SERVER = 6, 6
"""Adapters that read one by one, and texts of each kind that each of them reads."""


@dataclass(frozen=True)
class TextLikelihood:
    """Mean log-probability of a token, in nats, of texts that count alike: under who was asked, and
    under the bare host. ``change`` is the first minus the second, paired, with its 95 % interval.
    """

    nats: float
    host_nats: float
    change: Interval
    texts: int

    @classmethod
    def of(cls, nats: Sequence[float], host_nats: Sequence[float]) -> TextLikelihood:
        """Return the likelihood of texts whose tokens have these mean log-probabilities."""
        return cls(fmean(nats), fmean(host_nats), paired_interval(nats, host_nats), len(nats))

    @property
    def perplexity(self) -> float:
        """Perplexity of a token, under who was asked."""
        return math.exp(-self.nats)

    def summary(self) -> dict[str, object]:
        """Return everything as plain values."""
        return {**asdict(self), "perplexity": self.perplexity}


@dataclass(frozen=True)
class GeneralAbility:
    """Likelihood of texts of each kind to who was asked. ``left_to_host`` is the share of all texts
    that the bare host would have answered."""

    english: TextLikelihood
    chat: TextLikelihood
    left_to_host: float

    def summary(self) -> dict[str, object]:
        """Return everything as plain values."""
        kinds = {kind: getattr(self, kind).summary() for kind in KINDS}
        return {"left_to_host": self.left_to_host} | kinds

    @property
    def change(self) -> float:
        """Nats that a token lost or won, the worse of both kinds."""
        return min(self.english.change.estimate, self.chat.change.estimate)


@dataclass(frozen=True)
class GeneralReader:
    """Lets organelles of a pool read the texts, and remembers what each of them made of each.

    ``max_texts`` is how many texts of each kind are read; None is all. ``is_chat`` says whether the
    host is asked through its chat template.
    """

    host: Host
    adapter: Callable[[OrganelleId], AdapterWeights]
    is_chat: bool = False
    max_texts: int | None = None
    _known: dict[tuple[str, OrganelleId], Rollout] = field(default_factory=dict, repr=False)

    @cached_property
    def items(self) -> list[Item]:
        """The texts as prompts with logged replies."""
        return [
            item
            for kind in KINDS
            for item in some_of(general_items(kind, is_chat=self.is_chat), self.max_texts)
        ]

    def of_routing(self, pool: AdapterPool, routing: Routing) -> GeneralAbility:
        """Return the ability of whoever answers by a routing."""
        return self._ability(routing(pool, self.items, self.read))

    def of(self, organelle_id: OrganelleId) -> GeneralAbility:
        """Return the ability of one organelle."""
        return self._ability(self.read(self.items, [organelle_id] * len(self.items)))

    def read(self, items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """Return one rollout for each text, with the log-probabilities of its tokens; ``choices``
        says who reads which."""
        keys = [(item.id, choice) for item, choice in zip(items, choices, strict=True)]
        questions = {
            key: Question(item, key[1])
            for key, item in zip(keys, items, strict=True)
            if key not in self._known
        }
        rollouts, _ = read_log(list(questions.values()), self.host, self.adapter)
        self._known.update(zip(questions, rollouts, strict=True))
        return [self._known[key] for key in keys]

    def _ability(self, rollouts: Sequence[Rollout]) -> GeneralAbility:
        bare = self.read(self.items, [HOST] * len(self.items))
        kinds = {
            kind: TextLikelihood.of(
                [_nats(rollout) for rollout in rollouts if rollout.item.family == kind],
                [_nats(rollout) for rollout in bare if rollout.item.family == kind],
            )
            for kind in KINDS
        }
        to_host = sum(rollout.organelle_id == HOST for rollout in rollouts) / len(rollouts)
        return GeneralAbility(**kinds, left_to_host=to_host)


def general_reader(
    config: RunConfig, pool: AdapterPool, host: Host, max_texts: int | None = None
) -> GeneralReader | None:
    """Return a reader for the candidates of a run; None where the host has no words to lose."""
    is_chat = prompt_styles.build(config.tasks.style).is_chat
    return GeneralReader(host, pool.adapter, is_chat, max_texts) if knows_english(host) else None


def general_of_servers(reader: GeneralReader, pool: AdapterPool) -> dict[str, GeneralAbility]:
    """Return the ability of the adapters that answer users, or that a router chooses among, from a
    part of the texts; those first that serve most."""
    part, served = replace(reader, max_texts=TEXTS_PER_SERVER), pool.state.served
    names = sorted(served, key=lambda name: (-len(served[name]), name)) or pool.elites
    return {name: part.of(name) for name in [n for n in names if n in pool.weights][:MAX_SERVERS]}


def abilities_of_run(run: LoadedRun, host: Host, routing: Spec) -> dict[str, GeneralAbility]:
    """Return the ability of whoever answers in a run by a routing, and of the adapters that serve.

    Raises:
        ConfigError: the host has no words to lose, or no such routing.
    """
    reader = general_reader(run.config, run.pool, host)
    if reader is None:
        raise _without_words()
    answers = reader.of_routing(run.pool, routings.build(routing))
    return {kind_of(routing): answers, **general_of_servers(reader, run.pool)}


def abilities_of_adapter(
    folder: Path, model: str, *, is_chat: bool = False
) -> dict[str, GeneralAbility]:
    """Return the ability of a PEFT adapter.

    Raises:
        AdapterError: the folder cannot be used with this host.
        ConfigError: the host has no words to lose.
    """
    from symbiont_ecology.model.kernel import HostKernel

    rank = stated_rank(folder)
    host = HostKernel.from_pretrained(model, slots=1, rank=rank, is_chat=is_chat)
    if not knows_english(host):
        raise _without_words()
    weights = {"adapter": read_peft(folder, host.layout)}
    return {"adapter": GeneralReader(host, weights.__getitem__, is_chat).of("adapter")}


def _without_words() -> ConfigError:
    return ConfigError(
        f"general: expected a host with a vocabulary of {MIN_VOCABULARY} or more, got one that "
        "writes letter by letter: it was never taught English"
    )


def knows_english(host: Host) -> bool:
    """Return true for a host that has words to lose."""
    return host.shape.vocab >= MIN_VOCABULARY


def general_items(kind: str, *, is_chat: bool = False) -> list[Item]:
    """Return the texts of a kind that come with the package, each with its reply."""
    lines = find_data(PLAIN_ENGLISH).read_text(encoding="utf-8").splitlines()
    (end, start), items = ("", "") if is_chat else ("\n", " "), list[Item]()
    for row in map(json.loads, lines):
        if kind == "chat" and "question" in row:
            prompt, reply = row["question"] + end, row["answer"]
        elif kind == "english" and "text" in row:
            # The rest has the space in front of it, unless a turn of its own begins there.
            words = row["text"].split(" ")
            prompt, reply = " ".join(words[:OPENING]), start + " ".join(words[OPENING:])
        else:
            continue
        item = Item(f"{kind}/{len(items)}", kind, "all", prompt, prompt, 1, bool, answer=reply)
        items.append(item.to_read)
    return items


def _nats(rollout: Rollout) -> float:
    """Return the mean log-probability of a token of the text, without the end that was put behind
    it: a passage has none."""
    return float(rollout.log_probabilities[:-1].mean())
