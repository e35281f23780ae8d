"""Depthwise convolution with filters that are computed, as trackers correlate a template.

Formula and layouts as `conv2d.depthwise`; filters in any order, float32 or bfloat16. Refuses:
filters that are constant, sums of rows; otherwise as that kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.cpu.base import CpuKernel
from saccade.kernels.cpu.conv2d.depthwise import CONV2D_DEPTHWISE, DepthwiseConfig
from saccade.kernels.cpu.pack.in_program import InProgram
from saccade.kernels.cpu.pack.panels import emit as emit_pack
from saccade.kernels.cpu.pack.panels_config import PackConfig
from saccade.opdefs import Conv2d

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder

__all__ = ["CONV2D_DEPTHWISE_COMPUTED", "DepthwiseComputedConfig"]


@dataclass(frozen=True, slots=True)
class DepthwiseComputedConfig:
    """What the code of a phase depends on; the other one is None.

    Attributes:
        pack: Of a phase that packs.
        sums: Of one of `conv2d.depthwise`.
    """

    pack: PackConfig | None
    sums: DepthwiseConfig | None


def _emit(k: KernelBuilder, config: DepthwiseComputedConfig) -> None:
    """The code of either kernel."""
    if config.pack is not None:
        emit_pack(k, config.pack)
    elif config.sums is not None:
        CONV2D_DEPTHWISE.emit(k, config.sums)


_COMPUTED = InProgram(CONV2D_DEPTHWISE, DepthwiseComputedConfig)
CONV2D_DEPTHWISE_COMPUTED = CpuKernel(
    "conv2d.depthwise_computed", (Conv2d,), DepthwiseComputedConfig, _COMPUTED.supports,
    _COMPUTED.variants, _emit,
)  # fmt: skip
