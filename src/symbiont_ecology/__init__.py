"""Populations of LoRA adapters that live, learn, breed and die on a frozen language model."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["HostKernel", "__version__"]

if TYPE_CHECKING:
    from symbiont_ecology.host.kernel import HostKernel


def __getattr__(name: str) -> Any:
    """``HostKernel`` on demand: importing the package must not import torch."""
    if name == "HostKernel":
        from symbiont_ecology.host.kernel import HostKernel

        return HostKernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
