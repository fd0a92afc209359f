"""What plain English is to adapters: nothing changes what does nothing, and damage shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts import SMOLLM2, add_chat_template, make_host, random_weights, smollm2
from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.study.general import (
    GeneralReader,
    abilities_of_adapter,
    general_items,
    knows_english,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.tasks import tasks
from toy import ToyHost


def nobody(name: str) -> AdapterWeights:
    raise KeyError(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("words")
    make_host(made, layers=1, vocab_size=1200, max_position_embeddings=1024)
    return add_chat_template(made)


@pytest.fixture(scope="module")
def kernel(folder: Path) -> HostKernel:
    return HostKernel.from_pretrained(folder, slots=2)


def test_sixty_passages_and_sixty_answers_come_with_the_package() -> None:
    passages, answers = general_items("english"), general_items("chat")
    assert len({item.prompt for item in passages}) == len({item.prompt for item in answers}) == 60
    assert all(40 <= len((item.prompt + item.answer).split()) <= 80 for item in passages)
    assert all(item.prompt.endswith("?\n") for item in answers)
    assert all(item.prompt.endswith("?") for item in general_items("chat", is_chat=True))


def test_no_text_asks_what_a_task_asks() -> None:
    prompts = [item.prompt for kind in ("english", "chat") for item in general_items(kind)]
    names = tasks.names()
    assert not [prompt for prompt in prompts if any(name in prompt for name in names)]


def test_an_adapter_that_does_nothing_changes_nothing(kernel: HostKernel) -> None:
    still = random_weights(kernel.layout, seed=1).times(0.0)
    ability = GeneralReader(kernel, {"o1": still}.__getitem__, max_texts=4).of("o1")
    for kind in (ability.english, ability.chat):
        assert kind.change.estimate == pytest.approx(0.0, abs=1e-4)
        assert kind.texts == 4
        assert kind.nats == pytest.approx(kind.host_nats, rel=1e-3)
    assert ability.left_to_host == 0.0


def test_an_adapter_that_says_other_things_is_told_from_the_host(kernel: HostKernel) -> None:
    wild = random_weights(kernel.layout, seed=1, scaling=200.0)
    ability = GeneralReader(kernel, {"o1": wild}.__getitem__, max_texts=6).of("o1")
    assert ability.english.change.low * ability.english.change.high > 0
    assert ability.change <= ability.chat.change.estimate
    assert ability.english.nats - ability.english.host_nats == pytest.approx(
        ability.english.change.estimate
    )


def test_what_is_left_to_the_host_loses_nothing(kernel: HostKernel) -> None:
    ability = GeneralReader(kernel, nobody, max_texts=3).of(HOST)
    assert (ability.change, ability.left_to_host) == (0.0, 1.0)
    assert (ability.english.change.low, ability.english.change.high) == (0.0, 0.0)


def test_every_text_is_read_once_by_everyone(kernel: HostKernel) -> None:
    wild = random_weights(kernel.layout, seed=1)
    reader = GeneralReader(kernel, {"o1": wild}.__getitem__, max_texts=3)
    first = reader.read(reader.items, ["o1"] * 6)
    assert reader.read(reader.items[::-1], ["o1"] * 6) == first[::-1]


def test_a_host_that_writes_letter_by_letter_has_nothing_to_keep() -> None:
    assert not knows_english(ToyHost())
    letters = HostKernel.from_pretrained("embedded", slots=1)
    assert not knows_english(letters)


def test_an_exported_adapter_is_read_through_the_chat_template(
    folder: Path, tmp_path: Path
) -> None:
    kernel = HostKernel.from_pretrained(folder, slots=1, is_chat=True)
    kernel.place(0, random_weights(kernel.layout, seed=2))
    kernel.export(0, tmp_path / "adapter")
    (ability,) = abilities_of_adapter(tmp_path / "adapter", str(folder), is_chat=True).values()
    assert ability.summary()["chat"] != ability.summary()["english"]
    assert (ability.chat.texts, ability.left_to_host) == (60, 0.0)


@smollm2
@pytest.mark.parametrize("is_chat", [False, True])
def test_plain_english_is_likely_to_smollm2(is_chat: bool) -> None:
    kernel = HostKernel.from_pretrained(SMOLLM2, slots=1, is_chat=is_chat)
    assert knows_english(kernel)
    ability = GeneralReader(kernel, nobody, is_chat=is_chat, max_texts=6).of(HOST)
    assert -4.5 < ability.english.nats < -2.5
    assert -4.0 < ability.chat.nats < -2.0
