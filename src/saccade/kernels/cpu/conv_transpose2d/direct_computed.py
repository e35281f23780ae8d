"""Transposed convolution with weights that are computed: each phase of the stride packs its taps.

Formula and layouts as `conv_transpose2d.direct`; weights in any order, float32 or bfloat16.
Refuses: weights that are constant; otherwise as that kernel.
"""

from __future__ import annotations

from saccade.kernels.cpu.base import CpuKernel
from saccade.kernels.cpu.conv2d.direct_computed import DirectComputedConfig, emit_direct_computed
from saccade.kernels.cpu.conv_transpose2d.direct import CONV_TRANSPOSE2D_DIRECT
from saccade.kernels.cpu.pack.in_program import InProgram
from saccade.opdefs import ConvTranspose2d

__all__ = ["CONV_TRANSPOSE2D_DIRECT_COMPUTED"]

_COMPUTED = InProgram(CONV_TRANSPOSE2D_DIRECT, DirectComputedConfig)
CONV_TRANSPOSE2D_DIRECT_COMPUTED = CpuKernel(
    "conv_transpose2d.direct_computed", (ConvTranspose2d,), DirectComputedConfig,
    _COMPUTED.supports, _COMPUTED.variants, emit_direct_computed,
)  # fmt: skip
