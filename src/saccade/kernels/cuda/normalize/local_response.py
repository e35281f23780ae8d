"""Local response normalisation: each element relative to the squares of channels around it.

    y = x / (bias + alpha/size · Σ x²)^beta

A program has a block of pixels times channels and loads the neighbours again, from the L1 cache.
Its floor is the bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from saccade.kernels.base import In, Launch, Out, Variant, View, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import stream_micros
from saccade.kernels.cuda.reduce.axis_loops import AxisLoops, axis_loops, power_above
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import LocalResponseNorm

__all__ = ["NORMALIZE_LOCAL_RESPONSE", "CudaLocalResponseConfig"]

_INTEGERS = (
    "rows", "c", "k1", "k2", "x_k0", "x_k1", "x_k2", "x_c", "y_k0", "y_k1", "y_k2", "y_c",
    "size", "alpha", "beta", "bias",
)  # fmt: skip
_UNROLLED = 9  # channels of a window that are written out
_BLOCK = 512  # elements


@dataclass(frozen=True)
class CudaLocalResponseConfig:
    """What the code depends on.

    Attributes:
        elements: Of x and y.
        size: Channels that are summed, if these are few; else 0.
        roots: Whether beta is 0.75, two square roots.
        kept: How many axes there are besides channels.
        units: What lies side by side in x and in y: "channels", "pixels" or "".
        tile: Pixels and channels of a block.
    """

    elements: tuple[str, str]
    size: int
    roots: bool
    kept: int
    units: tuple[str, str]
    tile: tuple[int, int]


@per_call
def _pixels(call: CudaCall) -> AxisLoops:
    """All axes but the channels, over x and y."""
    x, y = call.inputs[0], call.outputs[0]
    stay = [axis for axis in range(len(x.shape)) if axis != 1]
    strides = [[view.strides[axis] for axis in stay] for view in (x, y)]
    return axis_loops([x.shape[axis] for axis in stay], strides)


def _supports(call: CudaCall) -> str | None:
    if any(view.dtype not in FLOATS for view in (*call.inputs, *call.outputs)):
        return "element types"
    if not _pixels(call).fits:
        return "more than 3 separate axes besides channels"
    return refuse_places(call)


def _unit(call: CudaCall, view: View, index: int) -> str:
    if view.strides[1] == 1:
        return "channels"
    return "pixels" if _pixels(call).unit(index) else ""


def _variants(call: CudaCall) -> Iterator[Variant]:
    x = call.inputs[0]
    last = _unit(call, x, 0) == "channels"
    micros = stream_micros(call)
    for widest in (64, 32, 128) if last else (1, 8, 4):
        channels = min(widest, power_above(x.shape[1]))
        tile = (_BLOCK // channels, channels)
        yield Variant(micros, partial(_launches, call, tile))


def _launches(call: CudaCall, tile: tuple[int, int]) -> tuple[Launch, ...]:
    op: LocalResponseNorm = call.op
    x, y, pixels = call.inputs[0], call.outputs[0], _pixels(call)
    config = CudaLocalResponseConfig(
        (element_of(x), element_of(y)), op.size if op.size <= _UNROLLED else 0, op.beta == 0.75,
        max(2, pixels.axes), (_unit(call, x, 0), _unit(call, y, 1)), tile,
    )  # fmt: skip
    numbers = np.array([op.alpha / op.size, op.beta, op.bias], np.float32).view(np.int32).tolist()
    integers = {
        "rows": pixels.count, "c": x.shape[1], "k1": pixels.sizes[1], "k2": pixels.sizes[2],
        **pixels.integers("x_k", 0), "x_c": x.strides[1], **pixels.integers("y_k", 1),
        "y_c": y.strides[1], "size": op.size, "alpha": numbers[0], "beta": numbers[1],
        "bias": numbers[2],
    }  # fmt: skip
    programs = -(-pixels.count // tile[0]) * -(-x.shape[1] // tile[1])
    return (Launch(config, {"x": In(0), "y": Out(0)}, integers, programs),)


def _entry(config: CudaLocalResponseConfig) -> Entry:
    constants: dict[str, int | float | str] = {
        "SIZE": config.size, "ROOTS": config.roots, "KEPT": config.kept,
        "X_UNIT": config.units[0], "Y_UNIT": config.units[1], "BM": config.tile[0],
        "BC": config.tile[1],
    }  # fmt: skip
    return Entry(
        "normalize.local_response_code:local_response",
        (("x", config.elements[0]), ("y", config.elements[1])),
        _INTEGERS,
        constants,
        multiples=("x_k1", "x_k2", "y_k1", "y_k2", "c", "rows"),
    )


NORMALIZE_LOCAL_RESPONSE = CudaKernel(
    "normalize.local_response", (LocalResponseNorm,), CudaLocalResponseConfig, _supports,
    _variants, _entry,
)  # fmt: skip
