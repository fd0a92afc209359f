"""The host kernel against PEFT, against itself alone, and against what it promises never to
touch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from company import SLOTS, Company, as_vector, assert_same_weights, some_lessons
from hosts import PROMPTS
from symbiont_ecology.adapters.adapter import OptimizerState
from symbiont_ecology.base.types import LearningBatch, Lesson


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
        gradient = as_vector(before, {name: one.grad for name, one in parameters.items()}, slot)
        with torch.no_grad():
            for name, one in parameters.items():
                one.copy_(kept[name])
        assert statistics.loss[slot] == pytest.approx(loss.item(), abs=1e-5)
        assert statistics.gradient_norm[slot] == pytest.approx(norm.item(), rel=1e-4)
        # Adam divides a gradient by its size. Where that is near epsilon, 1e-8, rounding counts.
        is_small = (gradient != 0) & (np.abs(gradient) < 1e-7)
        assert is_small.mean() < 0.01
        gaps = np.abs(learned[slot].vector - theirs)
        assert gaps[~is_small].max() <= 1e-5
        assert gaps.max() <= 1e-4
        assert np.abs(learned[slot].vector - before.vector).max() > 5e-5
        assert optimizer_state[slot].step == 1


def by_token(lesson: Lesson, slope: float) -> Lesson:
    """The lesson with a weight for each token: its own at the first, more or less at the others."""
    assert isinstance(lesson.weight, float)
    weights = tuple(lesson.weight + slope * place for place in range(len(lesson.completion)))
    return dataclasses.replace(lesson, weight=weights)


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
    before = kernel.fingerprint(is_fresh=True)
    kernel.export(0, tmp_path / "out")
    slot = kernel.attach(tmp_path / "out")
    _, batch = some_lessons(company)
    kernel.learn(batch, dict(enumerate(company.adapters)), {})
    kernel.score(PROMPTS, PROMPTS, slot)
    kernel.generate(PROMPTS, slot)
    kernel.sketch(PROMPTS, [(5, 6)] * len(PROMPTS))
    kernel.embed(PROMPTS, [(5, 6)] * len(PROMPTS))
    kernel.detach(slot)
    assert kernel.fingerprint(is_fresh=True) == before
