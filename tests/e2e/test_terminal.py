"""A run on a terminal: the first sign of life, the screen, Ctrl-C before it begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADING = "symbiont 0.1.0: loading …"
COMMANDS = (
    ("run", "no-such-preset"),
    ("resume", "/no/such/run"),
    ("demo", "seed=many"),
    ("learn-from", "/no/such/log"),
    ("calibrate", "no-such-preset"),
)


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
