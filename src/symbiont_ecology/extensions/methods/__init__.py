"""Published methods beside the ecology; ``cli`` has the command of one of them."""

from symbiont_ecology.extension import Command, Extension

EXTENSION = Extension(
    commands={
        "evolve": Command("symbiont_ecology.extensions.methods.cli:evolve", panel="Other methods")
    }
)
