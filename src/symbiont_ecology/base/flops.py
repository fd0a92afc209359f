"""Amounts of work, and the FLOPs of a host's work in closed form: cost is physics.

A multiply-add is 2 FLOPs, as in ``torch.utils.flop_counter``, with which these formulas agree
within 1 % (math attention back end, unpadded, no cache reuse). They count *useful* work, real
tokens only: what padding adds and what a shared prefix saves is the kernel's affair and is reported
apart. Norms, softmax, rotations and the optimizer are left out, as the counter leaves them out.
Kaplan et al. 2020, arXiv:2001.08361, 2.1.

The type of the weights changes nothing: a multiply-add of an int8 host counts as one of a float32
host, although it takes less time. So energy and budgets are the same for both.

Attention counts the full square of queries × keys, not the causal triangle: that is what the math
back end computes and the counter sees. ``lora_parameters`` is the size of the adapter's flat
vector, 0 for the bare host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symbiont_ecology.base.errors import HostError

ROLLOUT_WITH_LESSON = 4
"""What is set aside for a rollout and its lesson, in rollouts of the bare host: with an adapter
they take between three and four."""
LARGE_HIDDEN = 512
"""Hidden size of the smallest large host."""


@dataclass(frozen=True)
class Cost:
    """An amount of work: ``flops`` are useful FLOPs, ``rows`` are prompts, many of which share one
    call.

    ``executed`` are the FLOPs that were really computed: rows that wait for others included,
    prompts that rows share counted once; 0 where nobody looked.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    rows: int = 0
    calls: int = 0
    flops: int = 0
    executed: int = 0

    @classmethod
    def computed(cls, flops: int, tokens_in: int = 0, tokens_out: int = 0) -> Cost:
        """Return work of which all that is useful was computed, and no more."""
        return cls(tokens_in, tokens_out, flops=flops, executed=flops)

    def __add__(self, other: Cost) -> Cost:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Cost(*(amount + more for amount, more in pairs))

    @property
    def tokens(self) -> int:
        """Tokens that were read and written."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class HostShape:
    """Sizes of a decoder-only transformer, in elements.

    ``linear_parameters`` counts the weights of all linear modules inside ONE decoder layer (biases
    and norms left out): one token costs 2 · layers · linear_parameters FLOPs there, 2 · hidden ·
    vocab in the output head, and 4 · layers · heads · head_dim · context in attention (Kaplan et
    al. 2020, arXiv:2001.08361). ``parameters`` counts every base weight once, tied weights once.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    max_positions: int
    linear_parameters: int
    parameters: int

    @property
    def is_large(self) -> bool:
        """True if tokens cost so much that it pays to save some of them, and of their gradients."""
        return self.hidden >= LARGE_HIDDEN

    @property
    def sketched_from(self) -> int:
        """The first layer whose gradients a sketch is made of: the middle one of a large host."""
        return self.layers // 2 if self.is_large else 0

    @property
    def embedding_layers(self) -> tuple[int, int]:
        """Behind how many layers the hidden states of an embedding are taken."""
        return 3 * self.layers // 5, 4 * self.layers // 5

    @classmethod
    def from_config(
        cls, config: Mapping[str, object], *, linear_parameters: int, parameters: int
    ) -> HostShape:
        """Read a Hugging Face ``config.json`` (Llama or GPT-2 field names).

        Raises:
            HostError: a size is named by none of the known fields.
        """
        hidden = _first(config, "hidden_size", "n_embd", "d_model")
        heads = _first(config, "num_attention_heads", "n_head")
        return cls(
            layers=_first(config, "num_hidden_layers", "n_layer"),
            hidden=hidden,
            heads=heads,
            kv_heads=_first(config, "num_key_value_heads", default=heads),
            head_dim=_first(config, "head_dim", default=hidden // heads),
            feed_forward=_first(
                config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden
            ),
            vocab=_first(config, "vocab_size"),
            max_positions=_first(config, "max_position_embeddings", "n_positions", default=1 << 30),
            linear_parameters=linear_parameters,
            parameters=parameters,
        )

    def forward_flops(
        self, lora_parameters: int, tokens: int, context: int = 0, head_positions: int = 0
    ) -> int:
        """Return the FLOPs of one forward pass over new tokens behind ``context`` cached ones.

        The LM head runs at ``head_positions`` positions.
        """
        return self._flops(lora_parameters, tokens, tokens * (context + tokens), head_positions)

    def rollout_flops(self, lora_parameters: int, prompt_tokens: int, new_tokens: int) -> int:
        """Return the FLOPs of reading a prompt and writing ``new_tokens``, end-of-answer included,
        with a key-value cache.

        The prompt's pass yields the first new token and the last one is never fed back, so
        ``new_tokens`` cost one pass over the prompt and ``new_tokens − 1`` passes over one token
        each.
        """
        if new_tokens == 0:
            return self.forward_flops(lora_parameters, prompt_tokens)
        return self.executed_flops(lora_parameters, prompt_tokens, prompt_tokens, new_tokens - 1)

    def executed_flops(
        self, lora_parameters: int, prompt_tokens: int, read_tokens: int, steps: int
    ) -> int:
        """Return the FLOPs that a row of a batch really took: as many of its prompt's tokens as
        were read for it (those that no neighbour's prompt began with), and ``steps`` passes over
        one token, those behind its end included.
        """
        # Keys of the passes: prompt + 1, prompt + 2, … prompt + steps.
        pairs = read_tokens * prompt_tokens + steps * prompt_tokens + steps * (steps + 1) // 2
        return self._flops(lora_parameters, read_tokens + steps, pairs, steps + 1)

    def scoring_flops(
        self, lora_parameters: int, prompt_tokens: int, completion_tokens: int
    ) -> int:
        """Return the FLOPs of scoring a given completion: one pass, with the LM head on the
        completion alone. Its last token predicts nothing, and is not read."""
        tokens = _tokens_of(prompt_tokens, completion_tokens)
        return self.forward_flops(lora_parameters, tokens, head_positions=completion_tokens)

    def learning_flops(
        self, lora_parameters: int, prompt_tokens: int, completion_tokens: int
    ) -> int:
        """Return the FLOPs of one lesson, forward and backward through a frozen host with LoRA on
        every layer.

        Backward costs the frozen weights 1 × their forward (input gradients, no weight gradients),
        LoRA 2 × (both) and attention 2 × (two products per forward product). The first layer's
        query, key and value projections need no input gradient, since nothing below them learns. An
        adapter that leaves out the first layers, or some modules of the first, is charged for a
        little more than it takes.
        """
        backward = self._backward_flops(lora_parameters, prompt_tokens, completion_tokens)
        return self.scoring_flops(lora_parameters, prompt_tokens, completion_tokens) + backward

    def sketching_flops(
        self, lora_parameters: int, prompt_tokens: int, completion_tokens: int
    ) -> int:
        """Return the FLOPs of a gradient sketch of one answer: as a lesson, but backward through
        the upper layers alone where the host is large."""
        backward = self._backward_flops(lora_parameters, prompt_tokens, completion_tokens)
        backward = backward * (self.layers - self.sketched_from) // self.layers
        return self.scoring_flops(lora_parameters, prompt_tokens, completion_tokens) + backward

    def embedding_flops(self, tokens: int) -> int:
        """Return the FLOPs of embedding a text of so many tokens: one pass through the layers up to
        the last that counts."""
        return self.forward_flops(0, tokens) * self.embedding_layers[-1] // self.layers

    def _backward_flops(
        self, lora_parameters: int, prompt_tokens: int, completion_tokens: int
    ) -> int:
        tokens = _tokens_of(prompt_tokens, completion_tokens)
        first_inputs = self.hidden * self.head_dim * (self.heads + 2 * self.kv_heads)
        parameters = 2 * lora_parameters - first_inputs
        return self._flops(parameters, tokens, 2 * tokens * tokens, completion_tokens)

    def _flops(self, lora_parameters: int, tokens: int, pairs: int, positions: int) -> int:
        """Return the FLOPs of tokens through all linear modules, of scores and weighted values of
        (query, key) pairs in every head of every layer, and of the LM head at some positions."""
        linear = tokens * (self.layers * self.linear_parameters + lora_parameters)
        attention = 2 * pairs * self.layers * self.heads * self.head_dim
        return 2 * (linear + attention + positions * self.hidden * self.vocab)


def _tokens_of(prompt_tokens: int, completion_tokens: int) -> int:
    """Return tokens that go through the host where a completion is given."""
    return prompt_tokens + max(completion_tokens - 1, 0)


def _first(config: Mapping[str, object], *names: str, default: int | None = None) -> int:
    """Return the first of the fields that is there and is not null."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int):
            return value
    if default is None:
        raise HostError(
            f"expected one of {', '.join(names)} in the host's config, found none: is it a decoder?"
        )
    return default
