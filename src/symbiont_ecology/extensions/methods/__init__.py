"""Published methods beside the ecology: other learning rules."""

from symbiont_ecology.extension import Extension

EXTENSION = Extension(parts={"learning rule": ("symbiont_ecology.extensions.methods.hebbian",)})
