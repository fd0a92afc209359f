"""What whoever watches a run can do: Ctrl-C ends it, and on a terminal keys pause and end it."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from types import FrameType

HINT = "p pauses, q ends behind a generation"
PAUSED, PAUSING = "paused: press p to go on", "pausing behind this generation: press p to go on"
ENDING = "finishing this generation (Ctrl-C again stops at once)"
AT_ONCE = "stopped at once: what came after the last checkpoint is lived again"
SECONDS_TO_LISTEN = 0.1


_came_early = Event()
"""Set when Ctrl-C came before there was a brake."""


def remember_interrupts() -> None:
    """Ctrl-C ends this process from here on, in any case before a run begins: Python drops the
    exception if it comes at certain moments of an import. Who ignores Ctrl-C goes on doing so."""
    _came_early.clear()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _came_early.set()
    raise KeyboardInterrupt


class Brake:
    """Ctrl-C or SIGTERM: once, and the run stops behind this generation; twice, and it stops at
    once.

    ``is_silent`` if a screen says that the brake is pulled.
    """

    def __init__(self, is_silent: bool = False) -> None:
        self.is_pulled, self._is_silent = False, is_silent

    def __enter__(self) -> Brake:
        if _came_early.is_set():
            raise KeyboardInterrupt
        names = signal.SIGINT, signal.SIGTERM  # which batch systems send before they kill
        self._before = {name: signal.signal(name, self._pull) for name in names}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _pull(self, number: int, frame: FrameType | None) -> None:
        if self.is_pulled:
            os.write(sys.stderr.fileno(), f"\n{AT_ONCE}\n".encode())
            raise KeyboardInterrupt
        self.is_pulled = True
        if not self._is_silent:
            # Not print: a signal may come while the stream is being written to.
            os.write(sys.stderr.fileno(), f"\n{ENDING}\n".encode())


class Keyboard:
    """Keys of the terminal that stdin is, as they are pressed; none where it is another thing.

    The terminal is as it was when this is left. Ctrl-C is no key: it stays a signal.
    """

    def __enter__(self) -> Keyboard:
        self._terminal = _terminal()
        if self._terminal is not None:
            import termios

            self._before = termios.tcgetattr(self._terminal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal is not None and _is_ours(self._terminal):
            import termios

            termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)

    @property
    def is_read(self) -> bool:
        """Whether there is a terminal to read from."""
        return self._terminal is not None

    def pressed(self, seconds: float) -> str:
        """The key that was pressed within so many seconds; empty if none was, or one with a longer
        code, such as an arrow."""
        if self._terminal is None or not _is_ours(self._terminal):
            time.sleep(seconds)
            return ""
        _listen_to_keys(self._terminal)
        if not select.select([self._terminal], [], [], seconds)[0]:
            return ""
        try:
            keys = os.read(self._terminal, 64)
        except OSError:  # the terminal was closed
            keys = b""
        if not keys:
            self._terminal = None
        return keys.decode(errors="replace") if len(keys) == 1 else ""


class Controls:
    """Listens to the keys beside a run that lives: p or space pauses it behind a generation and
    lets it go on, q is like Ctrl-C. ``hint`` shows what can be done, or was. ``is_paused`` from the
    key on, so also before the generation ends."""

    def __init__(self, brake: Brake, hint: Callable[[str], None]) -> None:
        self._brake, self._hint, self._keyboard = brake, hint, Keyboard()
        self.is_paused = self._is_waiting = False
        self._is_over = Event()
        self._thread = Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Controls:
        self._keyboard.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        try:
            self._thread.join()
        finally:  # Ctrl-C may come here, too
            self._keyboard.__exit__()

    def wait(self) -> None:
        """Behind a generation: waits until a pause is over, or the run is to end."""
        self._is_waiting = True
        while self.is_paused and not self._brake.is_pulled:
            time.sleep(SECONDS_TO_LISTEN / 2)
        self._is_waiting = False

    def _listen(self) -> None:
        hint = ""
        while not self._is_over.is_set():
            if (latest := self._said()) != hint:
                self._hint(latest)
                hint = latest
            match self._keyboard.pressed(SECONDS_TO_LISTEN):
                case "p" | " ":
                    self.is_paused = not self.is_paused
                case "q":
                    self._brake.is_pulled = True

    def _said(self) -> str:
        if self._brake.is_pulled:
            return ENDING
        if self.is_paused:
            return PAUSED if self._is_waiting else PAUSING
        return HINT if self._keyboard.is_read else ""


def _terminal() -> int | None:
    """The number of stdin, if that is a terminal whose keys can be read."""
    try:
        import termios  # noqa: F401
    except ImportError:  # Windows
        return None
    try:
        number = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return None
    return number if os.isatty(number) and _is_ours(number) else None


def _listen_to_keys(terminal: int) -> None:
    """Makes the terminal give keys as they are pressed, unless it does: a shell that stops and goes
    on with this process changes that."""
    import termios
    import tty

    if termios.tcgetattr(terminal)[3] & termios.ICANON:
        tty.setcbreak(terminal, termios.TCSANOW)


def _is_ours(terminal: int) -> bool:
    """Whether this process is in the foreground: in the background, touching the terminal would
    stop it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
