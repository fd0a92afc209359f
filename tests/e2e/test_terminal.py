"""A run on a terminal: the first sign of life, its generations, and the terminal afterwards."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from killing import COMMAND
from symbiont_ecology.cli.controls import Brake, Controls, remember_interrupts
from terminals import PseudoTerminal

LOADING = "symbiont 0.1.0: loading …"
COMMANDS = (
    ("run", "no-such-preset"),
    ("resume", "/no/such/run"),
    ("demo", "seed=many"),
    ("learn-from", "/no/such/log"),
    ("calibrate", "no-such-preset"),
)


def test_a_run_on_a_terminal_shows_its_generations_and_what_it_does_before(
    small: list[str], tmp_path: Path
) -> None:
    words = [*COMMAND, "run", "steady", *small, "--out", tmp_path / "run"]
    with PseudoTerminal(words, has_keys=False) as terminal:
        assert terminal.ended() == 0
        assert "generation" in terminal.shown
        assert terminal.shown.lstrip().startswith(LOADING)
        assert "founding the population …" in terminal.shown


def test_a_terminal_that_cannot_draw_gets_lines(small: list[str], tmp_path: Path) -> None:
    words = ["env", "TERM=dumb", *COMMAND, "run", "steady", *small, "--out", tmp_path / "run"]
    with PseudoTerminal(words) as terminal:
        assert terminal.ended() == 0
        assert "generation    0" in terminal.shown
        assert "\x1b" not in terminal.shown


@pytest.mark.parametrize("error", ["ValueError", "KeyboardInterrupt"])
def test_the_terminal_is_as_it_was_after_an_error(error: str) -> None:
    code = (
        "from symbiont_ecology.cli.controls import Brake, Controls\n"
        "import termios, time\n"
        "with Brake() as brake, Controls(brake, lambda text: None):\n"
        "    time.sleep(0.5)\n"
        "    print('echo', bool(termios.tcgetattr(0)[3] & termios.ECHO), flush=True)\n"
        f"    raise {error}\n"
    )
    with PseudoTerminal([sys.executable, "-c", code]) as terminal:
        assert terminal.ended() != 0
        assert "echo False" in terminal.shown
        assert error in terminal.shown
        assert terminal.settings == terminal.settings_before


def test_ctrl_c_that_an_import_dropped_ends_a_run_before_it_begins() -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        remember_interrupts()
        with contextlib.suppress(
            KeyboardInterrupt
        ):  # as Python does in a weak reference's callback
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), Brake():
            pass
        remember_interrupts()  # of the next command
        with Brake() as brake:
            assert not brake.is_pulled
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_stdin_is_no_terminal_nothing_is_read() -> None:
    hints: list[str] = []
    with Brake() as brake, Controls(brake, hints.append) as controls:
        assert not controls.is_paused
    assert not hints


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
