"""RoiPool by windows: boxes overlap and bins are large, so that pixels are compared once for all.

    weighed   whether the boxes' bins have so many pixels that the next phase pays
    windows   the largest of each 4x4 pixels and which of the sixteen it is, if so
    pooled    bins of four rows and columns or more from windows, the others pixel by pixel

What the boxes are is known on the GPU alone, so that it decides there; where windows do not pay,
their programs end at once. Floor: the bytes of the image, of the windows (written, and read where
bins are) and of the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.roi.align import block_choices, sampling_micros
from saccade.kernels.cuda.roi.box_operands import (
    boxes_of,
    channels_strides,
    common_refusal,
    exact_kind,
    joined,
    power_of_two,
    unit,
)
from saccade.kernels.cuda.roi.box_phases import Constant, RoiPhaseConfig, Scratchpad, phase_entry
from saccade.opdefs import RoiPool

__all__ = ["ROI_POOL_WINDOWS"]

_SIDE = 4
"""Rows and columns of a window. Of 1000 boxes of up to 100x100 pixels, 7x7 bins, it leaves 50 bytes
to read for a float32 result, where windows of 2x2 and 3x3 leave 90 and 53, pixels 250."""
_LEAST = 12.0
"""Pixels of large bins for each pixel of the images, from where windows pay: to find them takes 3.8
ps for each pixel and channel in float32 (2.8 in float16, one H100); each of a bin saves about 0.27
(an estimate from the times of pixels alone)."""
_READS = 13.0  # of windows and pixels of a bin, where pixels alone are 62 (`pool`)
_MOST = 1 << 30  # bytes of all windows (by eye)
_BLOCK = 1024
"""Bytes of x's elements of a program over bins: with 512 bytes 32 programs of a warp, all that a
multiprocessor takes, wait for their boxes (one H100, large and small boxes, µs: 265 and 78 in
float32, 286 and 135 with 512; in float16 204 and 49, 210 and 70)."""
_ROWS, _PROGRAM, _WARPS = 16, 512, 4
"""Of a program: rows of windows, maxima along a row, warps (117 µs in float32 and 86 in float16,
where nine such took 114 to 133 and 82 to 101: one H100)."""
_BOXES = 256  # that a program reads at once (by eye)


def _supports(call: CudaCall) -> str | None:
    x = call.inputs[0]
    if reason := common_refusal(call):
        return reason
    if not unit(x):
        return "channels that are no neighbours"
    if min(x.shape[2:]) < _SIDE or 0 in x.shape:
        return f"an image without {_SIDE} rows and columns"
    if _windows(call) * (x.dtype.itemsize + 1) > _MOST:
        return "windows of more than 1 GiB"
    return None


def _windows(call: CudaCall) -> int:
    n, c, h, w = call.inputs[0].shape
    return n * (h - _SIDE + 1) * (w - _SIDE + 1) * c


def _micros(call: CudaCall, block: tuple[int, int, int]) -> float:
    x = call.inputs[0]
    moved = x.nbytes + _windows(call) * (x.dtype.itemsize + call.op.places)
    return 2 * LAUNCH + stream_micros(call, moved) + sampling_micros(call, _READS, block)


def _variants(call: CudaCall) -> Iterator[Variant]:
    blocks = block_choices(call, _BLOCK)
    for micros, block in sorted((_micros(call, block), block) for block in blocks):
        yield Variant(micros, partial(_launches, call, block))


def _launches(call: CudaCall, block: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: RoiPool = call.op
    x, y, boxes = call.inputs[0], call.outputs[0], boxes_of(call)
    temps, count = Scratchpad(), _windows(call)
    worth = temps.room("worth", 1)
    most = temps.room("most", count, x.dtype.itemsize)
    # What is not asked for is not written, wherever its pointer goes.
    codes = temps.room("codes", count, 1) if op.places else worth
    kinds = {
        "x": element_of(x), "most": element_of(x), "y": element_of(y), "codes": "u8",
        "boxes": boxes.elements[0], "images": boxes.elements[1],
    }  # fmt: skip
    bins: dict[str, Constant] = {"P": op.bins[0], "Q": op.bins[1], "SCALE": float(op.scale)}
    exact, double = exact_kind(call), x.dtype.itemsize == 8
    n, c, h, w = x.shape
    image = {"c": c, "h": h, "w": w, **channels_strides(x, "x", "nchw")}
    del image["x_c"]

    def launch(
        phase: str, operands: dict[str, Operand], integers: dict[str, int], programs: int,
        warps: int, **constants: Constant,
    ) -> Launch:  # fmt: skip
        elements = tuple((name, kinds[name]) for name in operands if name in kinds)
        config = RoiPhaseConfig(phase, elements, tuple(constants.items()), warps)
        return Launch(config, operands, integers, programs)

    weighed = launch(
        "weighed",
        {**boxes.operands, "worth": worth, "bad": Out(len(call.outputs) - 1)},
        {**boxes.integers, "h": h, "w": w},
        1, _WARPS, **bins, REPORT=op.report, EXACT=exact, SIDE=_SIDE, LEAST=_LEAST, BLOCK=_BOXES,
    )  # fmt: skip
    channels = min(power_of_two(c), 128 // x.dtype.itemsize)
    columns = min(_PROGRAM // channels, power_of_two(w - _SIDE + 1))
    tiles = n * -(-(h - _SIDE + 1) // _ROWS) * -(-(w - _SIDE + 1) // columns)
    windows = launch(
        "windows",
        {"x": In(0), "worth": worth, "most": most, "codes": codes},
        image,
        tiles * -(-c // channels), _WARPS, PLACES=op.places, DOUBLE=double, SIDE=_SIDE, TH=_ROWS,
        TW=columns, BC=channels,
    )  # fmt: skip
    places = call.outputs[1 if op.places else 0]
    k, _, p, q = y.shape
    pooled = launch(
        "pooled",
        {
            "x": In(0), **boxes.operands, "worth": worth, "most": most, "codes": codes,
            "y": Out(0), "places": Out(1 if op.places else 0),
        },
        {
            **boxes.integers, **image, **channels_strides(y, "y", "kcpq"),
            **channels_strides(places, "at", "kcpq"),
        },
        k * -(-p * q // block[0]) * -(-c // block[1]), block[2],
        **bins, PLACES=op.places, DOUBLE=double, EXACT=exact, UNIT=unit(y), JOINED=joined(y),
        AT_UNIT=unit(places), AT_JOINED=joined(places), SIDE=_SIDE, BB=block[0], BC=block[1],
    )  # fmt: skip
    return weighed, windows, pooled


ROI_POOL_WINDOWS = CudaKernel(
    "roi.pool_windows", (RoiPool,), RoiPhaseConfig, _supports, _variants, phase_entry
)
