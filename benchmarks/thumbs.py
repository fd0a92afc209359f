"""Five companies with thumbs: are users grouped rightly, and do their adapters please?

    python benchmarks/thumbs.py --seeds 0 1 2 3 4 --json docs/results/thumbs.json

Each seed draws a log (``company_log``) whose replies SmolLM2 wrote, runs ``learn-from`` on it, and
learns two more arms: adapters by the true tastes (a Bayes guesser with perfect knowledge: the
ceiling), and by K-means on embeddings of accepted replies, with the number of groups told. New
replies are judged by the true tastes, on questions that the log does not have.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import squareform

from symbiont_ecology import Run
from symbiont_ecology.base.types import HOST_SLOT, Decoding, Request
from symbiont_ecology.extensions.company.grouping import group_users
from symbiont_ecology.extensions.company.measures import as_record, pairs_of, scores_of, share
from symbiont_ecology.extensions.company.plan import GROUPED, LOG_FILE, config_of
from symbiont_ecology.extensions.worlds.tastes import (
    MENU,
    QUESTIONS,
    TASTES,
    DrawnLog,
    company_log,
    is_about,
)
from symbiont_ecology.model.kernel import HostKernel
from symbiont_ecology.tasks.log_rows import LogRow, Verdicts, as_lines, read_log
from symbiont_ecology.tasks.logs import LoggedUsers, held_out

ENOUGH = 8
"""Accepted rows from which on a user counts for the index."""
ASKED, TOKENS, SHOWN = 24, 64, 3
"""New questions of each adapter, tokens of a reply, and accepted replies that a prompt shows."""
THRESHOLDS = (0.3, 0.35, 0.4, 0.45)
"""Of the thirty lines."""


def rand_index(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the adjusted Rand index of two groupings (Hubert and Arabie 1985)."""
    both, firsts, seconds = Counter(zip(one, other, strict=True)), Counter(one), Counter(other)
    joint, first, second = (
        sum(comb(n, 2) for n in counts.values()) for counts in (both, firsts, seconds)
    )
    expected = first * second / max(comb(len(one), 2), 1)
    spread = (first + second) / 2 - expected
    return (joint - expected) / spread if spread else 1.0


def by_cross_prediction(rows: Sequence[LogRow], users: Sequence[str]) -> dict[float, list[int]]:
    """Return the groups of users by threshold: a ridge judge of each user, how well it foretells
    the verdicts of each other (AUC), and average linkage. The control of thirty lines."""
    texts = [row.reply for row in rows]
    shapes = [
        [
            np.log1p(len(text.split())),
            np.log1p(text.count("\n")),
            *(text.count(c) for c in "?!,."),
            len(re.findall(r"(?m)^\s*[-*•\d]", text)),
            sum(map(str.isupper, text)) / len(text),
        ]
        for text in texts
    ]
    words = [set(re.findall(r"[a-z']+|[-?!\n]", text.lower())) for text in texts]
    counts = Counter(word for own in words for word in own)
    vocabulary = [word for word, n in counts.items() if n >= 4]
    bags = [[word in own for word in vocabulary] for own in words]
    features = np.hstack([np.array(shapes, float), np.array(bags, float)])
    features = (features - features.mean(0)) / (features.std(0) + 1e-6)
    features[:, len(shapes[0]) :] *= 0.25
    accepted = np.array([row.is_accepted for row in rows])
    owner = np.array([users.index(row.user) for row in rows])
    alike = np.ones((len(users), len(users)))
    for user in range(len(users)):
        own, liked = features[owner == user], accepted[owner == user]
        balance = np.where(liked, 2 * max(liked.sum(), 1), 2 * max((~liked).sum(), 1))
        ridge = np.diag(balance * 8.0 / len(own)) + own @ own.T
        scores = features @ (own.T @ np.linalg.solve(ridge, np.where(liked, 1.0, -1.0)))
        for other in range(len(users)):
            gaps = np.subtract.outer(
                scores[(owner == other) & accepted], scores[(owner == other) & ~accepted]
            )
            right = (gaps > 0).mean() + (gaps == 0).mean() / 2 if gaps.size else 0.5
            alike[user, other] = right
    distance = 1 - (alike + alike.T) / 2
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average")
    return {cut: fcluster(tree, cut, "distance").tolist() for cut in THRESHOLDS}


