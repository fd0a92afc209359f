"""Ways in which a question can differ from what was learned: a function each, from a task mix to
questions.

In distribution are the families, depths and words of the run, with payloads that nobody met.
Everything else differs from that in one respect. All questions come from the holdout split, unless
told otherwise. Families that are data (``WrittenFamily``) have one wording and one convention: no
shift changes these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.questions import Question, draw_questions
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import DEPTHS

Drawn = list[Question]


def in_distribution(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The run's own cells and words."""
    return draw_questions(tasks, per_cell, seed, split)


def depth(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The run's families, longer than it ever met them; nothing where it met all depths."""
    if "long" in tasks.depths:
        return []
    names = tuple(name for name in tasks.names if "long" in tasks.families[name].depths)
    return draw_questions(replace(tasks, names=names, depths=("long",)), per_cell, seed, split)


def wording(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The run's deepest cells in words that no adapter and no router learned from."""
    return draw_questions(
        replace(_ours(_deepest(tasks)), style=tasks.style.reworded()), per_cell, seed, split
    )


def shared_families(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """Families that no adapter met, of convention groups that were met."""
    return draw_questions(_other_families(tasks, "shared"), per_cell, seed, split)


def unrelated_families(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """Families that no adapter met, with conventions of their own."""
    return draw_questions(_other_families(tasks, "unrelated"), per_cell, seed, split)


def composition(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """Families whose convention the host itself never met: two known ones in one."""
    return draw_questions(_other_families(tasks, "composition"), per_cell, seed, split)


def ceiling(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The run's cells with the wanted convention told outright: what the host can do when it
    knows."""
    return draw_questions(replace(_ours(tasks), style=tasks.style.cued()), per_cell, seed, split)


def retention(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The deepest cells with another convention told outright: what the host obeys, and learning
    may undo.

    The two conventions that are not the target take turns.
    """
    style, questions = tasks.style.cued(), []
    for index, question in enumerate(draw_questions(_ours(_deepest(tasks)), per_cell, seed, split)):
        assert question.item is not None
        family = tasks.families[question.family]
        others = [one for one in range(3) if one != family.target]
        item = family.item(question.item.payload, question.item.depth, others[index % 2])
        prompt = style.render(family, item)
        questions.append(
            replace(question, id=item.id, prompt=prompt, target=item.answer, item=item)
        )
    return questions


def perturbed(tasks: TaskMixture, per_cell: int, seed: int, split: Split) -> Drawn:
    """The in-distribution questions, each as it is and in every other way of ``PERTURBATIONS``."""
    return [
        replace(question, id=f"{question.id}{MARK}{name}", prompt=change(question.prompt))
        for question in draw_questions(tasks, per_cell, seed, split)
        for name, change in PERTURBATIONS.items()
    ]


MARK = " as "
PLAIN = "plain"
PERTURBATIONS: dict[str, Callable[[str], str]] = {
    PLAIN: lambda prompt: prompt,
    "whitespace": lambda prompt: f"  {prompt.replace(': ', ':   ')}",
    "markdown": lambda prompt: f"**{prompt.rstrip()}**\n",
    "role-play": lambda prompt: f"you are a pirate. {prompt}",
    "distractor": lambda prompt: f"it rains today.\n{prompt}",
}
"""Changes of a prompt that change nothing of what is asked; the first is none."""

Shift = Callable[[TaskMixture, int, int, Split], Drawn]
SHIFTS: dict[str, Shift] = {
    "in-distribution": in_distribution,
    "depth": depth,
    "wording": wording,
    "shared-families": shared_families,
    "unrelated-families": unrelated_families,
    "composition": composition,
    "ceiling": ceiling,
    "retention": retention,
    "perturbed": perturbed,
}


def find_shift(name: str) -> Shift:
    """The shift of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SHIFTS:
        raise ConfigError(
            f"no shift {name!r};{did_you_mean(name, SHIFTS)} known: {', '.join(SHIFTS)}"
        )
    return SHIFTS[name]


def draw_shifts(
    tasks: TaskMixture, names: Sequence[str], per_cell: int, seed: int = 0, split: Split = "holdout"
) -> Drawn:
    """Questions of all the named shifts, each of which says its shift; the same for a seed."""
    return list(_drawn(tasks, names, per_cell, seed, split))


def _drawn(
    tasks: TaskMixture, names: Sequence[str], per_cell: int, seed: int, split: Split
) -> Iterator[Question]:
    for name in names:
        for question in find_shift(name)(tasks, per_cell, seed, split):
            yield replace(question, shift=name)


def _deepest(tasks: TaskMixture) -> TaskMixture:
    return replace(tasks, depths=(max(tasks.depths, key=DEPTHS.index),))


def _ours(tasks: TaskMixture) -> TaskMixture:
    """Without families that are data."""
    return replace(
        tasks, names=tuple(name for name in tasks.names if not tasks.families[name].is_written)
    )


def _other_families(tasks: TaskMixture, role: Role) -> TaskMixture:
    names = tuple(
        name
        for name in task_families.names()
        if task_families[name].role == role and name not in tasks.names
    )
    return replace(tasks, names=names)
