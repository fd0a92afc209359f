"""A run as a model of lm-evaluation-harness: the figures are those of the harness's own model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology import Run
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.model.locating import EMBEDDED_FOLDER

pytest.importorskip("lm_eval", reason="needs the extra lm-eval")

from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from hosts import add_chat_template, make_host
from symbiont_ecology.extensions.bridges.lm_eval import EcologyLM

QUESTIONS = ("math.add: 12+7\n", "string.reverse: abcd\n", "math.add: 3+4\n", "who is there?")
LONG = "a house by the sea, " * 60
PAIRS = (
    *((question, answer) for question in QUESTIONS for answer in ("=19", " yes", "dcba")),
    ("", "a text without context"),
    ("a space at the end ", "moves"),
    (LONG, "is cut at its beginning"),
)
CLOSE = 1e-4
GREEDY = {"until": ["\n\n"], "max_gen_toks": 12}


def requests(kind: str, arguments: Sequence[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, each, place) for place, each in enumerate(arguments)]


@pytest.fixture(scope="module")
def model(run: Run) -> Callable[[str], EcologyLM]:
    """The run's model by who answers; each is loaded once."""
    known: dict[str, EcologyLM] = {}

    def by(who: str) -> EcologyLM:
        if who not in known:
            known[who] = EcologyLM(run=run.folder, who=who)
        return known[who]

    return by


@pytest.fixture(scope="module", params=["host", "best"])
def pair(
    request: pytest.FixtureRequest, run: Run, adapter: Path, model: Callable[[str], EcologyLM]
) -> tuple[EcologyLM, HFLM]:
    """Our model, and the harness's own of the same weights through PEFT."""
    is_host = request.param == "host"
    theirs = HFLM(
        pretrained=str(EMBEDDED_FOLDER),
        device="cpu",
        dtype="float32",
        batch_size=4,
        **({} if is_host else {"peft": str(adapter)}),
    )
    return model("host" if is_host else run.best.id), theirs


def test_likelihoods_are_those_of_peft(pair: tuple[EcologyLM, HFLM]) -> None:
    ours, theirs = (one.loglikelihood(requests("loglikelihood", PAIRS)) for one in pair)
    assert any(likeliest for _, likeliest in theirs)
    for (total, likeliest), (expected, is_greedy) in zip(ours, theirs, strict=True):
        assert total == pytest.approx(expected, abs=CLOSE)
        assert likeliest == is_greedy


def test_likelihoods_of_whole_texts_are_those_of_peft(pair: tuple[EcologyLM, HFLM]) -> None:
    texts = [("a short text",), (LONG,), ("math.add: 12+7\n=19",)]
    ours, theirs = (
        one.loglikelihood_rolling(requests("loglikelihood_rolling", texts)) for one in pair
    )
    for total, (text,), expected in zip(ours, texts, theirs, strict=True):
        assert total == pytest.approx(expected, abs=CLOSE * len(text))


def test_greedy_replies_are_those_of_peft(pair: tuple[EcologyLM, HFLM]) -> None:
    asked = [(question, dict(GREEDY)) for question in QUESTIONS]
    asked.append((QUESTIONS[0], {"until": "\n", "max_gen_toks": 3, "temperature": 0.7}))
    asked[-1][1]["do_sample"] = False
    ours, theirs = (one.generate_until(requests("generate_until", asked)) for one in pair)
    assert ours == theirs


@pytest.mark.parametrize("who", ["learned", "host", "single"])
def test_a_reply_is_what_infer_says(who: str, run: Run, model: Callable[[str], EcologyLM]) -> None:
    asked = [(question, dict(GREEDY)) for question in QUESTIONS[:3]]
    replies = model(who).generate_until(requests("generate_until", asked))
    said = [run.ask(question, who, 12) for question, _ in asked]
    assert replies == [rollout.text.split("\n\n")[0] for rollout in said]


def test_the_router_decides_whose_likelihood_it_is(
    run: Run, model: Callable[[str], EcologyLM]
) -> None:
    asked = requests("loglikelihood", [(question, "=19") for question in QUESTIONS])
    routed = model("learned").loglikelihood(asked)
    names = [run.ask(question, "learned", 1).organelle_id for question in QUESTIONS]
    for place, name in enumerate(names):
        (alone,) = model(name).loglikelihood(asked[place : place + 1])
        assert routed[place][0] == pytest.approx(alone[0], abs=CLOSE)
    assert len(set(names)) > 1


