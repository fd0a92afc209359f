"""Hosts beside the fused ones: models of transformers, models that install like any package, and
GGUF files of one's own.

- ``wrapped``: any causal language model of transformers, through its own forward.
- ``packages``: models in Python packages, and the cache of hosts that were made.
- ``gguf_files``: a GGUF file as a host folder.
- ``gguf_adapters``: an adapter as a GGUF file, for llama.cpp and ollama.
- ``cli``: ``symbiont host get``, ``list`` and ``remove``.
"""

from symbiont_ecology.base.extension import Command, Extension

EXTENSION = Extension(
    parts={
        "host source": (
            "symbiont_ecology.extensions.hosts.packages",
            "symbiont_ecology.extensions.hosts.gguf_files",
        ),
        "host loader": ("symbiont_ecology.extensions.hosts.wrapped",),
        "reader": ("symbiont_ecology.extensions.hosts.gguf_adapters",),
    },
    commands={"host": Command("symbiont_ecology.extensions.hosts.cli:host")},
)
