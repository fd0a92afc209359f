"""Stop texts: the style of a run ends its answers, and what is learned from them ends by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from runs import start
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding, Item
from symbiont_ecology.ecology import HOST, Assignment, Outcome, Rollout
from symbiont_ecology.ecology.learning import Experience, learning_rules
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.extensions.study.jobs import host_parts
from symbiont_ecology.extensions.study.protocol import Arm, Protocol
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.run.act import Question, roll_out
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config

PLAN = Protocol(
    name="toy",
    question="where does the host stop?",
    base=(),
    unit_flops=1,
    budgets=(1,),
    seeds=(0,),
    arms={"ecology": Arm(about="many")},
    per_cell=2,
)


@dataclass
class ListeningHost(ToyHost):
    """A toy that remembers how it was asked to decode."""

    heard: list[Decoding] = field(default_factory=list)

    def rollout(self, rows, draws, decoding):  # type: ignore[no-untyped-def]
        """As the toy does."""
        self.heard.append(decoding)
        return super().rollout(rows, draws, decoding)


@pytest.mark.parametrize(
    ("style", "stops"),
    [("terse", ()), ({"kind": "few_shot", "stop": ["\n\n", "Q:"]}, ("\n\n", "Q:"))],
)
def test_practice_probes_evaluation_and_the_bare_host_stop_where_the_style_says(
    style: str | dict[str, object], stops: tuple[str, ...], tmp_path: Path
) -> None:
    host, folder = ListeningHost(), tmp_path / "run"
    config = toy_config(generations=2, families=("math.add", "string.sort"))
    config = config.model_copy(update={"tasks": config.tasks.model_copy(update={"style": style})})
    start(config, folder, host=host)
    loaded, trained = LoadedRun.of_run(folder), len(host.heard)
    loaded.evaluate(loaded.items(2), host)
    loaded.answer("math.add: 47+8", host)
    evaluated = len(host.heard)
    host_parts(PLAN, config, host)
    assert 0 < trained < evaluated < len(host.heard)
    assert {decoding.stop for decoding in host.heard} == {stops}


@pytest.fixture(scope="module")
def kernel() -> HostKernel:
    return HostKernel.from_pretrained("embedded", slots=1)


def stopped(kernel: HostKernel) -> tuple[Item, str, Rollout]:
    """A question, all that the host says to it, and the rollout that ends in the middle of that."""
    item = tasks.build("code.format").sample("medium", Draw(0)("question"))
    whole = kernel.generate([item.prompt], -1, item.reply_limit)[0]
    decoding = Decoding(stop=(whole[4:6],))
    ((rollout,), _) = roll_out([Question(item, HOST)], kernel, lambda _: None, decoding)  # type: ignore[arg-type,return-value]
    return item, whole, rollout


def test_a_stopped_answer_is_imitated_as_one_that_ends(kernel: HostKernel) -> None:
    item, whole, rollout = stopped(kernel)
    assert rollout.text == whole[:4]
    assert rollout.token_ids[-1] != kernel.codec.end_tokens[0]
    (reference,) = kernel.encode_answers([rollout.text])
    assert rollout.answer_ids == reference
    assert rollout.answer_ids[-1] == kernel.codec.end_tokens[0]
    accepted, refused = replace(rollout, reward=1.0), replace(rollout, reward=0.0)
    outcome = Outcome(Assignment(HOST, (item,), samples=2), (accepted, refused))
    experience = Experience((outcome,), {}, reference_ids={item.answer: reference})
    learned = {
        name: learning_rules.build(name).targets(experience)[0][0].token_ids
        for name in ("expert_iteration", "supervised", "policy_gradient")
    }
    assert learned["expert_iteration"] == learned["supervised"] == reference
    # A policy gradient is about what was drawn.
    assert learned["policy_gradient"] == rollout.token_ids
