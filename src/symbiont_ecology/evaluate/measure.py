"""Measuring a run or a PEFT adapter: accuracies with intervals, costs, and who answered what."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.statistics import Interval, mcnemar, share_difference, sign_flip, wilson
from symbiont_ecology.base.types import Item, without_turns
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.evaluate.evaluator import Answers, Evaluator, Progress, no_progress
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import Routing, Spec, routings
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.evaluate.shifts import shifts as registered_shifts
from symbiont_ecology.run.budget import budget_phase, milestones
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.open_run import read_config
from symbiont_ecology.run.provenance import check_host
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.synthetic.styles import prompt_styles
from symbiont_ecology.tasks.users import shown_prompt

EVALUATION_SCHEMA = 4
"""Of the JSON that an evaluation leaves; raise it when a key goes or changes its meaning."""
Record = dict[str, object]
"""Plain values for JSON."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Rollouts of one system on a list of items.

    ``source`` is the run or adapter folder, ``host`` the fingerprint of the host.
    """

    source: str
    routing: str
    host: str
    rollouts: tuple[Rollout, ...]
    generation: int | None = None

    def __repr__(self) -> str:
        share, count = self.accuracy(), len(self.rollouts)
        limits = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]"
        right = f"{100 * share.estimate:.1f} % {limits}"
        return f"<{self.source} by {self.routing}: {right} of {count} items>"

    @property
    def items(self) -> list[Item]:
        """Items that were asked."""
        return [rollout.item for rollout in self.rollouts]

    @property
    def verdicts(self) -> list[float]:
        """One verdict per item."""
        return [rollout.verdict for rollout in self.rollouts]

    @property
    def flops(self) -> int:
        """Useful FLOPs of all answers."""
        return sum(rollout.cost.flops for rollout in self.rollouts)

    @property
    def flops_per_solved(self) -> float:
        """Useful FLOPs for each right answer."""
        return self.flops / max(sum(self.verdicts), 1.0)

    def accuracy(self) -> Interval:
        """Return the mean verdict with its 95 % Wilson interval; each subject counts once.

        Where verdicts are 0 or 1 it is the share of right answers. The interval of other verdicts
        is wider than it need be, since theirs spread less.
        """
        subjects = len({item.subject for item in self.items})
        return wilson(sum(self.verdicts) * subjects / max(len(self.rollouts), 1), subjects)

    def by(self, name_of: Callable[[Item], str]) -> dict[str, Evaluation]:
        """Return the evaluation of each group of items, in order of first appearance."""
        groups = defaultdict[str, list[Rollout]](list)
        for rollout in self.rollouts:
            groups[name_of(rollout.item)].append(rollout)
        return {name: replace(self, rollouts=tuple(group)) for name, group in groups.items()}

    @property
    def families(self) -> dict[str, Evaluation]:
        """The evaluation of each family that occurs."""
        return self.by(lambda item: item.family)

    def summary(self) -> Record:
        """Return everything but the single answers, as plain values under stable keys."""
        faults = Counter(
            f"{rollout.item.family}: {rollout.fault}" for rollout in self.rollouts if rollout.fault
        )
        return {
            "schema": EVALUATION_SCHEMA,
            "source": self.source,
            "generation": self.generation,
            "routing": self.routing,
            "host": self.host,
            "questions": len(self.rollouts),
            "questions_digest": self.questions_digest,
            "accuracy": asdict(self.accuracy()),
            "families": {
                family: {"questions": len(part.rollouts), **asdict(part.accuracy())}
                for family, part in self.families.items()
            },
            "shifts": {
                name: asdict(part.accuracy())
                for name, part in self.by(lambda item: item.shift).items()
                if name
            },
            "flops": self.flops,
            "flops_per_solved": self.flops_per_solved,
            "choices": dict(sorted(self.choices.items())),
            **({"verifier_faults": dict(faults)} if faults else {}),
        }

    @property
    def questions_digest(self) -> str:
        """Equal for equal items, so that two evaluations can be compared or not."""
        text = "\n".join(f"{item.prompt}\t{item.answer}" for item in self.items)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def choices(self) -> Counter[str]:
        """Number of items that each organelle answered."""
        return Counter(rollout.organelle_id for rollout in self.rollouts)

    def record(self) -> Record:
        """Return the summary and, under ``items``, every answer."""
        items = [
            {
                "id": rollout.item.id,
                "family": rollout.item.family,
                "depth": rollout.item.depth,
                "shift": rollout.item.shift,
                "who": rollout.organelle_id,
                "reply": rollout.text,
                "target": rollout.item.answer,
                "verdict": rollout.verdict,
                "right": rollout.is_right,
                "flops": rollout.cost.flops,
                **({"fault": rollout.fault} if rollout.fault else {}),
            }
            for rollout in self.rollouts
        ]
        return {**self.summary(), "items": items}


@dataclass(frozen=True, repr=False)
class LoadedRun:
    """A run at its last checkpoint, ready to answer; made before a host is loaded.

    Nobody is asked twice: ``answered`` is what each has answered since.
    """

    folder: Path
    config: RunConfig
    pool: AdapterPool
    answered: Answers = field(default_factory=dict)

    @classmethod
    def of_run(cls, folder: Path) -> LoadedRun:
        """Read a run as it stands.

        Raises:
            RunError: no run there, no checkpoint yet, or damaged files.
        """
        config = read_config(folder)
        with checkpoint.exclusive(folder):  # a run that goes on deletes no adapter meanwhile
            state = checkpoint.load_state(folder)
            return cls(folder, config, AdapterPool.of_run(folder, state, config, mixture(config)))

    @property
    def last_generation(self) -> int:
        """The last one that it has lived, from 0; -1 if it was only founded."""
        return self.pool.state.generation - 1

    @property
    def tasks(self) -> TaskMixture:
        """The run's task mix as it is judged where the run stands, with all its families."""
        state = self.pool.state
        mix = mixture(self.config).at(budget_phase(state, milestones(self.config))[0])
        return replace(mix, stage=None, generation=self.last_generation)

    def items(
        self, per_cell: int, shifts: Sequence[str] = ("in-distribution",), seed: int = 0
    ) -> list[Item]:
        """Return holdout items of the run's own task mix."""
        names = dict.fromkeys(map(registered_shifts.present_name, shifts))
        return draw_shifts(self.tasks, tuple(names), per_cell, seed)

    def as_asked(self, items: Sequence[Item]) -> list[Item]:
        """Return items from elsewhere in the form of the run's own: with their line end, and behind
        what stands in front of them."""
        tasks = self.tasks
        return [tasks.as_asked(item) for item in items]

    def evaluate(
        self,
        items: Sequence[Item],
        host: Host,
        routing: Spec | Routing = "learned",
        *,
        progress: Progress = no_progress,
    ) -> Evaluation:
        """Return the answers of a routing (``symbiont list routings``).

        Raises:
            ConfigError: no such routing.
            HostError: the host is not the one that the run was founded with.
        """
        name = type(routing).__name__
        if isinstance(routing, str | dict):
            name, routing = routings.present_name(kind_of(routing)), routings.build(routing)
        fingerprint = check_host(self.folder, host)
        stops = prompt_styles.build(self.config.tasks.style).stops
        evaluator = Evaluator(host, self.pool.weights, progress, stops, self.answered)
        rollouts = tuple(evaluator.ask(items, routing.choose(self.pool, items)))
        generation = self.pool.state.generation
        return Evaluation(str(self.folder), name, fingerprint, rollouts, generation)

    def answer(
        self,
        prompt: str,
        host: Host,
        routing: Spec = "learned",
        max_new_tokens: int = 64,
        user: str = "",
    ) -> Rollout:
        """Return the answer of a routing to one prompt as someone typed it. It has no verdict."""
        prompt = without_turns(prompt)
        if self.config.tasks.users:
            prompt = shown_prompt(prompt, user, self.config.tasks.users)
        item = Item(
            id="prompt",
            family="",
            depth="",
            question=prompt,
            prompt=prompt,
            reply_limit=max_new_tokens,
            verifier=lambda reply: 0.0,
            user=user,
        )
        alone = replace(self, answered={})  # a program may ask for years
        return alone.evaluate(self.as_asked([item]), host, routing).rollouts[0]


