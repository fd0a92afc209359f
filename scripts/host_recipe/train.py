"""Trains the embedded host from one seed, by steps: ``make host``.

A Qwen3 causal language model of a million parameters reads lines from ``habits``, most of the loss
on their completions. Same machine and same build give the same weights; elsewhere the last bits
differ, and with them details of the table in docs/results/embedded_host.md, which says how much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from host_recipe.habits import draw_line, pretrained_families
from symbiont_ecology.base.rng import Draw

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_A, _B, _C = 3.4445, -4.7750, 2.0315  # quintic Newton-Schulz coefficients of the original


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, apart from the text."""

    seed: int = 0
    steps: int = 4000
    batch: int = 128
    learning_rate: float = 5e-3
    warm_up: int = 50
    hold: float = 0.45
    """Share of the steps at full learning rate; then it falls to zero in a straight line."""
    prompt_weight: float = 0.1
    """Loss weight of prompt tokens; completion tokens weigh 1."""
    easy_until: float = 0.2
    easy: tuple[float, float, float] = (0.75, 0.22, 0.03)
    mixed: tuple[float, float, float] = (0.42, 0.36, 0.22)
    """Weights of short, medium and long payloads until and after ``easy_until`` of the steps."""
    pool: int = 16
    """Batches that are drawn together and bucketed by length."""
    layers: int = 5
    hidden: int = 128
    feed_forward: int = 384


@dataclass(frozen=True)
class Batch:
    """Padded token ids ``(rows, length)`` and loss weights of the targets
    ``(rows, length - 1)``."""

    ids: torch.Tensor
    weights: torch.Tensor


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that puts its own ``<bos>`` before a prompt and pads on the left."""
    specials = [PAD, BOS, EOS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(specials + alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    names = sorted(family.name for family in pretrained_families())
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in [*names, "True", "False"]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The untrained host. Output projections start small so that depth does not add up at the
    start."""
    torch.manual_seed(recipe.seed)
    vocabulary = -(-len(tokenizer) // 8) * 8
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        attention_bias=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_((2 * recipe.layers) ** -0.5)
            layer.mlp.down_proj.weight.mul_((2 * recipe.layers) ** -0.5)
    return model


def batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Iterator[Batch]:
    """The stream of batches, bucketed by length within pools; endless."""
    families = pretrained_families()
    step = 0
    while True:
        draw = Draw(recipe.seed, step)
        generator = draw("lines")
        mix = recipe.easy if step < recipe.easy_until * recipe.steps else recipe.mixed
        lines = [draw_line(families, mix, generator) for _ in range(recipe.pool * recipe.batch)]
        prompts = tokenizer([line.prompt for line in lines])["input_ids"]
        completions = tokenizer([line.completion for line in lines], add_special_tokens=False)[
            "input_ids"
        ]
        rows = [
            (p, [*c, tokenizer.eos_token_id]) for p, c in zip(prompts, completions, strict=True)
        ]
        jitter = generator.random(len(rows))
        order = np.argsort(
            [len(p) + len(c) + noise for (p, c), noise in zip(rows, jitter, strict=True)]
        )
        for bucket in draw("buckets").permutation(recipe.pool):
            places = order[bucket * recipe.batch : (bucket + 1) * recipe.batch]
            yield _pad([rows[index] for index in places], recipe.prompt_weight)
        step += recipe.pool


def _pad(rows: list[tuple[list[int], list[int]]], prompt_weight: float) -> Batch:
    length = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for index, (prompt, completion) in enumerate(rows):
        end = len(prompt) + len(completion)
        ids[index, :end] = torch.tensor(prompt + completion)
        weights[index, :end] = prompt_weight
        weights[index, len(prompt) : end] = 1.0
    return Batch(ids, weights[:, 1:])


def train(recipe: Recipe, folder: Path, threads: int = 2) -> dict[str, object]:
    """Trains, writes the host as a Hugging Face folder, and returns what went in and came out."""
    torch.set_num_threads(threads)
    tokenizer = build_tokenizer()
    model = build_model(recipe, tokenizer).train()
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimisers = [
        Muon(matrices, lr=recipe.learning_rate),
        torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    stream = batches(recipe, tokenizer)
    tokens = 0
    smooth = 0.0
    for step in track(range(recipe.steps), "training the host"):
        rate = recipe.learning_rate * _schedule(step, recipe)
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = rate
        loss, answer_loss, count = _loss(model, next(stream))
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimiser in optimisers:
            optimiser.step()
        tokens += count
        smooth = answer_loss if step == 0 else 0.98 * smooth + 0.02 * answer_loss
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: {smooth:.4f} nats per answer token", flush=True)
    save(model, tokenizer, folder)
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "recipe": asdict(recipe),
        "parameters": parameters,
        "tokens": tokens,
        "answer_nats": round(smooth, 4),
    }


def _loss(model: Qwen3ForCausalLM, batch: Batch) -> tuple[torch.Tensor, float, int]:
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
    logits = model.lm_head(hidden)
    nats = F.cross_entropy(
        logits.flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="none"
    ).view_as(batch.weights)
    answers = batch.weights == 1
    answer_loss = (nats.detach() * answers).sum() / answers.sum()
    return (
        (nats * batch.weights).sum() / batch.weights.sum(),
        float(answer_loss),
        int((batch.ids > 0).sum()),
    )


def _schedule(step: int, recipe: Recipe) -> float:
    part = step / recipe.steps
    return min(1.0, (step + 1) / recipe.warm_up, (1 - part) / (1 - recipe.hold))


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Half precision on disk (2 MB), named float32 in the config so that it loads in full
    precision."""
    model.eval()
    half = Qwen3ForCausalLM(model.config).to(torch.float16)
    half.load_state_dict(
        {name: tensor.to(torch.float16) for name, tensor in model.state_dict().items()}
    )
    half.generation_config.pad_token_id = tokenizer.pad_token_id
    half.save_pretrained(folder)
    half.config.dtype = torch.float32
    half.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is made orthogonal before each step (Jordan et al. 2024).

    For 2-D hidden matrices; step size in the scale of AdamW's (0.2 · √max(d_in, d_out)). In float32
    and batched over matrices of equal shape: torch's own iterates in bfloat16, which CPUs without
    such units emulate at a third of the speed (docs/log.md).
    """

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.02,
    ) -> None:
        super().__init__(
            list(matrices), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[tuple[torch.nn.Parameter, torch.Tensor]]] = (
                defaultdict(list)
            )
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                velocity = self.state[matrix].setdefault("velocity", torch.zeros_like(matrix))
                velocity.lerp_(matrix.grad, 1 - group["momentum"])
                update = matrix.grad.lerp(velocity, group["momentum"])  # Nesterov
                wide = update if update.shape[0] <= update.shape[1] else update.T
                by_shape[(wide.shape[0], wide.shape[1])].append((matrix, wide))
            for shape, pairs in by_shape.items():
                steps = orthogonalise(torch.stack([wide for _, wide in pairs])) * (
                    0.2 * max(shape) ** 0.5
                )
                for (matrix, _), step in zip(pairs, steps, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(step if step.shape == matrix.shape else step.T, alpha=group["lr"])


def orthogonalise(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """Nearest orthogonal matrices, roughly, of ``(batch, rows ≤ columns)`` by Newton-Schulz
    iteration."""
    x: torch.Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.transpose(1, 2)
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x
