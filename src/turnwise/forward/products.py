"""Products by weights that stay for many passes, in the order in which a library's kernels read
them: with few rows such a product takes half to two thirds of the time."""

import platform
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from turnwise.threads import cpuinfo

X86 = ("x86_64", "AMD64")
"""Names of processors on which the libraries' kernels were measured: elsewhere some are slow."""

Product = Callable[[Tensor], Tensor]
"""States [n, inputs] by weights, [n, outputs]."""


def product(weights: Tensor) -> Product:
    """The product by weights [outputs, inputs], which must not change."""
    # mypy: PyTorch declares no types here.
    ordered: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weights.dtype == torch.bfloat16:
        ordered &= torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if weights.device.type != "cpu" or platform.machine() not in X86 or not ordered:
        # Transposed: with the weights first few rows and many outputs are up to twice as fast.
        return lambda states: torch.mm(weights, states.t()).t()
    if weights.dtype == torch.float32 and suits_mkl():
        # For any number of rows of states; ordered for as many as outputs, all take twice as long.
        kept = torch.ops.mkl._mkl_reorder_linear_weight(weights, min(512, -(-len(weights) // 2)))
        # It also wants the weights as they were, and reads their shape alone.
        shape = weights.new_empty(()).expand(weights.shape)
        return lambda states: torch.ops.mkl._mkl_linear(states, kept, shape, None, len(states))
    kept = torch.ops.mkldnn._reorder_linear_weight(weights)
    return lambda states: torch.ops.mkldnn._linear_pointwise(states, kept, None, "none", [], "")


@cache
def suits_mkl() -> bool:
    # MKL is Intel's: of other processors' AVX-512 it makes no use.
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_mkl and "Intel" in "".join(cpuinfo("model name"))
