"""A run on a terminal: the first sign of life, the screen, Ctrl-C before it begins."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from killing import COMMAND
from symbiont_ecology.cli.interrupts import StopRequest, remember_interrupts

LOADING = "symbiont 0.1.0: loading …"
COMMANDS = (
    ("run", "no-such-preset"),
    ("resume", "/no/such/run"),
    ("demo", "seed=many"),
    ("learn-from", "/no/such/log"),
    ("calibrate", "no-such-preset"),
)


def on_a_terminal(words: Sequence[object]) -> str:
    """Return all that a command shows on a terminal of its own."""
    ours, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    streams = {"stdin": side, "stdout": side, "stderr": side}
    child = subprocess.Popen(list(map(str, words)), **streams, env=environment)
    os.close(side)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes with the command
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert child.wait() == 0, shown
    return shown.decode()


def test_a_run_draws_a_screen(small: list[str], tmp_path: Path) -> None:
    words = [*COMMAND, "run", "steady", *small, "--out", tmp_path / "run"]
    shown = on_a_terminal(words)
    assert "generation" in shown
    assert shown.lstrip().startswith(LOADING)
    assert "founding the population …" in shown


def test_a_terminal_that_cannot_draw_gets_lines(small: list[str], tmp_path: Path) -> None:
    words = ["env", "TERM=dumb", *COMMAND, "run", "steady", *small, "--out", tmp_path / "run"]
    shown = on_a_terminal(words)
    assert "generation    0" in shown
    assert "\x1b" not in shown


def test_ctrl_c_that_an_import_dropped_ends_a_run_before_it_begins() -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        remember_interrupts()
        with contextlib.suppress(
            KeyboardInterrupt
        ):  # as Python does in a weak reference's callback
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), StopRequest():
            pass
        remember_interrupts()  # of the next command
        with StopRequest() as stop:
            assert not stop.is_made
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_the_first_sign_of_life_comes_before_anything_heavy(words: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from symbiont_ecology.cli import main\n"
        "class Watched:\n"
        "    def write(self, text):\n"
        "        heavy = {'torch', 'transformers', 'numpy', 'pandas'} & set(sys.modules)\n"
        "        sys.stdout.write(f'{text.strip()} {sorted(heavy)}')\n"
        "        sys.exit(0)\n"
        "    def flush(self): pass\n"
        f"sys.argv, sys.stderr = ['symbiont', *{words!r}], Watched()\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{LOADING} []"


@pytest.mark.parametrize("words", COMMANDS[:2], ids=lambda words: words[0])
def test_a_quiet_run_does_not_say_that_it_loads(words: tuple[str, ...]) -> None:
    done = subprocess.run([*COMMAND, *words, "--quiet"], capture_output=True, text=True)
    assert done.stderr.startswith("error: ")
