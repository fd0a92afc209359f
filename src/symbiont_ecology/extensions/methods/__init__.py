"""Other ways to learn and to evolve: evolution strategies, a genetic algorithm, evolution of
hyper-parameters, the Hebbian rule, and speciation.

``genetic``                a genetic algorithm over weights; ``exchanges`` has its crossovers
``evolution_strategies``   noise around one adapter and steps along it; ``noise`` makes it of seeds
``hyper``                  evolution of how adapters are trained; ``cli`` has its command
``selections``             merges that select: dare and ties
``exams``                  what everybody is asked alike, and the scores that are kept
``hebbian``                learning from forward passes alone
``speciation``             newcomers for prompts that are strange to everyone alive
"""

from symbiont_ecology.base.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.methods"

EXTENSION = Extension(
    parts={
        "strategy": (f"{_HERE}.evolution_strategies", f"{_HERE}.genetic", f"{_HERE}.hyper"),
        "operator": (f"{_HERE}.exchanges", f"{_HERE}.selections"),
        "learning rule": (f"{_HERE}.hebbian",),
        "mechanism": (f"{_HERE}.speciation",),
    },
    commands={"evolve": Command(f"{_HERE}.cli:evolve", panel="Other methods")},
)
