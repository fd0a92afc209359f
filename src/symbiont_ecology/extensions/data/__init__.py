"""More data and more rewards than the core needs."""

from symbiont_ecology.extension import Extension

EXTENSION = Extension(parts={"reward rule": ("symbiont_ecology.extensions.data.rewards",)})
