"""What Windows has not, taken away before anything is imported: ``python without_posix.py WORDS``
is then what ``symbiont WORDS`` would be there."""

from __future__ import annotations

import os
import signal
import sys

MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getpgrp", "getuid"),
    *("killpg", "nice", "sched_getaffinity", "sysconf", "tcgetpgrp"),
)
OF_SIGNAL = ("ITIMER_REAL", "SIGALRM", "SIGHUP", "SIGKILL", "setitimer")

if __name__ == "__main__":
    import filelock  # it has a way of its own on Windows
    import platformdirs  # and so has this
    import psutil  # and this
    import torch  # and this

    _ = filelock, platformdirs, psutil, torch
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    from symbiont_ecology.cli import main

    main()
