"""Grouped convolution on the matrix units: an implicit GEMM for each group, in one launch.

For groups of 16 channels and more; a program's block is that of one group. Floor: as
`implicit_gemm`.
"""

from __future__ import annotations

from saccade.kernels.cuda.base import CudaCall, CudaKernel
from saccade.kernels.cuda.conv2d.implicit_gemm import entry_of, products_of
from saccade.kernels.cuda.conv2d.implicit_gemm_config import ImplicitGemmConfig
from saccade.kernels.cuda.conv2d.window_config import unfit
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_GROUPED"]

_LEAST_CHANNELS = 16  # of a group; with fewer the CUDA cores take it: `depthwise`


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    c = call.inputs[1].shape[1]
    if op.groups == 1:
        return "one group"
    if c < _LEAST_CHANNELS:
        return f"groups of {c} input channels"
    return unfit(call)


CONV2D_GROUPED = CudaKernel(
    "conv2d.grouped", (Conv2d,), ImplicitGemmConfig, _supports, products_of, entry_of
)
