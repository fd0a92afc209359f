"""vLLM and SGLang answer in place of the kernel, through their HTTP interfaces.

- ``servers``: the two servers, how they are called, and the words that start them.
- ``answering``: adapters are published, and answers compared with the kernel's.
"""

from symbiont_ecology.base.extension import Extension

EXTENSION = Extension(parts={"engine": ("symbiont_ecology.extensions.engines.servers",)})
