"""bfloat16 images that a direct convolution of several taps reads as float32.

A tile widens each element anew for every tap and block of channels. Where the target has no
products of pairs, and an element is read often, a phase of its own widens the image once, into
memory that is channels-last without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Temp, Variant, View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig
from saccade.kernels.cpu.conv2d.microkernel import copy_wide
from saccade.kernels.cpu.machine import machine

if TYPE_CHECKING:
    from saccade.kernels.cpu.conv2d.direct_launch import SlidingWindows

__all__ = ["emit_widen", "is_widened_ahead", "read_wide", "widened_ahead"]

_PRODUCTS = 512
"""Of an element, from which on a phase pays (an estimate: 2304 gained 14%, two Zen 3 cores)."""
_SHARE = 8192  # bytes of the image that a chunk has at least (an estimate)
_BUFFER = 1  # number of the temporary; sums of parts have the first


@dataclass(frozen=True, slots=True)
class _WidenSizes:
    """The integer parameters; a chunk is `share` rows of pixels of the `total`."""

    total: Int
    height: Int
    width: Int
    depth: Int
    x_n: Int
    x_h: Int
    x_w: Int
    share: Int


def is_widened_ahead(call: CpuCall, window: SlidingWindows) -> bool:
    """Whether the image is better widened in a phase of its own."""
    x, (filters, *_) = call.inputs[0], call.inputs[1].shape
    if x.dtype is not DType.BF16 or not x.channels_last or window.pairs or window.widened:
        return False
    if window.prologue != IDENTITY:
        return False
    products = filters // window.groups * window.taps[0] * window.taps[1]
    return products // (window.stride[0] * window.stride[1]) >= _PRODUCTS


def read_wide(call: CpuCall) -> CpuCall:
    """The call as it reads the image when that is widened."""
    _, c, h, w = shape = call.inputs[0].shape
    wide = View(DType.F32, shape, (c * h * w, 1, c * w, c))
    return replace(call, inputs=(wide, *call.inputs[1:]))


def widened_ahead(call: CpuCall, variants: Iterable[Variant]) -> Iterator[Variant]:
    """Variants for `read_wide(call)` as such for the call: the phase before each."""
    x, speed = call.inputs[0], machine(call.target)
    micros = speed.step + 3 * x.nbytes / (speed.cache_bandwidth * call.threads)
    for variant in variants:
        yield variant._replace(
            micros=variant.micros + micros,
            build=partial(_launches, call, variant),
            configs=partial(_configs, variant),
        )


def _configs(variant: Variant) -> tuple[object, ...]:
    return (_CONFIG, *variant.needs)


def _launches(call: CpuCall, variant: Variant) -> tuple[Launch, ...]:
    x = call.inputs[0]
    images, depth, height, width = x.shape
    share = -(-_SHARE // max(1, depth * width * x.dtype.itemsize))
    wide = Temp(_BUFFER, DType.F32.itemsize * x.size)
    sizes = {
        "total": images * height, "height": height, "width": width, "depth": depth,
        "x_n": x.strides[0], "x_h": x.strides[2], "x_w": x.strides[3], "share": share,
    }  # fmt: skip
    widen = Launch(_CONFIG, {"x": In(0), "wide": wide}, sizes, -(-images * height // share))
    return (
        widen,
        *(
            replace(
                launch,
                operands={k: wide if o == In(0) else o for k, o in launch.operands.items()},
            )
            for launch in variant.launches
        ),
    )


_CONFIG = DirectConfig(
    1, 1, False, 1, "once", False, False, DType.BF16.value, "none", True, False, False,
    "widen", False, str(IDENTITY), (), (),
)  # fmt: skip


def emit_widen(k: KernelBuilder) -> None:
    """Emit the phase: every element of x, whose channels are neighbours, as float32."""
    x, wide, g = k.pointer("x", "bfloat16"), k.pointer("wide"), k.sizes(_WidenSizes)
    with k.chunks((g.total + (g.share - 1)) // g.share) as chunk:
        first = chunk * g.share
        with k.range(first, k.minimum_int(first + g.share, g.total)) as row:
            image = row // g.height
            line = x + (image * g.x_n + (row - image * g.height) * g.x_h)
            with k.range(0, g.width) as column:
                source, to = line + column * g.x_w, wide + (row * g.width + column) * g.depth
                copy_wide(k, source, to, g.depth)
