"""Populations of LoRA adapters that live, learn, breed and die on a frozen language model."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "HostKernel",
    "Run",
    "Suite",
    "Task",
    "__version__",
    "graders",
    "load_config",
]

if TYPE_CHECKING:
    from symbiont_ecology.config import load_config
    from symbiont_ecology.extensions.study.suite import Comparison, Suite
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.run import Run
    from symbiont_ecology.tasks import Task
    from symbiont_ecology.tasks.grading import graders

_HOMES = {
    "Comparison": "symbiont_ecology.extensions.study.suite",
    "HostKernel": "symbiont_ecology.host.kernel",
    "Run": "symbiont_ecology.run",
    "Suite": "symbiont_ecology.extensions.study.suite",
    "Task": "symbiont_ecology.tasks",
    "graders": "symbiont_ecology.tasks.grading",
    "load_config": "symbiont_ecology.config",
}


def __getattr__(name: str) -> object:
    """Names on demand: importing the package must not import torch or pandas."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
