"""Fusions that pay on GPUs alone: their operators, and the rewrites that layout asks for.

    conv_sum, conv_point, conv_subpixel     operators: shape rule, NumPy reference, work
    sum_convs, point_convs, subpixel_convs  rewrites; what they leave alone, and why
    decide                                  what layout knows: `CudaFusions`

Kernels import the operators from here, `decide` is the backend's. `opdefs` knows none of them: what
reads operators back by name is given `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from saccade.backends.cuda.fusions.conv_point import Conv2dPoint
from saccade.backends.cuda.fusions.conv_subpixel import Conv2dSubPixel
from saccade.backends.cuda.fusions.conv_sum import Conv2dSum
from saccade.backends.fusions import Attention, GatheredPointwise
from saccade.ir import Op

__all__ = ["OPERATORS", "Conv2dPoint", "Conv2dSubPixel", "Conv2dSum"]

OPERATORS: Mapping[str, type[Op]] = MappingProxyType(
    {
        op.__name__: op
        for op in (Attention, Conv2dPoint, Conv2dSubPixel, Conv2dSum, GatheredPointwise)
    }
)
"""The operators that GPUs add to `opdefs`, by family."""
