"""Populations of LoRA adapters that live, learn, breed and die on a frozen language model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["HostKernel", "Run", "Task", "__version__", "graders", "load_config"]

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel
    from symbiont_ecology.run.config import load_config
    from symbiont_ecology.run.run import Run
    from symbiont_ecology.tasks import Task
    from symbiont_ecology.tasks.grading import graders

_HOMES = {
    "HostKernel": "symbiont_ecology.model.kernel",
    "Run": "symbiont_ecology.run.run",
    "Task": "symbiont_ecology.tasks",
    "graders": "symbiont_ecology.tasks.grading",
    "load_config": "symbiont_ecology.run.config",
}


def __getattr__(name: str) -> Any:
    """Import a name on demand: importing the package must not import torch or pandas. Extensions
    may add names, such as ``Suite``."""
    from symbiont_ecology.base.extension import names

    if home := _HOMES.get(name) or (not name.startswith("_") and names().get(name)):
        return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