def by_kmeans(
    kernel: HostKernel, rows: Sequence[LogRow], users: Sequence[str], groups: int
) -> list[int]:
    """Return the groups of users by K-means on the mean embedding of their accepted replies."""
    liked = [row for row in rows if row.is_accepted]
    embeddings = kernel.embed(
        [row.prompt for row in liked], kernel.encode_answers([row.reply for row in liked])
    )
    embeddings = embeddings - embeddings.mean(0)
    means = np.array(
        [
            embeddings[[row.user == user for row in liked]].mean(0)
            if any(row.user == user for row in liked)
            else np.zeros(embeddings.shape[1])
            for user in users
        ]
    )
    _, labels = kmeans2(means, groups, minit="++", seed=0, iter=50)
    return [int(label) for label in labels]


def writer_of(kernel: HostKernel, questions: Sequence[str], generator: Generator) -> list[str]:
    """Return replies of the model, half of them asked with a phrase of the menu."""
    asked = [
        Request(
            f"{generator.choice(MENU)}\n{question}" if generator.random() < 0.5 else question,
            HOST_SLOT,
            45,
        )
        for question in questions
    ]
    draws = [np.random.default_rng(generator.integers(1 << 32)) for _ in asked]
    return list(kernel.rollout(asked, draws, Decoding(temperature=0.8, top_p=0.95)).texts)


def kept(kernel: HostKernel, taste: str, slot: int, before: str, questions: Sequence[str]) -> float:
    """Return how often new replies have a taste and a word of the question, with a text in front of
    the questions."""
    asked = [Request(before + question, slot, TOKENS) for question in questions]
    draws = [np.random.default_rng([5, number]) for number in range(len(asked))]
    texts = kernel.rollout(asked, draws, Decoding(temperature=0.7)).texts
    pleased = [
        TASTES[taste].accepts(text) and is_about(question, text)
        for question, text in zip(questions, texts, strict=True)
    ]
    return float(np.mean(pleased))


def more_arms(
    kernel: HostKernel, rows: Sequence[LogRow], run: Run, arms: Mapping[str, Mapping[str, str]]
) -> dict[str, Run]:
    """Return the runs of more arms, whose adapters choose their lessons as ours do, and take as
    much."""
    back, runs = held_out(rows), {}
    learned = [row for row in rows if row.question not in back]
    grouping = group_users(learned, others={row.user for row in rows})
    for name, group_of in arms.items():
        members: dict[str, dict[str, float]] = defaultdict(dict)
        for user, group in group_of.items():
            members[group][user] = 1.0
        place = run.folder / "controls" / name
        place.mkdir(parents=True, exist_ok=True)
        grouped = [replace(row, group=group_of[row.user]) for row in rows]
        grouped += [one for group in grouping.of(members) for one in group.lessons(learned)]
        (place / LOG_FILE).write_text(as_lines(grouped), encoding="utf-8")
        length = [f"run.generations={run.config.run.generations}"]
        plan = partial(config_of, overrides=length, about=place, host="smollm2", passes=3.0)
        runs[name] = Run(place, plan(grouped, place / LOG_FILE), kernel).finish()
    return runs


def asked_new(
    kernel: HostKernel, run: Run, log: DrawnLog, rows: Sequence[LogRow]
) -> dict[str, dict[str, float]]:
    """Return the share of new replies that keep each taste: of the bare model, with the phrase of
    the taste, with accepted replies in the prompt, and with the adapter of most of its users."""
    known = {row.prompt for row in rows}
    questions = [question for question in QUESTIONS if question not in known] or list(QUESTIONS)
    questions, shares = questions[:ASKED], dict[str, dict[str, float]]()
    for taste in sorted(set(log.tastes.values())):
        users = [user for user, own in log.tastes.items() if own == taste]
        servers = Counter(run.state.users[user].chosen for user in users)
        kernel.place(0, run.loaded.pool.weights[servers.most_common(1)[0][0]])
        liked = [row for row in rows if row.user == users[0] and row.is_accepted][-SHOWN:]
        shown = "".join(f"{row.prompt}\n{row.reply}\n\n" for row in liked)
        shares[taste] = {
            "is_shape": float(TASTES[taste].is_shape),
            "bare": kept(kernel, taste, HOST_SLOT, "", questions),
            "phrase": kept(kernel, taste, HOST_SLOT, f"{TASTES[taste].phrase}\n", questions),
            "examples": kept(kernel, taste, HOST_SLOT, shown, questions),
            "adapter": kept(kernel, taste, 0, "", questions),
        }
    return shares


