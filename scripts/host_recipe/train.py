"""Trains the embedded host from one seed, by steps: ``make host``.

A Qwen3 causal language model of a million parameters reads lines from ``habits``, most of the loss
on their completions. Same machine and same build give the same weights; elsewhere the last bits
differ, and with them details of the table in docs/host.md, which says how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from host_recipe.habits import draw_line, pretrained_families
from host_recipe.muon import Muon
from host_recipe.tokenizer import build_tokenizer
from symbiont_ecology.rng import Draw


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
    stream, tokens, smooth = batches(recipe, tokenizer), 0, 0.0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("training the host", total=recipe.steps)
        for step in range(recipe.steps):
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
            description = f"training the host, {smooth:.3f} nats per answer token"
            progress.update(task, advance=1, description=description)
            if not progress.console.is_terminal and (step + 1) % 100 == 0:
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
