"""A run as a model of lm-evaluation-harness (Gao et al., EleutherAI), under the name ``symbiont``.

    import lm_eval
    import symbiont_ecology.extensions.bridges.lm_eval  # from here on the harness knows the model

    lm_eval.simple_evaluate(
        model="symbiont", model_args={"run": "artifacts/demo-1", "who": "learned"}, tasks=[…]
    )

``who`` answers is a routing, such as the run's router, which may leave a question to the bare host,
or an organelle by its id. Texts are put to the host as the harness makes them. ``symbiont lm-eval``
is the harness's own command line with this model. Log-likelihoods and greedy texts are those that
the harness's model ``hf`` finds with the same adapter through PEFT.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import ConfigError, HostError, MissingExtraError
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding, Item, OrganelleId, prepend_phrase, without_turns
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.routings import Choice, check_user, prompt_routing
from symbiont_ecology.model.learning import Reading
from symbiont_ecology.model.loading import find_device
from symbiont_ecology.run.act import Question, roll_out, waves
from symbiont_ecology.run.build import host_source
from symbiont_ecology.run.provenance import check_host

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm
except ImportError as error:
    raise MissingExtraError("a run as a model of the harness", "lm_eval", "lm-eval") from error

DEFAULT_LIMIT = 256
"""New tokens of a reply, where a task does not say it."""
REPLIES_PER_STEP = 256
"""Replies between two steps of the progress bar; ``host.memory_mb`` decides how many are computed
at once."""
KNOWN_KNOBS = ("until", "max_gen_toks", "do_sample", "temperature", "top_p")
SAMPLING_KNOBS = frozenset({"top_k", "min_p", "typical_p"})
"""Knobs of ``generation_kwargs`` that are followed, and those that say nothing where replies are
greedy."""
ARGUMENTS = ("run", "who", "habitat", "host", "device", "seed")


@register_model("symbiont")
class EcologyLM(TemplateLM):  # type: ignore[misc]
    """A run at its last checkpoint, as the harness asks a model.

    Args:
        run: the run's folder.
        who: who answers: a routing (``symbiont list routings``), or the id of an organelle that
            lives or of an elite, such as ``o3`` or ``o7@42``.
        habitat: the user who asks; whoever serves this user answers.
        host: where the host lies, if not where the run had it.
        device: as torch names it. The run's own, if it is left out or not there: the harness's
            command line names cuda:0 by itself.
        seed: of sampled replies.
        batch_size: not needed, and not used: ``host.memory_mb`` of the run decides.
        max_batch_size: likewise.

    Raises:
        ConfigError: nobody of that name, a routing that needs labels, or another argument.
        HostError: the host is not the one that the run was founded with.
        RunError: no run there, or no such habitat.
    """

    def __init__(
        self,
        run: str | Path,
        who: str = "learned",
        habitat: str = "",
        host: str | None = None,
        device: str | None = None,
        seed: int = 0,
        batch_size: object = None,
        max_batch_size: object = None,
        **others: object,
    ) -> None:
        super().__init__()
        for name in others:
            hint = f"{did_you_mean(name, ARGUMENTS)} expected {', '.join(ARGUMENTS)}"
            raise ConfigError(f"model_args: no argument {name!r};{hint}")
        loaded = LoadedRun.of_run(Path(run))
        users = loaded.pool.state.habitats
        check_user(loaded.config, users, habitat or None, str(run), "habitat")
        who = "habitat" if habitat else who
        self._routing, self._pool = prompt_routing(who, loaded.pool.weights), loaded.pool
        self._seed, self._habitat = seed, habitat
        source = host_source(loaded.config)
        changes = {"model": host, "device": device and _usable(device)}
        update = {name: value for name, value in changes.items() if value}
        self.kernel = replace(source, config=source.config.model_copy(update=update)).load()
        fingerprint = check_host(loaded.folder, self.kernel)
        self.kernel.is_chat = False  # the harness brings the template, if it is wanted
        self.tokenizer = self.kernel.tokenizer
        self._questions: dict[str, str] = {}
        self._info = {
            "run": str(loaded.folder),
            "generation": loaded.pool.state.generation,
            "who": who,
            "habitat": habitat,
            "host": fingerprint,
        }

    @property
    def eot_token_id(self) -> int:
        return self.kernel.end_token_id

    @property
    def prefix_token_id(self) -> int:
        begin = self.tokenizer.bos_token_id
        return self.eot_token_id if begin is None else int(begin)

    @property
    def max_length(self) -> int:
        """Number of tokens that the host can read."""
        return self.kernel.shape.max_positions

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer in the harness's caches."""
        return f"{self.kernel.name_or_path} {self._info['host']}"

    def get_model_info(self) -> dict[str, object]:
        """Return what the harness writes beside its results."""
        return self._info

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **others: object
    ) -> list[int]:
        """Return token ids; by default with special tokens, if the text has none."""
        begin = self.tokenizer.bos_token
        special = not (begin and string.startswith(begin))
        if add_special_tokens is not None:
            special = add_special_tokens
        return list(map(int, self.kernel.codec.encode([string], special=special)[0]))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation in the host's chat template. The router reads its last question
        alone."""
        text = str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                enable_thinking=False,
            )
        )
        questions = [turn["content"] for turn in chat_history if turn["role"] == "user"]
        self._questions[text] = questions[-1] if questions else text
        return text

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **others: object,
    ) -> list[tuple[float, bool]]:
        """Return log-likelihoods (nats) of continuations behind contexts, and whether the host
        would have written them. ``loglikelihood`` of the base class has encoded them."""
        owners = self._owners([context for (context, _), *_ in requests])
        pairs = []
        for (texts, *ids), phrase in zip(requests, map(self._phrase, owners), strict=True):
            context, continuation = texts
            pairs.append(
                self._encode_pair(prepend_phrase(phrase, context), continuation) if phrase else ids
            )
        readings = self._read(pairs, owners, disable_tqdm)
        answers = [(_sum(one), bool(one.is_likeliest.all())) for one in readings]
        for (texts, *_), answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return those of whole texts; what is longer than the host can read is read in windows."""
        texts = [request.args[0] for request in requests]
        windows = [
            (place, make_disjoint_window(window))
            for place, text in enumerate(texts)
            for window in get_rolling_token_windows(
                self.tok_encode(text), self.prefix_token_id, self.max_length, context_len=1
            )
        ]
        owners, sums = self._owners(texts), [0.0] * len(texts)
        authors = [owners[place] for place, _ in windows]
        readings = self._read([pair for _, pair in windows], authors, disable_tqdm)
        for (place, _), reading in zip(windows, readings, strict=True):
            sums[place] += _sum(reading)
        for text, total in zip(texts, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return replies, each up to the first of its stop texts. They are greedy, unless a task
        says ``do_sample``."""
        alike: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(place)
        pieces = [
            (options, places[start : start + REPLIES_PER_STEP])
            for options, places in alike.items()
            for start in range(0, len(places), REPLIES_PER_STEP)
        ]
        replies = [""] * len(requests)
        for options, places in tqdm(pieces, desc="replies", disable=disable_tqdm):
            items = [self._item(requests[place].args[0], place) for place in places]
            decoding, limit = _decoding_of(json.loads(options))
            for place, reply in zip(places, self._replies(items, decoding, limit), strict=True):
                replies[place] = reply
                self.cache_hook.add_partial("generate_until", requests[place].args, reply)
        return replies

    def _replies(self, items: Sequence[Item], decoding: Decoding, limit: int) -> list[str]:
        def ask(items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
            questions = []
            for item, owner in zip(items, choices, strict=True):
                generator = Draw(self._seed)("lm_eval", item.id) if decoding.temperature else None
                questions.append(Question(self._put(item, owner, limit), owner, generator))
            return roll_out(questions, self.kernel, self._pool.weights.__getitem__, decoding)[0]

        return [rollout.text for rollout in self._routing(self._pool, items, ask)]

    def _item(self, context: str, number: int = 0) -> Item:
        """Return a context as a question; a router reads its prompt."""
        return Item(
            id=str(number),
            family="",
            depth="",
            question=without_turns(context),
            prompt=self._questions.get(context, context),
            reply_limit=0,
            verifier=lambda reply: 0.0,
            habitat=self._habitat,
        )

    def _put(self, item: Item, owner: OrganelleId, limit: int) -> Item:
        """Return the question as it is put: whole, but for the beginning of one that leaves no room
        for the reply. A reply is never longer than what is left."""
        context, begin = item.question, self.tokenizer.bos_token
        if begin and self.tok_encode("") == [self.tokenizer.bos_token_id]:
            context = context.removeprefix(begin)  # encoding brings it
        room = max(self.max_length - limit, self.max_length // 2)
        if (excess := self._length(context, owner) - room) > 0:
            spans = self.tokenizer(context, return_offsets_mapping=True)["offset_mapping"]
            starts = [start for start, end in spans if end > start]  # special tokens have no text
            context = context[starts[excess] :]
        rest = self.max_length - self._length(context, owner)
        return replace(item, prompt=context, reply_limit=min(limit, rest))

    def _length(self, context: str, owner: OrganelleId) -> int:
        return len(self.kernel.encode([prepend_phrase(self._phrase(owner), context)])[0])

    def _phrase(self, owner: OrganelleId) -> str:
        """Return the text in front of every question that an organelle is asked."""
        return "" if owner == HOST else self._pool.weights[owner].phrase

    def _owners(self, contexts: Sequence[str]) -> list[OrganelleId]:
        """Return who reads what stands behind each context."""
        distinct = list(dict.fromkeys(contexts))
        if not isinstance(self._routing, Choice):
            raise ConfigError(
                "who: this routing asks several, and likelihoods have one author: expected host, "
                "single, learned, or the id of an organelle"
            )
        owners = self._routing.choose(self._pool, list(map(self._item, distinct)))
        owner_of = dict(zip(distinct, owners, strict=True))
        return [owner_of[context] for context in contexts]

    def _read(
        self, pairs: Sequence[Sequence[list[int]]], owners: Sequence[OrganelleId], is_silent: bool
    ) -> list[Reading]:
        """Return each continuation as its owner reads it behind its context, both as token ids; a
        context that is too long loses its beginning. The last token is not read."""
        kernel, by_place = self.kernel, dict[int, Reading]()
        groups = list(waves(set(owners), kernel.slots))
        for slots in tqdm(groups, desc="likelihoods", disable=is_silent):
            for owner, slot in slots.items():
                if owner != HOST:
                    kernel.place(slot, self._pool.weights[owner])
            places = [place for place, owner in enumerate(owners) if owner in slots]
            afters = [pairs[place][1] for place in places]
            rooms = [max(self.max_length + 1 - len(after), 1) for after in afters]
            befores = [pairs[place][0][-room:] for place, room in zip(places, rooms, strict=True)]
            readings = kernel.read(befores, afters, [slots[owners[place]] for place in places])
            by_place.update(zip(places, readings, strict=True))
        return [by_place[place] for place in range(len(pairs))]


def _decoding_of(said: dict[str, Any]) -> tuple[Decoding, int]:
    """Return how a task wants its replies, by its ``generation_kwargs``, and their limit.

    Raises:
        ConfigError: they say something that would change replies and is not known here.
    """
    knobs = normalize_gen_kwargs(said, DEFAULT_LIMIT)
    is_sampled = bool(knobs.get("do_sample"))
    strange = [name for name in knobs if name not in KNOWN_KNOBS]
    if strange and (is_sampled or not set(strange) <= SAMPLING_KNOBS):
        known = ", ".join(KNOWN_KNOBS)
        raise ConfigError(f"generation_kwargs: expected {known}, got {strange[0]}: leave it out")
    temperature = float(knobs.get("temperature") or 1.0) if is_sampled else 0.0
    stops = tuple(stop for stop in knobs["until"] if stop)
    decoding = Decoding(temperature, float(knobs.get("top_p") or 1.0), stop=stops)
    return decoding, int(knobs["max_gen_toks"])


def _usable(device: str) -> str:
    """Return the device, if torch can use it here, else nothing."""
    try:
        return str(find_device(device))
    except HostError:
        return ""


def _sum(reading: Reading) -> float:
    return float(reading.log_probabilities.sum())
