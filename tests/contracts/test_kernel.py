"""The host kernel against PEFT, against itself alone, and against what it promises never to
touch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from hosts import PROMPTS, random_weights
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import HOST_SLOT, Completions, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights.adapter import AdapterWeights, OptimizerState

RANKS = (8, 4, 8, 1)
SLOTS = (
    0,
    1,
    HOST_SLOT,
    3,
    2,
    2,
    2,
    0,
)  # one per prompt: ragged, mixed with the bare host, out of order
GREEDY = Decoding()
SAMPLED = Decoding(temperature=0.9, top_p=0.9)


@dataclass
class Company:
    """A kernel with four adapters in its slots, and the same adapters on PEFT."""

    kernel: HostKernel
    adapters: tuple[AdapterWeights, ...]
    peft: Any
    tokenizer: Any

    def rollout(self, slots: Sequence[int] = SLOTS, tokens: int = 12) -> Completions:
        rows = [Request(prompt, slot, tokens) for prompt, slot in zip(PROMPTS, slots, strict=True)]
        return self.kernel.rollout(rows, None, GREEDY)

    def peft_as(self, slot: int) -> Any:
        self.peft.set_adapter(str(slot))
        return self.peft

    def peft_log_probabilities(
        self, model: Any, prompt: str, completion: Sequence[int]
    ) -> torch.Tensor:
        head = self.tokenizer(prompt)["input_ids"]
        ids = torch.tensor([head + list(completion)])
        logits = model(input_ids=ids).logits[0, len(head) - 1 : -1]
        return logits.log_softmax(-1).gather(1, ids[0, len(head) :, None])[:, 0]


@pytest.fixture(scope="session", params=["qwen3", "qwen3 wrapped", "gpt2", "embedded"])
def company(
    request: pytest.FixtureRequest,
    host_folders: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Company:
    kind, is_wrapped = request.param.split()[0], "wrapped" in request.param
    folder = host_folders[kind]
    kernel = HostKernel.from_pretrained(folder, slots=6, rank=8, prefer_fused=not is_wrapped)
    adapters = tuple(random_weights(kernel.layout, slot, rank) for slot, rank in enumerate(RANKS))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    peft = None
    for slot, weights in enumerate(adapters):
        kernel.place(slot, weights)
        out = tmp_path_factory.mktemp("exported")
        kernel.export(slot, out)
        if peft is None:
            peft = PeftModel.from_pretrained(model, out, adapter_name=str(slot))
        else:
            peft.load_adapter(out, adapter_name=str(slot))
    assert peft is not None
    return Company(kernel, adapters, peft.eval(), AutoTokenizer.from_pretrained(folder))


def test_log_probabilities_of_every_slot_equal_peft(company: Company) -> None:
    completions = [company.rollout()[row].token_ids for row in range(len(PROMPTS))]
    scores = company.kernel.score(PROMPTS, completions, SLOTS)
    for prompt, completion, slot, ours in zip(PROMPTS, completions, SLOTS, scores, strict=True):
        with torch.no_grad():
            if slot == HOST_SLOT:
                with company.peft.disable_adapter():
                    theirs = company.peft_log_probabilities(company.peft, prompt, completion)
            else:
                theirs = company.peft_log_probabilities(company.peft_as(slot), prompt, completion)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_greedy_text_equals_peft_generate(company: Company) -> None:
    slots = [0, 1, 2, 3, 2, 2, 2, 0]
    ours = company.kernel.generate(PROMPTS, slots, max_new_tokens=12)
    for prompt, slot, text in zip(PROMPTS, slots, ours, strict=True):
        batch = company.tokenizer(prompt, return_tensors="pt")
        ids = company.peft_as(slot).generate(**batch, max_new_tokens=12, do_sample=False)
        new = ids[0, batch["input_ids"].shape[1] :]
        assert text == company.tokenizer.decode(new, skip_special_tokens=True)


@pytest.mark.parametrize("is_by_token", [False, True], ids=["by row", "by token"])
def test_one_learning_step_equals_peft_with_adamw(company: Company, is_by_token: bool) -> None:
    lessons, batch = some_lessons(company, clip=3.0)
    if is_by_token:
        lessons = [by_token(lesson, slope=-0.3) for lesson in lessons]
        batch = dataclasses.replace(batch, lessons=tuple(lessons))
    learned, optimizer_state, statistics = company.kernel.learn(
        batch, dict(enumerate(company.adapters)), {}
    )
    for slot, before in enumerate(company.adapters):
        model = company.peft_as(slot)
        own = [lesson for lesson in lessons if lesson.slot == slot]
        parameters = {
            name: one for name, one in model.named_parameters() if f".{slot}.weight" in name
        }
        kept = {name: one.detach().clone() for name, one in parameters.items()}
        optimizer = torch.optim.AdamW(
            parameters.values(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0
        )
        optimizer.zero_grad()
        terms = [
            torch.tensor(one.weight)
            * company.peft_log_probabilities(model, one.prompt, one.completion)
            for one in own
        ]
        loss = -torch.cat(terms).sum() / sum(len(one.completion) for one in own)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 3.0)
        optimizer.step()
        theirs = as_vector(before, parameters, slot)
        with torch.no_grad():
            for name, one in parameters.items():
                one.copy_(kept[name])
        assert statistics.loss[slot] == pytest.approx(loss.item(), abs=1e-5)
        assert statistics.gradient_norm[slot] == pytest.approx(norm.item(), rel=1e-4)
        np.testing.assert_allclose(learned[slot].vector, theirs, atol=1e-5)
        assert np.abs(learned[slot].vector - before.vector).max() > 5e-5
        assert optimizer_state[slot].step == 1


def by_token(lesson: Lesson, slope: float) -> Lesson:
    """The lesson with a weight for each token: its own at the first, more or less at the others."""
    assert isinstance(lesson.weight, float)
    weights = tuple(lesson.weight + slope * place for place in range(len(lesson.completion)))
    return dataclasses.replace(lesson, weight=weights)


def test_equal_weights_of_tokens_are_one_weight(company: Company) -> None:
    lessons, batch = some_lessons(company)
    lessons = [by_token(lesson, slope=0.0) for lesson in lessons]
    weights = dict(enumerate(company.adapters))
    learned, memories, statistics = company.kernel.learn(batch, weights, {})
    batch = dataclasses.replace(batch, lessons=tuple(lessons))
    again, memories_again, statistics_again = company.kernel.learn(batch, weights, {})
    assert statistics == statistics_again
    for slot in weights:
        np.testing.assert_array_equal(learned[slot].vector, again[slot].vector)
        np.testing.assert_array_equal(memories[slot].first, memories_again[slot].first)


def test_too_many_or_too_few_weights_are_refused(company: Company) -> None:
    lesson = Lesson("12+7=", (70, 71, 72), 0, (1.0, 0.5))
    with pytest.raises(ValueError, match=r"each of 3 completion tokens .* got 2"):
        company.kernel.learn(LearningBatch((lesson,), {0: 1e-3}), {0: company.adapters[0]}, {})


def test_two_steps_in_company_equal_two_steps_alone(company: Company) -> None:
    _, batch = some_lessons(company)
    together, kept = (
        dict(enumerate(company.adapters)),
        dict.fromkeys(range(4), OptimizerState(notes={"baseline": 0.5})),
    )
    for _ in range(2):
        together, kept, _ = company.kernel.learn(batch, together, kept)
    for slot, weights in enumerate(company.adapters):
        own = tuple(lesson for lesson in batch.lessons if lesson.slot == slot)
        alone, optimizer_state = {slot: weights}, {slot: OptimizerState()}
        for _ in range(2):
            alone, optimizer_state, _ = company.kernel.learn(
                dataclasses.replace(batch, lessons=own), alone, optimizer_state
            )
        assert_same_weights(together[slot], alone[slot], rate=1e-4, steps=2)
        np.testing.assert_allclose(kept[slot].first, optimizer_state[slot].first, atol=1e-6)
        np.testing.assert_allclose(kept[slot].second, optimizer_state[slot].second, atol=1e-6)
        assert kept[slot].step == 2
        assert kept[slot].notes == {"baseline": 0.5}


def test_learning_raises_what_is_praised_and_lowers_what_is_blamed(company: Company) -> None:
    praised, blamed = (
        Lesson("12+7=", (70, 71, 2), slot, weight) for slot, weight in ((0, 1.0), (2, -1.0))
    )
    batch = LearningBatch((praised, blamed), {0: 1e-3, 2: 1e-3})
    weights = {slot: company.adapters[slot] for slot in (0, 2)}
    learned, _, _ = company.kernel.learn(batch, weights, {})
    kernel = company.kernel
    before = kernel.score(["12+7="] * 2, [(70, 71, 2)] * 2, [0, 2])
    kernel.place(4, learned[0])
    kernel.place(5, learned[2])
    after = kernel.score(["12+7="] * 2, [(70, 71, 2)] * 2, [4, 5])
    kernel.clear(4)
    kernel.clear(5)
    assert after[0].sum() > before[0].sum()
    assert after[1].sum() < before[1].sum()


def test_small_token_budgets_change_nothing(company: Company) -> None:
    _, batch = some_lessons(company)
    weights = dict(enumerate(company.adapters))
    reference, scores = company.rollout(), company.kernel.score(PROMPTS, PROMPTS, SLOTS)
    learned, _, _ = company.kernel.learn(batch, weights, {})
    budget = company.kernel._budget
    company.kernel._budget = dataclasses.replace(budget, megabytes=budget.megabytes / 20000)
    try:
        in_waves, in_chunks = company.rollout(), company.kernel.score(PROMPTS, PROMPTS, SLOTS)
        piecewise, _, _ = company.kernel.learn(batch, weights, {})
    finally:
        company.kernel._budget = budget
    assert in_waves.texts == reference.texts
    for one, other in zip(in_chunks, scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
    for slot in weights:
        assert_same_weights(piecewise[slot], learned[slot], rate=1e-4, steps=1)


def test_a_sick_slot_is_named_and_its_neighbours_do_not_notice(company: Company) -> None:
    _, batch = some_lessons(company)
    weights = dict(enumerate(company.adapters))
    healthy, optimizer_state, _ = company.kernel.learn(batch, weights, {})
    vector = company.adapters[1].vector.copy()
    vector[3] = np.nan
    weights[1] = dataclasses.replace(company.adapters[1], vector=vector)
    past = OptimizerState(step=7)
    learned, remembered, statistics = company.kernel.learn(batch, weights, {1: past})
    assert statistics.sick == (1,)
    assert learned[1] is weights[1]
    assert remembered[1] is past
    for slot in (0, 2, 3):
        np.testing.assert_array_equal(learned[slot].vector, healthy[slot].vector)
        np.testing.assert_array_equal(remembered[slot].first, optimizer_state[slot].first)


def test_a_sick_slot_does_not_disturb_its_neighbours_answers(company: Company) -> None:
    reference = company.rollout()
    vector = company.adapters[3].vector.copy()
    vector[:] = np.nan
    company.kernel.place(3, dataclasses.replace(company.adapters[3], vector=vector))
    texts = company.rollout().texts
    company.kernel.place(3, company.adapters[3])
    assert [a for a, slot in zip(texts, SLOTS, strict=True) if slot != 3] == [
        a for a, slot in zip(reference.texts, SLOTS, strict=True) if slot != 3
    ]


def test_padding_ranks_stay_exactly_zero(company: Company) -> None:
    small = company.adapters[3]
    padded = AdapterWeights.from_factors(
        small.layout, 8, small.scaling, {name: (a, b) for name, a, b in small.factors()}
    )
    lessons = (Lesson("12+7=", (70, 71), 0),)
    weights, optimizer_state = {0: padded}, {0: OptimizerState()}
    for _ in range(3):
        weights, optimizer_state, _ = company.kernel.learn(
            LearningBatch(lessons, {0: 1e-2}), weights, optimizer_state
        )
    for _, a, b in weights[0].factors():
        assert a[:1].any()
        assert not a[1:].any()
        assert not b[:, 1:].any()


def test_slots_without_lessons_come_back_as_they_were(company: Company) -> None:
    weights = {0: company.adapters[0], 2: company.adapters[2]}
    lessons = (Lesson("a", (70,), 0), Lesson("b", (), 2))
    learned, optimizer_state, statistics = company.kernel.learn(
        LearningBatch(lessons, {0: 1e-3, 2: 1e-3}), weights, {}
    )
    assert learned[2] is weights[2]
    assert optimizer_state[2] == OptimizerState()
    assert set(statistics.tokens) == {0}


def test_no_verb_changes_the_base_weights(company: Company, tmp_path: Path) -> None:
    kernel = company.kernel
    before = kernel.fingerprint()
    kernel.export(0, tmp_path / "out")
    slot = kernel.attach(tmp_path / "out")
    _, batch = some_lessons(company)
    kernel.learn(batch, dict(enumerate(company.adapters)), {})
    kernel.features(PROMPTS)
    kernel.score(PROMPTS, PROMPTS, slot)
    kernel.generate(PROMPTS, slot)
    kernel.detach(slot)
    assert kernel.fingerprint() == before


def test_bare_host_rows_equal_the_host_without_adapters(company: Company) -> None:
    mixed, alone = company.rollout(), company.rollout([HOST_SLOT] * len(PROMPTS))
    row = SLOTS.index(HOST_SLOT)
    assert mixed.texts[row] == alone.texts[row]
    assert mixed.texts != alone.texts
    empty = company.kernel.generate(PROMPTS, 5, max_new_tokens=12)
    assert empty == list(alone.texts)


def test_log_probabilities_of_a_rollout_are_those_of_score(company: Company) -> None:
    rollouts = sampled(company, range(len(PROMPTS)))
    completions = [rollouts[row].token_ids for row in range(len(PROMPTS))]
    for row, score in enumerate(company.kernel.score(PROMPTS, completions, SLOTS)):
        np.testing.assert_allclose(
            rollouts.log_probabilities[row, : len(score)], score.numpy(), atol=1e-4
        )
        assert not rollouts.ids[row, len(score) :].any()


def test_sampled_text_depends_neither_on_neighbours_nor_on_order(company: Company) -> None:
    rows = list(range(len(PROMPTS)))
    reference = sampled(company, rows)
    backwards = sampled(company, rows[::-1])
    assert backwards.texts == reference.texts[::-1]
    for row in rows:
        assert sampled(company, [row]).texts == (reference.texts[row],)
    assert len(set(reference.texts)) > 1


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
        assert free[row].token_ids[-1] == kernel.end_token_id
        assert kernel.end_token_id not in free[row].token_ids[:-1]
    held = kernel.rollout(
        rows, [Draw(1)("ends", row) for row in range(len(rows))], Decoding(2.0, 1.0, 60)
    )
    assert held.lengths.min() >= 60


def test_a_gold_answer_is_learned_with_its_end(company: Company) -> None:
    kernel = company.kernel
    for text, ids in zip(("=55", ""), kernel.encode_answers(["=55", ""]), strict=True):
        assert ids[-1] == kernel.end_token_id
        assert ids.count(kernel.end_token_id) == 1
        assert company.tokenizer.decode(ids[:-1]) == text


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


def test_features_are_the_mean_of_the_last_hidden_states(company: Company) -> None:
    features = company.kernel.features(PROMPTS)
    with torch.no_grad(), company.peft.disable_adapter():
        for prompt, ours in zip(PROMPTS, features, strict=True):
            batch = company.tokenizer(prompt, return_tensors="pt")
            states = company.peft(**batch, output_hidden_states=True).hidden_states[-1]
            np.testing.assert_allclose(ours, states[0].mean(0).numpy(), atol=1e-4)


def test_an_empty_call_answers_nothing(company: Company) -> None:
    assert company.kernel.rollout([], None, GREEDY).texts == ()
    assert company.kernel.score([], [], []) == []
    assert company.kernel.features([]).shape == (0, company.kernel.shape.hidden)


def some_lessons(company: Company, clip: float = 100.0) -> tuple[tuple[Lesson, ...], LearningBatch]:
    """Lessons for all four slots, praised and blamed: four each, and three for the last one."""
    written = company.rollout()
    lessons = tuple(
        Lesson(
            PROMPTS[row % 8],
            written[row % 8].token_ids[: row % 8 + 2],
            row % 4,
            (1.0, 0.5, -0.3)[row % 3],
        )
        for row in range(15)
    )
    return lessons, LearningBatch(lessons, dict.fromkeys(range(4), 1e-4), clip)


def assert_same_weights(
    one: AdapterWeights, other: AdapterWeights, rate: float, steps: int
) -> None:
    """Equal but where a gradient is rounding noise of 1e-8: Adam makes a whole step of it, either
    way."""
    difference = np.abs(one.vector - other.vector)
    assert (difference <= 1e-5).mean() > 0.9999
    assert difference.max() <= 2 * rate * steps


def sampled(company: Company, rows: Sequence[int]) -> Completions:
    """Sampled answers of these rows, each with its own named generator."""
    chosen = [Request(PROMPTS[row], SLOTS[row], 12) for row in rows]
    return company.kernel.rollout(chosen, [Draw(0)("test", row) for row in rows], SAMPLED)


def as_vector(like: AdapterWeights, parameters: dict[str, torch.Tensor], slot: int) -> np.ndarray:
    """PEFT's parameters of one adapter in our layout."""
    stem = "base_model.model."
    factors = {
        name: tuple(
            parameters[f"{stem}{name}.lora_{side}.{slot}.weight"].detach().numpy() for side in "AB"
        )
        for name, _, _ in like.layout.modules
    }
    return AdapterWeights.from_factors(like.layout, like.rank, like.scaling, factors).vector
