"""Compiled operations for hosts on a CPU, and base weights of eight bits.

- ``cpu_kernels.c``: the operations; ``compiling`` makes a library of them.
- ``native_ops``: the operations as functions of tensors.
- ``back_end``: the back ends made of them, for answers and for lessons.
- ``int8``: base weights in eight bits.
"""

from symbiont_ecology.base.extension import Extension

EXTENSION = Extension(
    parts={
        "back end": ("symbiont_ecology.extensions.native.back_end",),
        "eight-bit form": ("symbiont_ecology.extensions.native.int8",),
    }
)
