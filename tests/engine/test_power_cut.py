"""After a power cut a disk holds what was synced, and anything of the rest. No checkpoint that was
made is lost by that, and the run goes on to the same end."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.ecology import state as checkpoint
from toy import ToyHost, toy_config, toy_ecology

CUTS = 20
KINDS = ("all that was not synced is lost", "removals came through", "names came through")
"""What a disk may do: forget all names and bytes since the last sync; forget all but that files
were removed; keep the names, and forget the bytes."""


@dataclass
class Disk:
    """What would be left of a folder if the power went off now."""

    folder: Path
    names: dict[Path, dict[str, int]] = field(default_factory=dict)
    """The entries of every folder when it was last synced, as file numbers."""
    contents: dict[int, bytes] = field(default_factory=dict)
    """The bytes of every file when it was last synced."""
    held: list[int] = field(default_factory=list)
    """Descriptors, so that no file number is used twice."""

    def sync(self, descriptor: int) -> None:
        """A file, or the names in a folder, reach the disk."""
        facts = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(facts.st_mode):
            self.names[path] = {one.name: self._number(one) for one in path.iterdir()}
        else:
            self._hold(path, facts.st_ino)
            self.contents[facts.st_ino] = path.read_bytes()

    def copy(self, to: Path, kind: str) -> None:
        """The folder as it is found when the power is back."""
        self._copy(self.folder, to, kind)

    def _copy(self, folder: Path, to: Path, kind: str) -> None:
        to.mkdir()
        now = {one.name: self._number(one) for one in folder.iterdir()} if folder.exists() else {}
        synced = self.names.get(folder, {})
        if kind == "names came through":
            found = now
        elif kind == "removals came through":
            found = {name: number for name, number in synced.items() if name in now}
        else:
            found = synced
        for name, number in found.items():
            if (folder / name).is_dir():
                self._copy(folder / name, to / name, kind)
            else:
                (to / name).write_bytes(self.contents.get(number, b""))

    def _number(self, path: Path) -> int:
        number = path.stat().st_ino
        self._hold(path, number)
        return number

    def _hold(self, path: Path, number: int) -> None:
        if path.is_file() and number not in self.contents:
            self.held.append(os.open(path, os.O_RDONLY))
            self.contents.setdefault(number, b"")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    made = Disk(tmp_path / "disk")
    yield made
    for descriptor in made.held:
        os.close(descriptor)


def test_a_power_cut_at_any_moment_loses_no_checkpoint(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = toy_ecology(least=2, founders=2, questions=1, samples=2)
    config = toy_config(1, 6, ("math.add",), checkpoint_every=2, strategy=strategy)
    start(config, tmp_path / "whole", host=ToyHost())
    expected = [(tmp_path / "whole" / name).read_bytes() for name in ("state.json", "events.jsonl")]
    steps, made, cuts = 0, -1, list[tuple[Path, int]]()

    def live(every: int) -> None:
        """Lives the run, and copies the disk before every so manieth step."""

        def counted(name: str) -> Any:
            operation = getattr(os, name)

            def step(*arguments: Any, **named: Any) -> Any:
                nonlocal steps
                steps += 1
                if every and made >= 0 and steps % every == 0:
                    for number, kind in enumerate(KINDS):
                        cuts.append((tmp_path / f"cut-{steps}-{number}", made))
                        disk.copy(cuts[-1][0], kind)
                done = operation(*arguments, **named)
                if name == "fsync":
                    disk.sync(arguments[0])
                return done

            return step

        def watch(state: checkpoint.EcologyState, *_: Any) -> None:
            nonlocal made
            is_due = state.generation % config.run.checkpoint_every == 0
            made = state.generation if is_due else max(made, 0)

        with monkeypatch.context() as patch:
            for name in ("fsync", "replace", "unlink", "link"):
                patch.setattr(os, name, counted(name))
            start(config, disk.folder / "run", host=ToyHost(), watch=watch)

    live(0)
    total = steps
    shutil.rmtree(disk.folder / "run")
    disk.names.clear()
    steps, made = 0, -1
    live(total // (CUTS + 16))
    assert len(cuts) >= CUTS * len(KINDS)
    for cut, generation in cuts:
        folder = cut / "run"
        assert checkpoint.load_state(folder).generation >= generation
        assert resume(folder, host=ToyHost()).is_complete
        found = [(folder / name).read_bytes() for name in ("state.json", "events.jsonl")]
        assert found == expected, cut.name
