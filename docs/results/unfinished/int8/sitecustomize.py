"""The products of eight bits of today, for a checkout that has none: the same bits, and faster.

``SYMBIONT_PASSES`` is the path of today's ``libcpu_kernels.so``. Python loads this file by itself
in every process that has its folder in ``PYTHONPATH``, in front of the checkout's ``src``.
"""

import ctypes
import os

import torch
from torch import Tensor

from symbiont_ecology.host import int8

NUMBER, ADDRESS = ctypes.c_int64, ctypes.c_void_p
multiply = ctypes.CDLL(os.environ["SYMBIONT_PASSES"]).multiply_rounded
multiply.restype = ctypes.c_int
multiply.argtypes = [NUMBER, NUMBER, ADDRESS, NUMBER, ADDRESS, NUMBER, NUMBER, ADDRESS, NUMBER]
multiply.argtypes += [ADDRESS, NUMBER]


def product(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    """As ``int8.product``, without gradients."""
    x, (d_in, d_out) = x.contiguous(), weights.shape
    assert x.dtype == scales.dtype == torch.float32
    assert (weights.dtype, weights.stride(1), x.shape[1]) == (torch.int8, 1, d_in)
    out = x.new_empty(len(x), d_out)
    rows = len(x), d_in, x.data_ptr(), d_in, weights.data_ptr(), weights.stride(0), d_out
    to = scales.data_ptr(), len(scales), out.data_ptr(), torch.get_num_threads()
    assert multiply(*rows, *to) == 0
    return out


def check() -> None:
    """Compares both on numbers like those of the model."""
    generator = torch.Generator().manual_seed(0)
    for d_in, d_out in ((576, 960), (1536, 576)):
        x = torch.randn(5, d_in, generator=generator)
        weights, scales = int8.quantized(torch.randn(d_in, d_out, generator=generator))
        assert torch.equal(product(x, weights, scales), int8._product(x, weights, scales))


check()
int8._product = product
