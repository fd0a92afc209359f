"""Studies: what comparisons need beyond a run and its evaluation."""

from symbiont_ecology.extension import Command, Extension

EXTENSION = Extension(
    parts={
        "routing": ("symbiont_ecology.extensions.study.routings",),
        "shift": ("symbiont_ecology.extensions.study.shifts",),
    },
    commands={
        "transfer": Command("symbiont_ecology.extensions.study.cli_transfer:transfer", "Studies")
    },
)