def test_a_context_without_room_for_its_reply_loses_its_beginning(
    model: Callable[[str], EcologyLM],
) -> None:
    host, wish, text = model("host"), {"max_gen_toks": 400}, LONG + QUESTIONS[0]
    end = host.tokenizer.decode(host.tok_encode(text)[1 - host.max_length // 2 :])
    whole, cut = host.generate_until(requests("generate_until", [(text, wish), (end, wish)]))
    assert whole == cut


def test_chat_templates_go_around_and_the_router_reads_the_question_alone(tmp_path: Path) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    style = "tasks.style={kind: natural, is_chat: true}"
    words = [f"host.model={host}", "host.rank=2", "tasks.families=[math.add]", style]
    run = Run.start("base", *words, "run.generations=2", folder=tmp_path / "run").finish()
    chat = EcologyLM(run=run.folder, who="learned")
    question = run.loaded.items(1)[0].prompt
    text = chat.apply_chat_template([{"role": "user", "content": question}])
    assert question in text != question
    asked = requests("generate_until", [(text, {"max_gen_toks": 8})])
    assert chat.generate_until(asked) == [run.ask(question, "learned", 8).text]


def test_the_phrase_of_an_organelle_stands_in_front_of_what_it_is_asked(tmp_path: Path) -> None:
    words = ("run.generations=1", "strategy.questions=1", "strategy.phrases=['#1 ', '#2 ']")
    run = Run.start("ga-gpt2", *words, folder=tmp_path / "run").finish()
    phrase = run.best.weights.phrase
    assert phrase
    model = EcologyLM(run=run.folder, who=run.best.id)
    asked = requests("generate_until", [(QUESTIONS[0], dict(GREEDY))])
    assert model.generate_until(asked) == [run.ask(QUESTIONS[0], "single", 12).text]
    (answer,) = model.loglikelihood(requests("loglikelihood", [(QUESTIONS[0], "=19")]))
    model.kernel.place(0, run.best.weights)
    # The harness takes white space at the end of a context for a part of what follows it.
    (expected,) = model.kernel.score([phrase + QUESTIONS[0].rstrip()], ["\n=19"], 0)
    assert answer[0] == pytest.approx(float(expected.sum()), abs=CLOSE)


TASK = {
    "task": "choose",
    "dataset_path": "json",
    "test_split": "train",
    "doc_to_text": "math.add: {{a}}+{{b}}\n",
    "output_type": "multiple_choice",
    "doc_to_choice": "sums",
    "doc_to_target": 0,
    "target_delimiter": "",
}


def test_the_harness_evaluates_a_run_with_a_local_task(
    run: Run, adapter: Path, tmp_path: Path
) -> None:
    pairs = [(a, b) for a in (3, 14) for b in (2, 5)]
    rows = [{"a": a, "b": b, "sums": [f"={a + b + d}" for d in range(3)]} for a, b in pairs]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {**TASK, "dataset_kwargs": {"data_files": str(tmp_path / "sums.jsonl")}}
    theirs = HFLM(pretrained=str(EMBEDDED_FOLDER), peft=str(adapter), device="cpu", dtype="float32")
    who = {"run": str(run.folder), "who": run.best.id}
    expected, found = (
        simple_evaluate(
            model=model,
            tasks=[dict(task)],
            task_manager=TaskManager(include_defaults=False),
            **more,
        )["results"]["choose"]
        for model, more in (
            (theirs, {}),
            ("symbiont", {"model_args": who, "batch_size": 4, "device": "cuda:0"}),
        )
    )
    assert {key: found[key] for key in expected if "stderr" not in key} == {
        key: value for key, value in expected.items() if "stderr" not in key
    }


@pytest.mark.parametrize("wish", [{"num_beams": 4}, {"do_sample": True}])
def test_a_wish_that_cannot_be_followed_is_refused(
    wish: dict[str, Any], model: Callable[[str], EcologyLM]
) -> None:
    with pytest.raises(ConfigError, match=f"generation_kwargs: .* got {min(wish)}"):
        model("host").generate_until(requests("generate_until", [(QUESTIONS[0], wish)]))
