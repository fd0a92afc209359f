"""LoRA weights as values: layout, algebra, blob store, PEFT files. Numpy alone, no torch."""

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights, OptimizerState

__all__ = ["AdapterLayout", "AdapterWeights", "OptimizerState"]
