"""What a rollout and an update cost in FLOPs, in closed form: cost is physics, not weather.

A multiply-add is 2 FLOPs, as in ``torch.utils.flop_counter``, with which these formulas agree
within 1 % (math attention back end, unpadded, no cache reuse). They count *useful* work, real
tokens only: what padding adds and what a shared prefix saves is the kernel's affair and is reported
apart. Norms, softmax, rotations and the optimiser are left out, as the counter leaves them out.
Kaplan et al. 2020, arXiv:2001.08361, 2.1.

Attention counts the full square of queries × keys, not the causal triangle: that is what the math
back end computes and the counter sees. ``lora_parameters`` is the size of the adapter's flat
vector, 0 for the bare host.
"""

from __future__ import annotations

from symbiont_ecology.economics.shape import HostShape

ROLLOUT_WITH_LESSON = 4
"""What a rollout and its lesson take together, in rollouts of the bare host, about: a lesson takes
three."""


def forward_flops(
    shape: HostShape, lora_parameters: int, tokens: int, context: int = 0, head_positions: int = 0
) -> int:
    """One forward pass over ``tokens`` new tokens behind ``context`` cached ones.

    The LM head runs at ``head_positions`` positions.
    """
    return _flops(shape, lora_parameters, tokens, tokens * (context + tokens), head_positions)


def rollout_flops(
    shape: HostShape, lora_parameters: int, prompt_tokens: int, new_tokens: int
) -> int:
    """Reads a prompt and writes ``new_tokens``, end-of-answer included, with a key-value cache.

    The prompt's pass yields the first new token and the last one is never fed back, so
    ``new_tokens`` cost one pass over the prompt and ``new_tokens − 1`` passes over one token each.
    """
    if new_tokens == 0:
        return forward_flops(shape, lora_parameters, prompt_tokens)
    return executed_flops(shape, lora_parameters, prompt_tokens, prompt_tokens, new_tokens - 1)


def executed_flops(
    shape: HostShape, lora_parameters: int, prompt_tokens: int, read_tokens: int, steps: int
) -> int:
    """What a row of a batch really took: as many of its prompt's tokens as were read for it (none,
    where a neighbour had the same prompt), and ``steps`` passes over one token, those behind its
    end included.
    """
    keys = (
        steps * prompt_tokens + steps * (steps + 1) // 2
    )  # prompt + 1, prompt + 2, … prompt + steps
    return _flops(
        shape, lora_parameters, read_tokens + steps, read_tokens * read_tokens + keys, steps + 1
    )


def scoring_flops(
    shape: HostShape, lora_parameters: int, prompt_tokens: int, completion_tokens: int
) -> int:
    """Log-probabilities of a given completion: one pass, with the LM head on the completion
    alone."""
    tokens = prompt_tokens + completion_tokens
    return forward_flops(shape, lora_parameters, tokens, head_positions=completion_tokens)


def learning_flops(
    shape: HostShape, lora_parameters: int, prompt_tokens: int, completion_tokens: int
) -> int:
    """One lesson, forward and backward through a frozen host with LoRA on every layer.

    Backward costs the frozen weights 1 × their forward (input gradients, no weight gradients), LoRA
    2 × (both) and attention 2 × (two products per forward product). The first layer's query, key
    and value projections need no input gradient, since nothing below them learns. An adapter that
    leaves out the first layers, or some modules of the first, is charged for a little more than it
    takes.
    """
    tokens = prompt_tokens + completion_tokens
    first_inputs = shape.hidden * shape.head_dim * (shape.heads + 2 * shape.kv_heads)
    own = 2 * lora_parameters - first_inputs
    backward = _flops(shape, own, tokens, 2 * tokens * tokens, completion_tokens)
    return scoring_flops(shape, lora_parameters, prompt_tokens, completion_tokens) + backward


def tracing_flops(read_parameters: int, tokens: int) -> int:
    """One lesson from the trace of an answer of so many tokens: an outer product per token and
    module.

    ``read_parameters`` is the size of all A of the adapter. Noise and its addition cost next to
    nothing.
    """
    return 2 * tokens * read_parameters


def _flops(shape: HostShape, lora_parameters: int, tokens: int, pairs: int, positions: int) -> int:
    """Tokens through all linear modules; scores and weighted values of (query, key) pairs in every
    head of every layer; the LM head at some positions.
    """
    linear = tokens * (shape.layers * shape.linear_parameters + lora_parameters)
    attention = 2 * pairs * shape.layers * shape.heads * shape.head_dim
    return 2 * (linear + attention + positions * shape.hidden * shape.vocab)
