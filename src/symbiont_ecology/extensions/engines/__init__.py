"""vLLM and SGLang answer in place of the kernel, through their HTTP interfaces.

- ``servers``: the two servers, and how they are called.
- ``readers``: the words that start them with the adapters of an export.
- ``answering``: adapters are published, and answers compared with the kernel's.
"""

from symbiont_ecology.base.extension import Extension

_HERE = "symbiont_ecology.extensions.engines"

EXTENSION = Extension(parts={"engine": (f"{_HERE}.servers",), "reader": (f"{_HERE}.readers",)})
