"""Bridges to other programs: trackers of curves, lm-evaluation-harness, and trl's trainers.

- ``trackers``: curves in TensorBoard, Trackio, and Weights & Biases.
- ``lm_eval``: a run as a model of lm-evaluation-harness; ``cli`` is its command line.
- ``trl``: questions and rewards for trl's trainers.
- ``immigration``: a population that begins with adapters of theirs, or of PEFT.
"""

from symbiont_ecology.base.extension import Command, Extension

EXTENSION = Extension(
    parts={
        "tracker": ("symbiont_ecology.extensions.bridges.trackers",),
        "mechanism": ("symbiont_ecology.extensions.bridges.immigration",),
    },
    commands={
        "lm-eval": Command(
            "symbiont_ecology.extensions.bridges.cli:lm_eval", passes_unknown_options=True
        )
    },
)
