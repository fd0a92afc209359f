"""A run in lm-evaluation-harness: the bare host, whom the router chooses, and each organelle.

    cd examples
    symbiont run lm_eval.yaml --out runs/elements
    python evaluate_in_harness.py runs/elements

The task and its data are the files that the run learned from; nothing is downloaded. The harness
compares likelihoods of choices, and the run's own verifier judges replies. Needs the extra lm-eval.
"""

from __future__ import annotations

import sys

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from symbiont_ecology import Run
from symbiont_ecology.extensions.bridges.lm_eval import EcologyLM


def main(folder: str) -> None:
    """Prints the accuracy of each."""
    # Without the thousands of tasks that come with the harness, which take time to list.
    tasks = TaskManager(include_path="harness", include_defaults=False)
    for who in ("host", "learned", *Run.open(folder).population):
        model = EcologyLM(folder, who)
        measured = simple_evaluate(model, tasks=["elements"], task_manager=tasks)["results"]
        accuracy, error = (measured["elements"][name] for name in ("acc,none", "acc_stderr,none"))
        print(f"{who}: {accuracy:.3f} ± {error:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
