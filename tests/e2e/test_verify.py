"""``symbiont verify``, and commands that only read, in folders that are damaged or read-only."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from said import Symbiont


def test_a_lost_state_is_refused_named_and_repaired(
    copied: Path, lived: Path, symbiont: Symbiont
) -> None:
    (copied / "state.json").unlink()
    said = symbiont("resume", copied, "-q")
    assert said.code == 1
    assert "generations were lived there" in said.error
    said = symbiont("verify", copied)
    assert said.code == 1
    assert "DAMAGED" in said.out
    assert "--repair goes back" in said.err
    said = symbiont("verify", copied, "--repair")
    assert said.code == 0, said.err
    assert "gone back to generation 3: " in said.out
    assert symbiont("resume", copied, "-q").code == 0
    for name in ("state.json", "events.jsonl"):
        assert (copied / name).read_bytes() == (lived / name).read_bytes()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Whoever writes into the folder fails, even who may write everywhere."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    libc, who, rights = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(_VERSION, 0), _Rights()
    assert libc.capget(who, rights) == 0
    had = rights[0]
    rights[0] = had & ~_WRITE_ANYWHERE
    assert libc.capset(who, rights) == 0
    try:
        yield
    finally:
        rights[0] = had
        assert libc.capset(who, rights) == 0
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


_VERSION, _WRITE_ANYWHERE, _Rights = 0x20080522, 1 << 1, ctypes.c_uint32 * 6
"""Of capabilities(7): the version of the call, and CAP_DAC_OVERRIDE among those in effect."""


def test_what_only_reads_a_run_works_in_a_read_only_folder(
    copied: Path,
    small: list[str],
    holdout: Path,
    symbiont: Symbiont,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = copied.with_name("other")
    assert symbiont("run", "steady", *small, "seed=1", "--out", other, "-q").code == 0
    assert symbiont("infer", copied, "math.add: 1+2").code == 0  # keeps an answer
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    out = copied.with_name("out")
    out.mkdir()
    monkeypatch.chdir(out)
    with read_only(other), read_only(copied):
        for words in (
            ("infer", copied, "math.add: 1+2"),
            ("infer", copied, "math.add: 3+2"),
            ("compare", copied, other, "--per-cell", 2),
            ("transfer", copied, "--per-cell", 2),
            ("phylogeny", copied, "--tree"),
            ("evaluate", copied, "--holdout", holdout, "--json", out / "e.json"),
            ("show", copied),
            ("report", copied, "--out", out / "report.md"),
            ("evoscope", copied, "--out", out / "page.html"),
            ("verify", copied),
        ):
            said = symbiont(*words)
            assert said.code == 0, (words, said.err)
        said = symbiont("resume", copied, "run.generations=5")
        assert said.code == 1
        assert "cannot" in said.error
    assert (out / "phylogeny.csv").exists()
    assert (out / "e.json").exists()
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
