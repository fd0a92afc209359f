"""``lm-eval``: the command line of lm-evaluation-harness, with a run as a model."""

from __future__ import annotations

from typing import Annotated

from symbiont_ecology.cli.options import argument


def lm_eval(
    words: Annotated[
        list[str],
        argument("As lm_eval takes them, such as run --model symbiont --tasks …", "WORDS"),
    ],
) -> None:
    """The command lm_eval of lm-evaluation-harness, with the model symbiont: a run.

    --model_args run=DIR; also who=ROUTING or who=ORGANELLE, habitat=ID, host=MODEL, device=DEVICE.
    """
    from symbiont_ecology.bridges.lm_eval import run_harness

    run_harness(words)
