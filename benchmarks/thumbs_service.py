"""Simulated users of four tastes, thirty thumbs each: does a service learn what they like?

    OMP_NUM_THREADS=1 python benchmarks/thumbs_service.py --seeds 0 1 2 --json thumbs.json

Users ask SmolLM2 everyday questions in mixed order, eight at a time. Each accepts a reply if it has
the feature of its taste and a word of the question, and one thumb in twenty is wrong. With
``--feature-only`` the feature is enough; then replies about nothing are learned. The service is
that of ``symbiont serve``, in this process and without HTTP. The arms:

- ``cold``: the preset ``service``; ``warm``: the same service goes on with as many new users;
- ``bandit``: the same choice among the phrases of the menu, and nobody learns;
- ``told``: each taste asks the organelle of its own phrase, which learns: a ceiling;
- ``fixed``: the bare model, or one phrase of the menu, for all users, and nobody learns.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from symbiont_ecology.base.types import Decoding
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.limits import ServiceLimits
from symbiont_ecology.extensions.serve.messages import Ask
from symbiont_ecology.extensions.serve.scheduler import AnswerJob
from symbiont_ecology.extensions.serve.service import Service, opened_service
from symbiont_ecology.extensions.serve.world import prompt_of
from symbiont_ecology.extensions.worlds.tastes import QUESTIONS, TASTES, is_about
from symbiont_ecology.run.build import host_source
from symbiont_ecology.run.config import load_config

USERS, THUMBS, ASKING, WRONG = 24, 30, 8, 0.05
"""Users, thumbs of each, users that ask at a time, and the part of thumbs that is wrong."""
MAX_TOKENS, LAST, FIVE = 50, 10, 5
"""Tokens of a reply; thumbs whose mean is the result; thumbs of a mean in the picture."""
WORDS = {"short": "one line", "polite": "kind words", "bullets": "bullet", "number": "numbers"}
"""Words of the phrase that asks for each taste."""
FEATURE_ONLY = "--feature-only"


@contextmanager
def served(seed: int, *changes: str, learns: bool = True) -> Iterator[Service]:
    """Open a new service of the preset, which lives in a thread of its own."""
    config = load_config("service", ["host.dtype=int8", f"seed={seed}", *changes])
    limits = ServiceLimits(learn_share=float(learns), patience=1e9)
    opened = partial(opened_service, config, kernel=host_source(config).load(), limits=limits)
    with TemporaryDirectory() as folder, opened(Path(folder), is_new=True) as service:
        thread = threading.Thread(target=service.live)
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join()


def answered(service: Service, asked: Sequence[tuple[str, str, str | None]]) -> list[AnswerJob]:
    """Return the answers to questions of users, who may want a certain organelle."""
    tasks, jobs, ended = service.run.runtime.tasks, list[AnswerJob](), threading.Semaphore(0)
    for number, (user, question, wanted) in enumerate(asked):
        name = f"{service.journal.verdicts}-{number}"
        prompt = prompt_of([question], "chat", tasks, is_chat=service.is_chat)
        decoding = Decoding(temperature=0.7)
        ask = Ask(name, user, "chat", prompt, MAX_TOKENS, decoding, 900.0, wanted=wanted)
        jobs.append(AnswerJob(ask, done=lambda error: ended.release()))
        service.scheduler.submit(jobs[-1])
    for _ in jobs:
        ended.acquire()
    return jobs


def company(
    service: Service, tastes: dict[str, str], seed: int, thumbs: int, wanted: Mapping[str, str]
) -> np.ndarray:
    """Return the verdicts ``(users, thumbs)``; users ask in mixed order, each the same number, and
    some want a certain organelle."""
    generator, users = np.random.default_rng(seed), list(tastes)
    picks = {user: generator.permutation(len(QUESTIONS)) for user in users}
    order = [str(user) for _ in range(thumbs) for user in generator.permutation(users)]
    said: dict[str, list[bool]] = {user: [] for user in users}
    for start in range(0, len(order), ASKING):
        asked = [
            (user, QUESTIONS[picks[user][len(said[user])]], wanted.get(user))
            for user in order[start : start + ASKING]
        ]
        for job in answered(service, asked):
            (reply,), user = job.texts, job.ask.user
            is_useful = FEATURE_ONLY in sys.argv or is_about(job.ask.prompt, reply)
            is_right = TASTES[tastes[user]].accepts(reply) and is_useful
            said[user].append(bool(is_right != (generator.random() < WRONG)))
            service.journal.write(GivenVerdict(job.ask.id, said[user][-1]))
        while service.limits.learn_share and has_to_learn(service):
            time.sleep(0.02)
    return np.array(list(said.values()), dtype=float)


def has_to_learn(service: Service) -> bool:
    """Return True while verdicts wait that are enough for a generation."""
    assert not service.learning_error, service.learning_error
    users = service.run.runtime.tasks.users
    assert users is not None
    return service.generation < service.journal.verdicts // users.config.questions


def drawn_tastes(seed: int, first: int) -> dict[str, str]:
    """Return the taste of each user; all tastes are equally often."""
    tastes = np.random.default_rng((seed, first)).permutation(np.resize(list(WORDS), USERS))
    return {f"u{first + number}": str(taste) for number, taste in enumerate(tastes)}


def figures(said: np.ndarray, tastes: dict[str, str]) -> dict[str, Any]:
    """Return what verdicts ``(users, thumbs)`` say: of the last thumbs, in the mean; and of the
    thumbs 6 to 15, by which the median user is to see a change for the better."""
    of_taste = {name: [taste == name for taste in tastes.values()] for name in WORDS}
    return {
        "last": round(float(said[:, -LAST:].mean()), 3),
        "last_by_taste": {k: round(float(said[v, -LAST:].mean()), 3) for k, v in of_taste.items()},
        "median_user_6_to_15": round(float(np.median(said[:, FIVE : 3 * FIVE].mean(1))), 3),
        "curve": said.mean(0).round(3).tolist(),
        "said": ["".join("-+"[int(one)] for one in row) for row in said],
    }


def lived(arm: str, seed: int, changes: Sequence[str]) -> dict[str, Any]:
    """Return the figures of an arm with one seed; of all that is fixed, what was accepted."""
    tastes = drawn_tastes(seed, 1001)
    rule = ["learning_rule={kind: none}"] if arm == "bandit" else []
    with served(seed, *changes, *rule, learns=arm != "fixed") as service:
        population = service.run.state.population
        living = {HOST: "bare", **{name: one.operator for name, one in population.items()}}
        if arm == "fixed":
            return {
                one: company(service, tastes, seed, FIVE, dict.fromkeys(tastes, who)).mean()
                for who, one in living.items()
            }
        own = {
            user: next(who for who, one in living.items() if WORDS[taste] in one)
            for user, taste in tastes.items()
        }
        wanted = own if arm == "told" else {}
        found = {arm: figures(company(service, tastes, seed, THUMBS, wanted), tastes)}
        if arm == "cold":
            tastes = drawn_tastes(seed, 2001)
            found["warm"] = figures(company(service, tastes, seed + 1, THUMBS, {}), tastes)
        return found


def drawn(results: dict[str, Any], path: Path) -> None:
    """Draw acceptance by number of the thumb, in the mean of five."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for arm in ("told", "warm", "cold", "bandit"):
        curves = [one[arm]["curve"] for one in results.values() if arm in one]
        means = [np.convolve(one, np.ones(FIVE) / FIVE, "valid") for one in curves]
        if means:
            axes.plot(np.arange(FIVE, THUMBS + 1), np.mean(means, 0), label=arm)
    axes.set(xlabel="thumbs of a user", ylabel="accepted of the last five", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Live all arms with all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--arms", nargs="+", default=["fixed", "bandit", "cold", "told"])
    parser.add_argument("--json", type=Path, default=Path("thumbs.json"))
    parser.add_argument(FEATURE_ONLY, action="store_true")
    args, changes = parser.parse_known_args()
    results: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    for seed in args.seeds:
        for arm in args.arms:
            began = time.perf_counter()
            found = lived(arm, seed, changes)
            print(f"seed {seed}, {arm}, {time.perf_counter() - began:.0f} s: {found}", flush=True)
            results.setdefault(str(seed), {}).update({"fixed": found} if arm == "fixed" else found)
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    drawn(results, args.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