def drawn_table(seed: int, kernel: HostKernel, path: Path) -> DrawnLog:
    """Return the log of a seed, and write it as a table."""
    log = company_log(seed, writer=partial(writer_of, kernel))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(log.rows[0]))
        writer.writeheader()
        writer.writerows(log.rows)
    return log


def indices(
    truth: Mapping[str, str], found: Mapping[str, Mapping[str, Any]], sure: Sequence[str]
) -> dict[str, float]:
    """Return how well each grouping agrees with the true tastes, among users of whom enough is
    known."""
    tastes = [truth[user] for user in sure]
    return {
        name: rand_index(tastes, [group_of[user] for user in sure])
        for name, group_of in found.items()
    }


def chances_of(
    report: Mapping[str, Any], truth: Mapping[str, str], accepted: Mapping[str, int]
) -> list[tuple[int, float, bool]]:
    """Return of each user how much it accepted, how surely it was put into its group, and if most
    users there have its taste."""
    told = []
    for group in report["groups"]:
        taste = Counter(truth[user] for user in group["users"]).most_common(1)[0][0]
        for user, one in group["users"].items():
            told.append((accepted[user], one["chance"], truth[user] == taste))
    return told


def measure(seed: int, kernel: HostKernel, folder: Path) -> dict[str, Any]:
    """Return the figures of one log."""
    log, start = drawn_table(seed, kernel, folder / "thumbs.csv"), time.monotonic()
    words = [sys.executable, "-m", "symbiont_ecology", "learn-from", str(folder / "thumbs.csv")]
    words += ["--host", "smollm2", "--out", str(folder / "run"), "--quiet"]
    subprocess.run(words, check=True)
    seconds = time.monotonic() - start
    report = json.loads((folder / "run" / "report.json").read_text(encoding="utf-8"))
    table = read_log(folder / "run" / LOG_FILE, "log", GROUPED, Verdicts())
    rows = [row for row in table.rows if not row.learner]
    back, users, truth = held_out(rows), sorted(log.tastes), log.tastes
    learned = [row for row in rows if row.question not in back]
    accepted = Counter(row.user for row in learned if row.is_accepted)
    run = Run(folder / "run", Run.open(folder / "run").config, kernel)
    labels = by_kmeans(kernel, learned, users, len(set(truth.values())))
    kmeans = dict(zip(users, map(str, labels), strict=True))
    runs = more_arms(kernel, rows, run, {"told": truth, "kmeans": kmeans})
    world = run.loaded.tasks.users
    assert isinstance(world, LoggedUsers)
    items = world.held_out
    bare = scores_of(kernel, None, items)
    pairs = {
        name: pairs_of(items, scores_of(kernel, one, items) - bare) for name, one in runs.items()
    }
    crossed = {
        f"thirty lines, {cut}": dict(zip(users, own, strict=True))
        for cut, own in by_cross_prediction(learned, users).items()
    }
    found = {"ours": {row.user: row.group for row in rows}, "kmeans": kmeans, **crossed}
    sure = [user for user in users if accepted[user] >= ENOUGH]
    return {
        "seed": seed,
        "users": len(users),
        "rows": len(rows),
        "tastes": dict(Counter(truth.values())),
        "seconds": round(seconds, 1),
        "index": indices(truth, found, sure),
        "index of all users": indices(truth, found, users),
        "chances": chances_of(report, truth, accepted),
        "auc": {**report["auc"], **{name: as_record(share(own)) for name, own in pairs.items()}},
        "advice": report["advice"],
        "gain": report["gain"],
        "kept": asked_new(kernel, run, log, rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("artifacts/thumbs"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kernel = HostKernel.from_pretrained("smollm2", slots=24, rank=8, is_chat=True)
    figures = []
    for seed in options.seeds:
        figures.append(measure(seed, kernel, options.out / str(seed)))
        print(json.dumps(figures[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
