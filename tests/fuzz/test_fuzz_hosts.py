"""Whatever is wrong with the folder of a host, it is one line of error, and soon.

``--cases`` says how many damages are tried; all are some thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from damage import Damage, damages
from host_trials import Trials
from hosts import KINDS, make_host
from symbiont_ecology.base.rng import Draw

SOON = 10.0
"""Seconds in which a host is refused, on a busy machine."""


@pytest.fixture(scope="session")
def small_hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random host of one layer of every kind."""
    sizes = {"hidden_size": 48, "intermediate_size": 40}
    changes = {kind: sizes | {"head_dim": 8} for kind in KINDS}
    changes |= {"qwen2": sizes, "gpt2": {"n_layer": 1}}
    return {
        kind: make_host(tmp_path_factory.mktemp("host"), kind, layers=1, **changes[kind])
        for kind in KINDS
    }


def drawn(hosts: dict[str, Path], cases: int) -> Iterator[tuple[str, Damage]]:
    """Damages in an order of chance."""
    known = [(kind, one) for kind, folder in hosts.items() for one in damages(folder)]
    for index in Draw(0)("damages").permutation(len(known))[:cases]:
        yield known[index]


def test_a_damaged_host_answers_or_is_refused_in_one_line(
    small_hosts: dict[str, Path], cases: int, tmp_path: Path
) -> None:
    trials, counts, wrong = Trials(tmp_path), Counter[tuple[str, str]](), list[str]()
    for kind, folder in small_hosts.items():
        whole = trials(folder, [])
        assert whole.end == "answered", f"{kind}: {whole.said}"
    for kind, damage in drawn(small_hosts, cases):
        ending = trials(small_hosts[kind], (damage,))
        counts[damage.group, ending.end] += 1
        is_line = "\n" not in ending.said and len(ending.said) < 2000
        is_refused = ending.end == "refused" and is_line and ending.seconds < SOON
        if not is_refused and (ending.end != "answered" or damage.must_fail):
            said = f"{ending.end} after {ending.seconds:.1f} s: {ending.said}"
            wrong.append(f"{kind}: {damage}: {said}")
    trials.stop()
    for (group, end), count in sorted(counts.items()):
        print(f"{group:10} {end:10} {count:6}")
    assert not wrong, f"{len(wrong)} of {cases}\n" + "\n".join(wrong)
