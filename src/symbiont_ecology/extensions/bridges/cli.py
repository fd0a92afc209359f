"""``lm-eval``: the command line of lm-evaluation-harness, with a run as a model."""

from __future__ import annotations

import sys
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
    from lm_eval.__main__ import cli_evaluate

    import symbiont_ecology.extensions.bridges.lm_eval  # noqa: F401 (the harness knows it from here)

    sys.argv = ["symbiont lm-eval", *words]
    cli_evaluate()
