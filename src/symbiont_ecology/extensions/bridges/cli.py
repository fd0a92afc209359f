"""``lm-eval``: the command line of lm-evaluation-harness, with a run as a model."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

from symbiont_ecology.cli.options import argument


def lm_eval(
    words: Annotated[
        list[str],
        argument("As lm_eval takes them, such as run --model symbiont --tasks …", "WORDS"),
    ],
) -> None:
    """The command lm_eval of lm-evaluation-harness, with the model symbiont: a run.

    --model_args run=DIR; also who=ROUTING or who=ORGANELLE.
    """
    import_module("symbiont_ecology.extensions.bridges.lm_eval")  # which the harness knows then
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["symbiont lm-eval", *words]
    cli_evaluate()
