"""Data from elsewhere: known data sets, reasoning-gym, task files of lm-evaluation-harness."""

from symbiont_ecology.extension import Command, Extension

EXTENSION = Extension(
    parts={
        "task source": (
            "symbiont_ecology.extensions.data.harness",
            "symbiont_ecology.extensions.data.reasoning",
        )
    },
    commands={
        "data": Command("symbiont_ecology.extensions.data.cli:data", "Data"),
        "datasets": Command("symbiont_ecology.extensions.data.cli:datasets", "Data"),
    },
)
