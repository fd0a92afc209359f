"""A run in service: OpenAI's API over HTTP, and verdicts of users to learn from."""

from symbiont_ecology.base.extension import Command, Extension

_HERE = "symbiont_ecology.extensions.serve"
EXTENSION = Extension(
    parts={"task source": (f"{_HERE}.tasks",)},
    commands={
        "serve": Command(f"{_HERE}.cli:serve", panel="Serve"),
        "key": Command(f"{_HERE}.cli:key_command", panel="Serve"),
    },
)
