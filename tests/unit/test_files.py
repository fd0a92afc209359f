"""Files and folders that a killed process leaves whole, or as they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import write_whole


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "x", "one")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match=r"cannot write .*x: No space left"):
        write_whole(tmp_path / "x", "two")
    assert (tmp_path / "x").read_text() == "one"
    assert names(tmp_path) == ["x"]
