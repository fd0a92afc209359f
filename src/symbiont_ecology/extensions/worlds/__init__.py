"""More worlds: further synthetic families, patterns, countdown, and talk in styles."""

from symbiont_ecology.base.extension import Extension

_HERE = "symbiont_ecology.extensions.worlds"
EXTENSION = Extension(
    parts={
        "task": tuple(f"{_HERE}.{name}" for name in ("families", "patterns", "countdown", "talk")),
        "reward rule": (f"{_HERE}.countdown",),
    }
)
