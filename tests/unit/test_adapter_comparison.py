"""An adapter beside its bare host: two systems, not one, and words that follow from numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from asked import answer, foreign
from hosts import make_host, random_weights
from symbiont_ecology.analysis.adapter_page import adapter_page
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluation.adapter_advice import advice
from symbiont_ecology.evaluation.adapter_comparison import AdapterComparison, compare_with_host
from symbiont_ecology.evaluation.general import GeneralAbility, TextLikelihood
from symbiont_ecology.evaluation.measure import Evaluation
from symbiont_ecology.host.fitting import check_adapter_fits
from symbiont_ecology.host.kernel import HostKernel
from symbiont_ecology.statistics import Interval, questions_needed
from symbiont_ecology.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    Item,
    LearningBatch,
    Lesson,
    Request,
)
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.peft_files import write_peft


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_host(tmp_path_factory.mktemp("host"), layers=2)


@pytest.fixture(scope="module")
def kernel(folder: Path) -> HostKernel:
    return HostKernel.from_pretrained(folder, slots=1, rank=8)


def capitals(count: int = 12, family: str = "geo") -> list[Item]:
    targets = ("Rome", "Oslo")
    items = [
        foreign(number, prompt=f"q {number % 2} {number}?\n", target=targets[number % 2])
        for number in range(count)
    ]
    return [replace(item, family=family, reply_limit=8) for item in items]


def saved(weights: AdapterWeights, folder: Path) -> Path:
    write_peft(folder, weights, base_model="host")
    return folder


def trained(kernel: HostKernel, items: Sequence[Item]) -> AdapterWeights:
    """An adapter that learned the reference answers of items."""
    generator = np.random.default_rng(0)
    weights = {0: AdapterWeights.random(kernel.layout, 8, 2.0, generator)}
    memory = {0: OptimizerState()}
    completions = kernel.encode_answers([item.answer for item in items])
    lessons = tuple(
        Lesson(item.prompt, completion, 0)
        for item, completion in zip(items, completions, strict=True)
    )
    for _ in range(60):
        weights, memory, _ = kernel.learn(LearningBatch(lessons, {0: 0.01}), weights, memory)
    return weights[0]


# Two systems.


def test_an_adapter_whose_b_is_zero_improves_and_breaks_nothing(
    kernel: HostKernel, tmp_path: Path
) -> None:
    still = AdapterWeights.random(kernel.layout, 4, 2.0, np.random.default_rng(1))
    found = compare_with_host(saved(still, tmp_path / "a"), capitals(), kernel)
    assert (found.counts["improvement"], found.counts["regression"]) == (0, 0)
    assert [pair.host.text for pair in found.pairs] == [pair.adapter.text for pair in found.pairs]
    assert found.answers is not None
    assert found.answers.change.estimate == pytest.approx(0.0, abs=1e-5)
    assert found.difference.estimate == 0.0
    assert advice(found)[0].startswith("Every reply is the same with the adapter and without")


def test_a_trained_adapter_is_another_system_than_its_host(
    kernel: HostKernel, tmp_path: Path
) -> None:
    learned = trained(kernel, capitals(40)[12:])
    found = compare_with_host(saved(learned, tmp_path / "a"), capitals(), kernel)
    assert found.counts["improvement"] >= 6
    assert found.counts["regression"] == 0
    assert found.difference.low > 0
    assert found.answers is not None
    assert found.answers.change.low > 0
    assert found.answers.perplexity < found.answers.host_perplexity
    bare = kernel.generate([item.prompt for item in capitals()], HOST_SLOT, 8)
    assert [pair.host.text for pair in found.pairs] == bare
    assert found.adapter.accuracy().low > found.host.accuracy().high


class ListeningKernel(HostKernel):
    """Remembers which slots were asked and read, call by call."""

    heard: list[set[int]]

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        """As every kernel."""
        self.heard.append({row.slot for row in rows})
        return super().rollout(rows, draws, decoding)

    def score(
        self,
        prompts: Sequence[str],
        completions: Sequence[str | Sequence[int]],
        slots: int | Sequence[int],
    ) -> list[Any]:
        """As every kernel."""
        assert not isinstance(slots, int)
        self.heard.append(set(slots))
        return list(super().score(prompts, completions, slots))


def test_the_host_is_asked_and_reads_without_any_adapter(folder: Path, tmp_path: Path) -> None:
    kernel = ListeningKernel.from_pretrained(folder, slots=1, rank=8)
    assert isinstance(kernel, ListeningKernel)
    kernel.heard = []
    wild = saved(random_weights(kernel.layout, seed=3), tmp_path / "a")
    found = compare_with_host(wild, capitals(), kernel)
    assert kernel.heard == [{HOST_SLOT}, {0}, {HOST_SLOT}, {0}]
    assert {pair.host.organelle_id for pair in found.pairs} == {HOST}
    assert {pair.adapter.organelle_id for pair in found.pairs} == {"adapter"}
    assert [pair.host.text for pair in found.pairs] != [pair.adapter.text for pair in found.pairs]


def test_perplexity_is_that_of_the_reference_answer_alone(
    kernel: HostKernel, tmp_path: Path
) -> None:
    items = capitals(3)
    found = compare_with_host(
        saved(random_weights(kernel.layout, seed=3), tmp_path / "a"), items, kernel
    )
    ids = kernel.encode_answers([item.answer for item in items])
    scores = kernel.score([item.prompt for item in items], ids, [HOST_SLOT] * 3)
    expected = [float(each[:-1].mean()) for each in scores]
    assert found.host_nats == pytest.approx(expected)
    assert found.answers is not None
    assert found.answers.host_perplexity == pytest.approx(math.exp(-np.mean(expected)))


def test_items_without_a_reference_answer_do_not_count_in_its_perplexity(
    kernel: HostKernel, tmp_path: Path
) -> None:
    adapter = saved(random_weights(kernel.layout, seed=3), tmp_path / "a")
    items, blank = capitals(3), [replace(item, answer="") for item in capitals(2, "open")]
    found = compare_with_host(adapter, [blank[0], *items, blank[1]], kernel)
    assert found.answers == compare_with_host(adapter, items, kernel).answers
    assert found.answers is not None
    assert found.groups["open"].answers is None
    json.dumps(found.record(), allow_nan=False)


# An adapter that does not belong here.


def test_an_adapter_of_another_host_is_found_without_loading_the_host(
    folder: Path, kernel: HostKernel, tmp_path: Path
) -> None:
    fine = saved(random_weights(kernel.layout, seed=1), tmp_path / "fine")
    check_adapter_fits(fine, str(folder))
    larger = make_host(tmp_path / "larger", layers=3)
    deeper = HostKernel.from_pretrained(larger, slots=1)
    saved(random_weights(deeper.layout, seed=1), tmp_path / "deeper")
    with pytest.raises(ValueError, match=r"expected modules of the host .*, got 'model.layers.2"):
        check_adapter_fits(tmp_path / "deeper", str(folder))
    with pytest.raises(ValueError, match=r"it was made for a host of another size"):
        check_adapter_fits(fine, str(make_host(tmp_path / "narrow", intermediate_size=128)))


def test_an_adapter_of_gpt2_fits_whatever_way_its_weights_lie(tmp_path: Path) -> None:
    host = make_host(tmp_path / "gpt2", "gpt2")
    kernel = HostKernel.from_pretrained(host, slots=1)
    kernel.place(0, random_weights(kernel.layout, seed=1))
    kernel.export(0, tmp_path / "a")
    check_adapter_fits(tmp_path / "a", str(host))


# Words that follow from numbers.


def made(changes: dict[str, tuple[int, int, int, int]], nats: float = 0.0) -> AdapterComparison:
    """A comparison with so many improvements, regressions, both right and both wrong by family;
    the adapter gives answers so many nats more."""
    bare: list[Rollout] = []
    adapted: list[Rollout] = []
    verdicts = ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    for family, counts in changes.items():
        for (before, after), count in zip(verdicts, counts, strict=True):
            for _ in range(count):
                number = len(bare)
                item = replace(foreign(number), family=family)
                bare.append(answer(item, text=f"host {number}", verdict=before))
                reply = answer(item, "adapter", text=f"adapter {number}", verdict=after)
                adapted.append(replace(reply, token_ids=(2,)))
    host_nats = tuple(-2.0 - 0.01 * (number % 7) for number in range(len(bare)))
    adapter_nats = tuple(each + nats + 0.01 * (n % 3 - 1) for n, each in enumerate(host_nats))
    return AdapterComparison(
        Evaluation("a", "host", "toy", tuple(bare)),
        Evaluation("a", "adapter", "toy", tuple(adapted)),
        host_nats,
        adapter_nats,
    )


def test_a_comparison_counts_what_it_is_made_of() -> None:
    found = made({"sums": (5, 2, 3, 4), "words": (1, 0, 0, 5)})
    assert found.counts == {"improvement": 6, "regression": 2, "both right": 3, "both wrong": 9}
    assert found.difference.estimate == pytest.approx(4 / 20)
    assert found.groups["words"].counts["both wrong"] == 5
    assert list(found.categories) == ["sums", "words"], "each family has one depth"
    record = found.record()
    assert isinstance(record["items"], list)
    assert [one["change"] for one in record["items"]].count("regression") == 2
    assert {pair.change for pair in found.examples("both wrong", 3)} == {"both wrong"}
    assert len(found.examples("both wrong", 3)) == 3


def test_a_family_of_several_depths_has_its_cells_behind_it() -> None:
    found = made({"law": (2, 1, 1, 0), "art": (1, 0, 0, 0)})
    places = {"law": "short", "art": "long"}

    def as_one(evaluation: Evaluation) -> Evaluation:
        """All of one family, with what was the family as depth."""
        rollouts = (
            replace(one, item=replace(one.item, family="exam", depth=places[one.item.family]))
            for one in evaluation.rollouts
        )
        return replace(evaluation, rollouts=tuple(rollouts))

    both = replace(found, host=as_one(found.host), adapter=as_one(found.adapter))
    parts = both.categories
    assert list(parts) == ["exam", "exam/short", "exam/long"]
    assert [len(part.pairs) for part in parts.values()] == [5, 4, 1]
    assert list(both.groups) == ["exam/short", "exam/long"]


@pytest.mark.parametrize(
    ("changes", "nats", "said"),
    [
        ({"a": (30, 2, 9, 9)}, 0.5, "The adapter is better than its host: +56.0 points ["),
        ({"a": (2, 30, 9, 9)}, 0.5, "The adapter is worse than its host: -56.0 points ["),
        ({"a": (6, 4, 5, 5)}, 0.0, "20 questions do not decide. If the difference that was seen"),
        ({"a": (3, 3, 5, 9)}, 0.0, "If one of 5 points is real, about"),
        ({"a": (0, 0, 0, 9)}, 0.0, "No reply of either is right, so accuracy says nothing."),
        ({"a": (30, 0, 9, 9), "b": (1, 7, 5, 5)}, 0.0, "In b regressions outweigh gains: 7 ag"),
        ({"a": (6, 4, 5, 5)}, 0.5, "Reference answers became likelier (perplexity 7.6"),
        ({"a": (6, 4, 5, 5)}, -0.5, "Reference answers became less likely"),
        ({"a": (30, 2, 9, 9)}, -0.5, "the adapter is surer of its mistakes"),
    ],
)
def test_advice_follows_from_the_numbers(
    changes: dict[str, tuple[int, int, int, int]], nats: float, said: str
) -> None:
    lines = advice(made(changes, nats))
    assert any(said in line for line in lines), lines


def test_partial_verdicts_decide_by_their_mean() -> None:
    found = made({"a": (0, 0, 0, 40)})

    def marked(evaluation: Evaluation, verdict: float) -> Evaluation:
        """With the same verdict on everything."""
        return replace(
            evaluation, rollouts=tuple(replace(one, verdict=verdict) for one in evaluation.rollouts)
        )

    better = replace(found, host=marked(found.host, 0.2), adapter=marked(found.adapter, 0.4))
    assert advice(better)[0].startswith("The adapter is better than its host: +20.0 points [")
    assert "sign flip p = " in advice(better)[0]
    level = replace(found, host=marked(found.host, 0.4), adapter=marked(found.adapter, 0.4))
    assert "The interval includes 0 (+0.0 points" in advice(level)[0]


def test_equal_replies_with_other_readings_point_to_the_style() -> None:
    found = made({"a": (0, 0, 3, 6)}, 0.5)
    replies = tuple(replace(one, token_ids=(1,)) for one in found.adapter.rollouts)
    lines = advice(replace(found, adapter=replace(found.adapter, rollouts=replies)))
    assert lines[0].endswith(
        "but it reads reference answers otherwise. Ask as it was trained: --style."
    )


def test_a_family_that_lost_by_chance_is_said_to_and_one_that_surely_lost_too() -> None:
    by_chance = advice(made({"a": (9, 0, 0, 9), "b": (1, 3, 5, 5)}))
    surely = advice(made({"a": (9, 0, 0, 9), "b": (1, 19, 5, 5)}))
    assert any("3 against 1 of 14; this may be chance" in line for line in by_chance)
    assert any("19 against 1 of 30; this is beyond chance (q = " in line for line in surely)
    assert not any("regressions outweigh" in line for line in advice(made({"b": (1, 19, 5, 5)})))


def test_replies_that_fill_their_limit_and_english_that_was_lost_are_told() -> None:
    found = made({"a": (6, 4, 5, 5)})
    full = tuple(replace(one, item=replace(one.item, reply_limit=1)) for one in found.host.rollouts)
    lost = TextLikelihood(-4.0, -3.0, Interval(-1.0, -1.2, -0.8), 60)
    kept = TextLikelihood(-3.0, -3.0, Interval(0.0, -0.1, 0.1), 60)
    changed = replace(
        found,
        host=replace(found.host, rollouts=full),
        adapter=replace(found.adapter, general=GeneralAbility(lost, kept, 0.0)),
    )
    lines = advice(changed)
    assert any(
        "20 of 20 replies of the host fill their limit of new tokens" in one for one in lines
    )
    assert any("Plain English became less likely, by 1.00 nats a token" in one for one in lines)
    assert not any("Conversation" in one for one in lines)


def test_so_many_questions_find_a_difference_as_often_as_promised() -> None:
    count = questions_needed(0.3, 0.1)
    assert count == 234, "Connor (1987): (1.96 √.3 + .842 √.29)² ÷ .1²"
    assert questions_needed(0.3, -0.1) == count
    assert questions_needed(0.3, 0.05) > 4 * count * 0.9
    generator = np.random.default_rng(0)
    drawn = generator.multinomial(count, [0.2, 0.1, 0.7], size=20_000)
    wins, losses = drawn[:, 0], drawn[:, 1]
    found = np.abs(wins - losses) > 1.96 * np.sqrt(wins + losses)
    assert found.mean() == pytest.approx(0.8, abs=0.02)
    for changed, difference in ((0.1, 0.0), (0.1, 0.2), (1.1, 0.2)):
        with pytest.raises(ValueError, match="expected a difference within"):
            questions_needed(changed, difference)


# The page.


def test_the_page_says_the_numbers_and_no_reply_is_markup_in_it() -> None:
    found = made({"sums": (5, 2, 3, 4)})
    hostile = "<script>alert(1)</script> ![x](http://x.example/y.png) | `a`\n# head"
    rollouts = tuple(replace(one, text=hostile) for one in found.adapter.rollouts)
    page = adapter_page(replace(found, adapter=replace(found.adapter, rollouts=rollouts)), ["Do."])
    for said in ("- Do.", "5 improvements", "2 regressions", "| sums | 14 |", "### Regression: 2"):
        assert said in page
    rows = [line for line in page.splitlines() if "script" in line]
    assert rows
    for row in rows:
        assert "`<script>alert(1)</script> ![x](http://x.example/y.png) \\| 'a'\\n# head`" in row
    assert "\n# head" not in page


@pytest.mark.parametrize(
    "name",
    [
        "![x](http://e.example/p.png)",
        "\\![x](http://e.example/p.png)",
        "\\\\[x](http://e.example)",
        "[x]: http://e.example/p.png",
        "<http://e.example>",
        "<img src=http://e.example/p.png>",
        "a \\| b",
    ],
)
def test_no_name_of_data_is_a_picture_or_a_link_on_the_page(name: str) -> None:
    page = adapter_page(made({name: (5, 2, 3, 4), "sums": (1, 1, 1, 1)}), [name])
    blocks = MarkdownIt("commonmark").enable("table").parse(page)
    cells = [part.content for block in blocks for part in block.children or ()]
    kinds = {part.type for block in blocks for part in block.children or ()}
    assert kinds <= {
        "text",
        "text_special",
        "softbreak",
        "code_inline",
        "strong_open",
        "strong_close",
    }
    assert cells.count(name) == 2  # in the list, and in the table by families
