"""What the kernel writes: the bare host's rows, sampling, ends, and what it took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from company import GREEDY, SLOTS, Company
from hosts import PROMPTS
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request
from symbiont_ecology.model.kernel import HostKernel


def test_bare_host_rows_equal_the_host_without_adapters(company: Company) -> None:
    mixed, alone = company.rollout(), company.rollout([HOST_SLOT] * len(PROMPTS))
    row = SLOTS.index(HOST_SLOT)
    assert mixed.texts[row] == alone.texts[row]
    assert mixed.texts != alone.texts
    empty = company.kernel.generate(PROMPTS, 5, max_new_tokens=12)
    assert empty == list(alone.texts)


def test_the_likeliest_tokens_are_those_that_are_written_greedily(company: Company) -> None:
    written = company.rollout()
    completions = [written[row].token_ids for row in range(len(PROMPTS))]
    for reading in company.kernel.read(PROMPTS, completions, SLOTS):
        assert reading.is_likeliest.all()
    others = [((ids[0] + 1) % company.kernel.shape.vocab, *ids[1:]) for ids in completions]
    for reading in company.kernel.read(PROMPTS, others, SLOTS):
        assert not reading.is_likeliest[0]


def test_a_completion_is_read_to_the_last_position_of_the_host(company: Company) -> None:
    most, token = company.kernel.shape.max_positions, company.kernel.codec.end_tokens[0]
    (scores,) = company.kernel.score([[token]], [[token] * most], HOST_SLOT)
    assert len(scores) == most
    with pytest.raises(HostError, match="tokens for prompt and answer"):
        company.kernel.score([[token, token]], [[token] * most], HOST_SLOT)
    with pytest.raises(HostError, match="at least one token"):
        company.kernel.score([[]], [[token]], HOST_SLOT)


def test_sampling_follows_the_models_probabilities(company: Company) -> None:
    count = 600
    rows = [Request("12+7=", 0, 1)] * count
    draws = [Draw(0)("sample", row) for row in range(count)]
    found = company.kernel.rollout(rows, draws, Decoding(temperature=1.0))
    first = found.ids[:, 0]
    likely = int(np.bincount(first).argmax())
    chance = float(np.exp(company.kernel.score(["12+7="], [(likely,)], 0)[0].item()))
    assert abs((first == likely).mean() - chance) < 4 * (chance * (1 - chance) / count) ** 0.5
    nucleus = company.kernel.rollout(rows, draws, Decoding(temperature=1.0, top_p=0.3)).ids[:, 0]
    vocab = company.kernel.shape.vocab
    odds = company.kernel.score(["12+7="] * vocab, [(token,) for token in range(vocab)], 0)
    ranked = sorted(range(vocab), key=lambda token: -odds[token].item())
    inside = np.exp([odds[token].item() for token in ranked]).cumsum() < 0.3
    assert set(nucleus.tolist()) <= set(ranked[: int(inside.sum()) + 1])


def test_min_new_tokens_holds_the_end_back(host_folders: dict[str, Path]) -> None:
    kernel = HostKernel.from_pretrained(host_folders["qwen3"], slots=1)
    rows = [Request(prompt, HOST_SLOT, 200) for prompt in PROMPTS]
    draws = [Draw(1)("ends", row) for row in range(len(rows))]
    free = kernel.rollout(rows, draws, Decoding(temperature=2.0))
    assert (free.lengths < 200).any()
    assert free.lengths.min() < 60
    for row in np.flatnonzero(free.lengths < 200):
        assert free[row].token_ids[-1] == kernel.codec.end_tokens[0]
        assert kernel.codec.end_tokens[0] not in free[row].token_ids[:-1]
    held = kernel.rollout(
        rows, [Draw(1)("ends", row) for row in range(len(rows))], Decoding(2.0, 1.0, 60)
    )
    assert held.lengths.min() >= 60


def test_rows_that_end_early_leave_and_change_nothing(company: Company) -> None:
    limits = [1, 30, 2, 3, 1, 2, 24, 0]
    rows = [
        Request(prompt, slot, limit)
        for prompt, slot, limit in zip(PROMPTS, SLOTS, limits, strict=True)
    ]
    ragged = company.kernel.rollout(rows, None, GREEDY)
    full = company.rollout(tokens=30)
    assert (ragged.lengths <= limits).all()
    for row, limit in enumerate(limits):
        assert ragged[row].token_ids == full[row].token_ids[:limit]
    assert ragged.texts[-1] == ""


def test_a_rollout_says_what_went_through_the_host(company: Company) -> None:
    rows = [Request(prompt, slot, 12) for prompt in PROMPTS[:3] for slot in (0, 0, 2, HOST_SLOT)]
    found = company.kernel.rollout(rows, None, GREEDY)
    assert found.read is not None
    assert found.fed is not None
    seen = set()
    for place, row in enumerate(rows):  # a prompt is read once for every slot
        once = found.prompt_lengths[place] if (row.slot, row.prompt) not in seen else 0
        assert found.read[place] == once
        seen.add((row.slot, row.prompt))
    assert (found.fed >= found.lengths - 1).all()
    assert (found.fed < found.lengths.max()).all()
    alone = company.kernel.rollout(rows[:1], None, GREEDY)
    assert alone.fed is not None
    assert alone.fed.tolist() == (alone.lengths - 1).tolist()


def test_prompts_are_scored_with_their_beginning_and_completions_without(company: Company) -> None:
    ids = company.tokenizer("19", add_special_tokens=False)["input_ids"]
    by_text, by_ids, nothing = company.kernel.score(["12+7="] * 3, ["19", ids, ""], 0)
    assert by_text.shape == (2,)
    torch.testing.assert_close(by_text, by_ids, atol=1e-6, rtol=0)
    assert nothing.shape == (0,)


def test_an_empty_call_answers_nothing(company: Company) -> None:
    assert company.kernel.rollout([], None, GREEDY).texts == ()
    assert company.kernel.score([], [], []) == []
