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
from runs import resume, start
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run.config import RunConfig
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
    config: RunConfig,
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
        start(config, folder, host=ToyHost())
    return count


@pytest.mark.parametrize(
    ("names", "loop"),
    [
        ("replace fsync unlink", {}),
        ("open replace fsync unlink", {"train_seconds": 1e-4, "checkpoint_every": 1}),
        ("open replace fsync unlink", {"train_seconds": 1e-4}),
    ],
)
def test_a_crash_at_any_file_operation_loses_nothing_nor_the_end_that_the_clock_set(
    names: str, loop: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny().model_copy(update={"run": tiny().run.model_copy(update=loop)})
    total = operations(tmp_path / "whole", monkeypatch, names, lambda _: None, config)
    expected = trace(tmp_path / "whole")
    assert checkpoint.load_state(tmp_path / "whole").generation == (1 if loop else 3)
    assert total > 20
    for number in range(total):

        def fail(at: int, number: int = number) -> None:
            if at == number:
                raise Crash

        folder = tmp_path / f"crash-{number}"
        with pytest.raises(Crash):
            operations(folder, monkeypatch, names, fail, config)
        if (folder / "state.json").exists() or ((folder / "config.yaml").exists() and not loop):
            assert finish(folder) == expected, number
            assert not list(folder.glob("*.new")), number


def test_a_disk_that_fails_is_one_clear_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = operations(tmp_path / "whole", monkeypatch, "replace fsync", lambda _: None, tiny())
    expected = trace(tmp_path / "whole")
    for number in range(1, total, 3):

        def fail(at: int, number: int = number) -> None:
            if at >= number:
                raise OSError(errno.ENOSPC, "No space left on device")

        folder = tmp_path / f"full-{number}"
        with pytest.raises(RunError, match=r"[Nn]o space left") as refused:
            operations(folder, monkeypatch, "replace fsync", fail, tiny())
        assert "\n" not in str(refused.value)
        # Before its config is there no run has begun.
        assert not (folder / "config.yaml").exists() or finish(folder) == expected, number
    assert (folder / "config.yaml").exists()


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
