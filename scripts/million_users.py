"""A paper estimate: a million users of one model on eight GPUs, as the table of its page.

    python scripts/million_users.py                # the table of docs/million-users.md
    python scripts/million_users.py --of RUN       # bytes that a run remembers of each habitat

Sizes come from the host's config and FLOPs from closed formulas (``economics.flops``). What is
supposed is a constant below.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import torch

from symbiont_ecology.ecology.habitats import MOST_ANSWERS
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import layout_of
from symbiont_ecology.host.outline import bytes_of, outline_of

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
"""The sizes that Qwen3-0.6B is published with."""
USERS, KINDS, RANK, GPUS = 1_000_000, 1_000, 8, 8
REQUESTS_PER_DAY, PEAK, LEARNED = 10, 5, 0.1
"""Requests of a user; busiest second ÷ mean second; part of the requests with a verdict that is
learned from."""
PROMPT_TOKENS, ANSWER_TOKENS, ANSWER_SECONDS = 256, 128, 5
GPU_GB = 80
RATES = (10, 30, 100)
"""Achieved TFLOP/s of one GPU, as three guesses."""
HABITAT_BYTES, FULL_HABITAT_BYTES = 7_768, 13_238
"""Measured: mean of the habitats of ``habitats/city`` after 250 generations, seeds 1 to 3 (597
habitats, 14.0 answers each), and of the 166 that remember 24 answers."""
LETTERS_PER_TOKEN, ID_LETTERS = 4, 7
"""Text of a token; a token id in JSON, comma included."""
THREAD_FLOPS, READING_SHARE = 96e9, 0.56
"""Measured on the machine of docs/performance.md: float32 products of one CPU thread, and the part
of that rate that the kernel reaches when it reads prompts on the embedded host."""
DAY = 86_400


def rows() -> Iterator[tuple[str, str, str]]:
    """What, how much, and how it is known."""
    outline = outline_of(QWEN3, torch.bfloat16)
    shape, size = outline.shape, layout_of(outline).size(RANK)
    cached = MemoryBudget(1, shape, 2, is_cpu=False).cached
    longest = PROMPT_TOKENS + ANSWER_TOKENS
    formula, supposed, measured = "formula", "assumption", "measured here"
    yield "parameters of the host", f"{shape.parameters:,}", "its config"
    yield "host in bf16, on every GPU", gigabytes(bytes_of(outline)), formula
    yield "parameters of an adapter of rank 8", f"{size:,}", formula
    yield "kinds of users, an adapter each", f"{KINDS:,}", supposed
    yield "an adapter on disk and in RAM, float32", megabytes(4 * size), formula
    yield "its Adam moments, bf16", megabytes(4 * size), formula
    yield "all adapters and moments, on disk or in RAM", gigabytes(8 * size * KINDS), formula
    yield "all adapters in GPU memory, bf16, on every GPU", gigabytes(2 * size * KINDS), formula
    yield "one adapter per user instead, on disk", terabytes(8 * size * USERS), formula
    yield "remembered of a user, short prompts", f"{HABITAT_BYTES:,} bytes", measured
    yield f"the same with {MOST_ANSWERS} answers", f"{FULL_HABITAT_BYTES:,} bytes", measured
    text = longest * LETTERS_PER_TOKEN + ANSWER_TOKENS * ID_LETTERS
    user = FULL_HABITAT_BYTES + MOST_ANSWERS * text
    yield "the same with these prompts and answers", f"{user:,} bytes", "formula on a measurement"
    yield "of all users", gigabytes(user * USERS), "formula on a measurement"
    mean_rate = USERS * REQUESTS_PER_DAY / DAY
    peak = PEAK * mean_rate
    yield "requests of a user a day", f"{REQUESTS_PER_DAY}", supposed
    yield "tokens of a prompt, of an answer", f"{PROMPT_TOKENS}, {ANSWER_TOKENS}", supposed
    yield "requests a second, mean", f"{mean_rate:.0f}", formula
    yield f"requests a second, peak ({PEAK} × the mean)", f"{peak:.0f}", supposed
    rollout = shape.rollout_flops(size, PROMPT_TOKENS, ANSWER_TOKENS)
    lesson = shape.learning_flops(size, PROMPT_TOKENS, ANSWER_TOKENS)
    yield "FLOPs of a request", f"{rollout:.3g}", formula
    yield "FLOPs of a lesson", f"{lesson:.3g}", formula
    yield "answering at the peak, TFLOP/s", f"{peak * rollout / 1e12:.0f}", formula
    learning = LEARNED * mean_rate * lesson
    yield "verdicts that are learned from", f"{LEARNED:.0%}", supposed
    yield "lessons a second, mean", f"{LEARNED * mean_rate:.1f}", formula
    yield "lessons of a kind a day", f"{LEARNED * mean_rate * DAY / KINDS:,.0f}", formula
    yield "learning, TFLOP/s", f"{learning / 1e12:.1f}", formula
    share = learning / (learning + mean_rate * rollout)
    yield "learning, part of all FLOPs of a day", f"{share:.0%}", formula
    running = peak * ANSWER_SECONDS
    yield f"answers at a time at the peak, {ANSWER_SECONDS} s each", f"{running:,.0f}", supposed
    yield "keys and values of a token", f"{cached:,} bytes", formula
    yield "keys and values at the peak, all GPUs", gigabytes(running * longest * cached), formula
    gpu_bytes = bytes_of(outline) + 2 * size * KINDS + running * longest * cached / GPUS
    yield f"host, adapters and caches on each of {GPUS} GPUs", gigabytes(gpu_bytes), formula
    yield "memory of a GPU", f"{GPU_GB} GB", supposed
    needed = (peak * rollout + learning) / 1e12
    yield (
        f"achieved TFLOP/s that each of {GPUS} GPUs needs for both",
        f"{needed / GPUS:.0f}",
        formula,
    )
    for rate in RATES:
        label = f"GPUs for the peak and learning at {rate} achieved TFLOP/s"
        yield label, f"{needed / rate:.1f}", "formula on an assumption"
    threads = (peak * rollout + learning) / (THREAD_FLOPS * READING_SHARE)
    yield (
        "CPU threads for the same at the rate of reading",
        f"{threads:,.0f}",
        ("formula on a measurement"),
    )


def megabytes(size: float) -> str:
    """Bytes in MB."""
    return f"{size / 1e6:.1f} MB"


def gigabytes(size: float) -> str:
    """Bytes in GB."""
    return f"{size / 1e9:.1f} GB"


def terabytes(size: float) -> str:
    """Bytes in TB."""
    return f"{size / 1e12:.1f} TB"


def table() -> str:
    """The table as Markdown."""
    lines = ["| what | how much | known by |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows())])


def remembered(run: Path) -> str:
    """Bytes of each habitat in a run's state: the mean, and that of full ones."""
    state = json.loads((run / "state.json").read_text(encoding="utf-8"))
    habitats = list(state["habitats"].values())
    texts = (json.dumps(h, ensure_ascii=False, separators=(",", ":")) for h in habitats)
    sizes = [len(text.encode()) for text in texts]
    full = [
        size for h, size in zip(habitats, sizes, strict=True) if len(h["answers"]) == MOST_ANSWERS
    ]
    if not sizes:
        return "no habitats"
    answers = mean(len(h["answers"]) for h in habitats)
    text = f"{len(sizes)} habitats, {mean(sizes):.0f} bytes and {answers:.1f} answers each"
    return text + (f"; {len(full)} are full, {mean(full):.0f} bytes each" if full else "")


def main() -> None:
    """Prints the table, or what a run remembers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--of", type=Path, metavar="RUN", help="folder of a run with habitats")
    run = parser.parse_args().of
    print(table() if run is None else remembered(run))


if __name__ == "__main__":
    main()
