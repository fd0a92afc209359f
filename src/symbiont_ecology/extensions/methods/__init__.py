"""Published methods beside the ecology: evolution strategies, a genetic algorithm, and evolution of
hyper-parameters.

``genetic``                a genetic algorithm over weights; ``exchanges`` has its crossovers
``evolution_strategies``   noise around one adapter and steps along it; ``noise`` makes it of seeds
``hyper``                  evolution of how adapters are trained; ``cli`` has its command
``exams``                  what everybody is asked alike, and the scores that are kept
"""

from symbiont_ecology.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.methods"

EXTENSION = Extension(
    parts={
        "strategy": (f"{_HERE}.evolution_strategies", f"{_HERE}.genetic", f"{_HERE}.hyper"),
        "operator": (f"{_HERE}.exchanges",),
    },
    commands={"evolve": Command(f"{_HERE}.cli:evolve", panel="Other methods")},
)
