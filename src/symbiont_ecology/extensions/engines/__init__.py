"""vLLM answers in place of the kernel, through its HTTP interface.

- ``servers``: the server, and how it is called.
- ``readers``: the words that start vLLM and SGLang with the adapters of an export.
- ``answering``: adapters are published, and answers compared with the kernel's.
"""

from symbiont_ecology.base.extension import Extension

_HERE = "symbiont_ecology.extensions.engines"

EXTENSION = Extension(parts={"engine": (f"{_HERE}.servers",), "reader": (f"{_HERE}.readers",)})