def evaluate_adapter(
    folder: Path,
    items: Sequence[Item],
    host: Host,
    *,
    is_bare: bool = False,
    progress: Progress = no_progress,
    stops: tuple[str, ...] = (),
) -> Evaluation:
    """Put all items to one PEFT adapter, or to its host without it.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    name = HOST if is_bare else "adapter"
    weights = {name: read_peft(folder, host.layout)}
    rollouts = Evaluator(host, weights, progress, stops).ask(items, [name] * len(items))
    return Evaluation(str(folder), name, host.fingerprint(), tuple(rollouts))


@dataclass(frozen=True)
class EvaluationDifference(Interval):
    """Accuracy of one system minus another's, with a 95 % interval and a paired ``test``: McNemar's
    of subjects won and lost, or a sign flip of the mean of their gaps."""

    p: float
    test: str
    won: int
    lost: int


def difference(better: Evaluation, worse: Evaluation) -> EvaluationDifference:
    """Return the accuracy of one minus that of the other on the same items; a subject counts once.

    The test is McNemar's exact one where every subject is won, tied or lost in all ways in which it
    was asked. Else it is the sign-flip test of the mean, which is McNemar's where both can be made.

    Raises:
        ValueError: they did not answer the same items.
    """
    if [item.id for item in better.items] != [item.id for item in worse.items]:
        raise ValueError("expected two evaluations of the same questions in the same order")
    gaps = [first - second for first, second in zip(better.verdicts, worse.verdicts, strict=True)]
    by_subject = defaultdict[str, list[float]](list)
    for item, gap in zip(better.items, gaps, strict=True):
        by_subject[item.subject].append(gap)
    means = [fmean(values) for values in by_subject.values()]
    interval = share_difference(gaps, len(means))
    won, lost = sum(mean > 0 for mean in means), sum(mean < 0 for mean in means)
    if all(mean in (-1, 0, 1) for mean in means):
        test, p = "McNemar", mcnemar(won, lost)
    else:
        test, p = "sign flip", sign_flip([mean for mean in means if mean] or [0.0])
    return EvaluationDifference(**asdict(interval), p=p, test=test, won=won, lost=lost)


@dataclass(frozen=True)
class SystemComparison:
    """Evaluations of the same items by name; ``main`` is the one that was asked for."""

    systems: Mapping[str, Evaluation]
    main: str

    @cached_property
    def differences(self) -> dict[str, EvaluationDifference]:
        """The main system minus each other one."""
        main = self.systems[self.main]
        rest = {name: one for name, one in self.systems.items() if name != self.main}
        return {name: difference(main, evaluation) for name, evaluation in rest.items()}

    def record(self) -> Record:
        """Return the record of the main system, all systems, and how the main one differs from
        each."""
        return {
            **self.systems[self.main].record(),
            "systems": {name: evaluation.summary() for name, evaluation in self.systems.items()},
            "differences": {name: asdict(gap) for name, gap in self.differences.items()},
        }
