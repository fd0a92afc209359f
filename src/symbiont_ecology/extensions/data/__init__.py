"""Data from elsewhere: known data sets, reasoning-gym, task files of lm-evaluation-harness; and
rewards by text."""

from symbiont_ecology.base.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.data"
EXTENSION = Extension(
    parts={
        "task source": (f"{_HERE}.harness", f"{_HERE}.reasoning"),
        "log form": (f"{_HERE}.exports",),
        "reward rule": (f"{_HERE}.rewards",),
    },
    commands={
        "data": Command(f"{_HERE}.cli:data", panel="Data and models"),
        "datasets": Command(f"{_HERE}.cli:datasets", panel="Data and models"),
    },
)
