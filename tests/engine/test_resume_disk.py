"""Where a disk fails, is full, or was damaged: one clear line, and nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resumed import finish, trace
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.start import resume, start
from toy import Crash, ToyHost, toy_config, toy_ecology


def tiny() -> RunConfig:
    """Short enough to be run once for every file operation in it."""
    strategy = toy_ecology(least=2, founders=2, questions=1, samples=2)
    return toy_config(
        seed=1, generations=3, checkpoint_every=2, strategy=strategy, families=["math.add"]
    )


def operations(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    fail: Callable[[int], None],
    config: RunConfig | None = None,
) -> int:
    """Runs with ``fail(number)`` before every call of these functions of ``os``; returns their
    number."""
    count = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            fail(count)
            count += 1
            return operation(*arguments, **named)

        return run

    with monkeypatch.context() as patch:
        for name in names.split():
            patch.setattr(os, name, counted(getattr(os, name)))
        start(config or tiny(), folder, host=ToyHost())
    return count


def test_a_crash_at_any_file_operation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = operations(tmp_path / "whole", monkeypatch, "replace fsync unlink", lambda _: None)
    expected = trace(tmp_path / "whole")
    assert total > 30
    for number in range(total):

        def fail(at: int, number: int = number) -> None:
            if at == number:
                raise Crash

        folder = tmp_path / f"crash-{number}"
        with pytest.raises(Crash):
            operations(folder, monkeypatch, "replace fsync unlink", fail)
        if not (folder / "config.yaml").exists():  # no run has begun
            assert number < 5
            continue
        assert finish(folder) == expected, number
        assert not list(folder.glob("*.new")), number


@pytest.mark.parametrize("checkpoint_every", [1, 2])
def test_a_crash_at_any_file_operation_leaves_the_end_that_the_clock_set(
    checkpoint_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = {"train_seconds": 1e-4, "checkpoint_every": checkpoint_every}
    config = tiny().model_copy(update={"run": tiny().run.model_copy(update=loop)})
    names = "open replace fsync unlink"
    total = operations(tmp_path / "whole", monkeypatch, names, lambda _: None, config)
    expected = trace(tmp_path / "whole")
    assert checkpoint.load_state(tmp_path / "whole").generation == 1
    for number in range(total):

        def fail(at: int, number: int = number) -> None:
            if at == number:
                raise Crash

        folder = tmp_path / f"crash-{number}"
        with pytest.raises(Crash):
            operations(folder, monkeypatch, names, fail, config)
        if (folder / "state.json").exists():
            assert finish(folder) == expected, number


def test_a_disk_that_fails_is_one_clear_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = operations(tmp_path / "whole", monkeypatch, "replace fsync", lambda _: None)
    expected = trace(tmp_path / "whole")
    for number in range(1, total, 3):

        def fail(at: int, number: int = number) -> None:
            if at >= number:
                raise OSError(errno.ENOSPC, "No space left on device")

        folder = tmp_path / f"full-{number}"
        with pytest.raises(RunError, match=r"[Nn]o space left") as refused:
            operations(folder, monkeypatch, "replace fsync", fail)
        assert "\n" not in str(refused.value)
        # Before the first checkpoint there is nothing to lose, and nothing is left.
        assert not folder.exists() or finish(folder) == expected, number
    assert folder.exists()


@pytest.mark.parametrize("limit", [600, 1500, 2500, 3000])
def test_a_write_that_does_not_fit_is_one_clear_line_and_loses_nothing(
    limit: int, tmp_path: Path
) -> None:
    start(tiny(), tmp_path / "whole", host=ToyHost())
    expected = trace(tmp_path / "whole")
    assert max(map(len, expected.values())) > limit
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_bytes(expected["config.yaml"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # no file may grow beyond it
    try:
        with pytest.raises(RunError, match="File too large") as refused:
            resume(tmp_path / "run", host=ToyHost())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(refused.value)
    assert finish(tmp_path / "run") == expected
