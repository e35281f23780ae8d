"""The direct convolution with weights that are computed: packed, then summed.

Formula and layouts as `conv2d.direct`; weights in any order, float32 or bfloat16. Refuses: weights
that are constant; otherwise as that kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.cpu.base import CpuKernel
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.direct_code import emit_direct
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig
from saccade.kernels.cpu.pack.in_program import InProgram
from saccade.kernels.cpu.pack.panels import emit as emit_pack
from saccade.kernels.cpu.pack.panels_config import PackConfig
from saccade.opdefs import Conv2d

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder

__all__ = ["CONV2D_DIRECT_COMPUTED", "DirectComputedConfig", "emit_direct_computed"]


@dataclass(frozen=True, slots=True)
class DirectComputedConfig:
    """What the code of a phase depends on; the other one is None.

    Attributes:
        pack: Of a phase that packs.
        sums: Of one of `conv2d.direct`.
    """

    pack: PackConfig | None
    sums: DirectConfig | None


def emit_direct_computed(k: KernelBuilder, config: DirectComputedConfig) -> None:
    """The code of either kernel."""
    if config.pack is not None:
        emit_pack(k, config.pack)
    elif config.sums is not None:
        emit_direct(k, config.sums)


_COMPUTED = InProgram(CONV2D_DIRECT, DirectComputedConfig)
CONV2D_DIRECT_COMPUTED = CpuKernel(
    "conv2d.direct_computed", (Conv2d,), DirectComputedConfig, _COMPUTED.supports,
    _COMPUTED.variants, emit_direct_computed, aliases=_COMPUTED.aliases,
)  # fmt: skip
