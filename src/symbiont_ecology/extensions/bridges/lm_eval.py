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

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.base.errors import ConfigError, MissingExtraError
from symbiont_ecology.base.types import Decoding, Item, OrganelleId, prepend_phrase, without_turns
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.evaluate.routings import prompt_routing
from symbiont_ecology.model.learning import Reading
from symbiont_ecology.run.act import Question, roll_out, waves
from symbiont_ecology.run.build import host_source
from symbiont_ecology.run.provenance import check_host

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import Collator, normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm
except ImportError as error:
    raise MissingExtraError("a run as a model of the harness", "lm_eval", "lm-eval") from error

REPLIES_PER_STEP = 256
"""Replies between two steps of the progress bar; ``host.memory_mb`` decides how many are computed
at once."""
KNOBS = {"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k", "min_p"}
"""Keys of ``generation_kwargs`` that are followed, or say nothing where replies are greedy."""


@register_model("symbiont")
class EcologyLM(TemplateLM):  # type: ignore[misc]
    """A run at its last checkpoint, as the harness asks a model.

    Args:
        run: the run's folder.
        who: who answers: a routing (``symbiont list routings``), or the id of an organelle that
            lives or of an elite, such as ``o3`` or ``o7@42``.
        device: not used, as ``batch_size`` and ``max_batch_size``, which the harness names by
            itself: the run's ``host.device`` and ``host.memory_mb`` decide.

    Raises:
        ConfigError: nobody of that name, or a routing that needs labels.
        HostError: the host is not the one that the run was founded with.
        RunError: no run there.
    """

    def __init__(
        self,
        run: str | Path,
        who: str = "learned",
        device: object = None,
        batch_size: object = None,
        max_batch_size: object = None,
    ) -> None:
        super().__init__()
        loaded = LoadedRun.of_run(Path(run))
        self._routing, self._pool = prompt_routing(who, loaded.pool.weights), loaded.pool
        self._questions = dict[str, str]()
        self.kernel = host_source(loaded.config).load()
        self._fingerprint = check_host(loaded.folder, self.kernel)
        self.kernel.codec.is_chat = False  # the harness brings the template, if it is wanted
        self.tokenizer = self.kernel.codec.tokenizer

    @property
    def eot_token_id(self) -> int:
        return self.kernel.codec.end_tokens[0]

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
        return f"{self.kernel.name_or_path} {self._fingerprint}"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **others: object
    ) -> list[int]:
        """Return token ids; by default with special tokens, if the text has none."""
        begin = self.tokenizer.bos_token
        if add_special_tokens is None:
            add_special_tokens = not (begin and string.startswith(begin))
        (ids,) = self.kernel.codec.tokens([string], special=add_special_tokens)
        return list(map(int, ids))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation in the host's chat template. The router reads its last question
        alone."""
        text: str = self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=False,
        )
        questions = [turn["content"] for turn in chat_history if turn["role"] == "user"]
        self._questions[text] = (questions or [text])[-1]
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
        phrases = map(self._phrase, owners)
        for ((context, continuation), *ids), phrase in zip(requests, phrases, strict=True):
            if phrase:
                ids = self._encode_pair(prepend_phrase(phrase, context), continuation)
            pairs.append(ids)
        readings = self._read(pairs, owners)
        answers = [
            (float(one.log_probabilities.sum()), bool(one.is_likeliest.all())) for one in readings
        ]
        for (texts, *_), answer in zip(requests, answers, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return those of whole texts; what is longer than the host can read is read in windows."""
        texts = [request.args[0] for request in requests]
        begin, length = self.prefix_token_id, self.max_length
        windows = [
            (place, make_disjoint_window(window))
            for place, text in enumerate(texts)
            for window in get_rolling_token_windows(self.tok_encode(text), begin, length, 1)
        ]
        places, owners = [place for place, _ in windows], self._owners(texts)
        readings = self._read([pair for _, pair in windows], [owners[place] for place in places])
        scores = [one.log_probabilities.sum() for one in readings]
        sums: list[float] = np.bincount(places, scores, len(texts)).tolist()
        for text, total in zip(texts, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return greedy replies, each up to the first of its stop texts."""
        alike = Collator(
            [request.args for request in requests],
            sort_fn=lambda arguments: -len(arguments[0]),
            group_by="gen_kwargs",
        )
        replies, bar = list[str](), tqdm(desc="replies", total=len(requests), disable=disable_tqdm)
        for piece in alike.get_batched(n=REPLIES_PER_STEP):
            items = [self._item(context, place) for place, (context, _) in enumerate(piece)]
            texts = self._replies(items, *_decoding_of(piece[0][1]))
            for arguments, text in zip(piece, texts, strict=True):
                self.cache_hook.add_partial("generate_until", arguments, text)
            replies += texts
            bar.update(len(piece))
        return list(alike.get_original(replies))

    def _replies(self, items: Sequence[Item], decoding: Decoding, limit: int) -> list[str]:
        pairs = zip(items, self._routing.choose(self._pool, items), strict=True)
        questions = [Question(self._put(item, owner, limit), owner) for item, owner in pairs]
        rollouts, _ = roll_out(questions, self.kernel, self._pool.weights.__getitem__, decoding)
        return [rollout.text for rollout in rollouts]

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
        )

    def _put(self, item: Item, owner: OrganelleId, limit: int) -> Item:
        """Return the question as it is put: whole, but for the beginning of one that leaves no room
        for the reply. A reply is never longer than what is left."""
        context, begin = item.question, self.tokenizer.bos_token
        if begin and self.tok_encode("") == [self.tokenizer.bos_token_id]:
            context = context.removeprefix(begin)  # encoding brings it
        room = max(self.max_length - limit, self.max_length // 2)
        if (excess := self._length(context, owner) - room) > 0:
            context = self.tokenizer.decode(self.tok_encode(context, False)[excess:])
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
        owners = self._routing.choose(self._pool, list(map(self._item, distinct)))
        owner_of = dict(zip(distinct, owners, strict=True))
        return [owner_of[context] for context in contexts]

    def _read(
        self, pairs: Sequence[Sequence[list[int]]], owners: Sequence[OrganelleId]
    ) -> list[Reading]:
        """Return each continuation as its owner reads it behind its context, both as token ids; a
        context that is too long loses its beginning. The last token is not read."""
        kernel, by_place = self.kernel, dict[int, Reading]()
        for slots in waves(set(owners), kernel.slots):
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
        ConfigError: they say something that would change greedy replies.
    """
    knobs = normalize_gen_kwargs(said)
    strange = [name for name in knobs if name not in KNOBS]
    if knobs.get("do_sample") or strange:
        found = strange[0] if strange else "do_sample=true"
        raise ConfigError(f"generation_kwargs: expected greedy replies, got {found}: leave it out")
    return Decoding(stop=tuple(filter(None, knobs["until"]))), int(knobs["max_gen_toks"])
