"""RoiAlign: bins times channels of one box in a block, means or maxima of bilinear samples.

A sample's pixels and weights are found once for all channels of a block; with channels as
neighbours these are vectors of 16 bytes. Any strides, any boxes. Floor: the bytes of the results
and of the pixels under the boxes; what binds is the L2 cache, which gives 4 pixels a sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import cached_micros, stream_micros
from saccade.kernels.cuda.roi.box_operands import (
    BOX_INTEGERS,
    boxes_of,
    channels_strides,
    common_refusal,
    exact_kind,
    joined,
    power_of_two,
    unit,
)
from saccade.opdefs import RoiAlign

__all__ = ["ROI_ALIGN", "CudaRoiAlignConfig", "block_choices", "sampling_micros"]

_INTEGERS = (
    *BOX_INTEGERS, "c", "h", "w", "programs",
    "x_n", "x_c", "x_h", "x_w", "y_k", "y_c", "y_p", "y_q",
)  # fmt: skip
_MULTIPLES = ("c", "x_n", "x_h", "x_w", "y_k", "y_c", "y_p", "y_q")
# Channels of a block by the bytes of an element, where they are neighbours; and bytes of x's
# elements that a block has, 16 a thread. What waits for the L2 cache is hidden by other programs,
# so that small ones are the fastest; but a multiprocessor takes 32, which wait for their boxes
# first. So RoiAlign's have two blocks, one after the other (one H100, 1000 boxes of 7x7 bins, µs:
# float32 88, by one 128, by four 90, by one of 1024 bytes 93; float16 51, 64, 54 and 61). RoiPool's
# bins take as long as they are large, and lose by more than one (float32 363, by two 413).
_CHANNELS, _PROGRAM, _TURNS = {2: 128, 4: 32, 8: 16}, 512, 2
_MOST_SAMPLES = 128  # along an axis of a bin


@dataclass(frozen=True)
class CudaRoiAlignConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, y, the boxes and the images' numbers.
        bins, scale, ratio, aligned, largest, report: Of the operator.
        split: Whether images are an operand of their own.
        counted: Whether a number of boxes is.
        exact: Whether places are computed in float64.
        last: Whether x's channels are neighbours.
        unit, joined: Whether y's channels are, and its bins.
        block: Bins and channels of a block, warps.
        turns: Blocks of a program, one after the other.
    """

    elements: tuple[str, str, str, str]
    bins: tuple[int, int]
    scale: float
    ratio: int
    aligned: bool
    largest: bool
    report: bool
    split: bool
    counted: bool
    exact: bool
    last: bool
    unit: bool
    joined: bool
    block: tuple[int, int, int]
    turns: int


def _supports(call: CudaCall) -> str | None:
    if call.op.ratio > _MOST_SAMPLES:
        return f"{call.op.ratio} samples of a bin along an axis"
    return common_refusal(call)


def block_choices(call: CudaCall, nbytes: int = _PROGRAM) -> Iterator[tuple[int, int, int]]:
    """Bins and channels of a block, warps: for x in either order, results [K, C, P, Q].

    Args:
        call: The call.
        nbytes: Of x's elements, where channels are neighbours.
    """
    x, y = call.inputs[0], call.outputs[0]
    channels, bins = power_of_two(x.shape[1]), power_of_two(y.shape[2] * y.shape[3])
    if unit(x):
        side = min(_CHANNELS[x.dtype.itemsize], channels)
        yield max(1, min(nbytes // x.dtype.itemsize // side, bins)), side, 1
        return
    found = set()
    for elements, lanes in product((1024, 2048, 4096), (16, 32, 64)):
        side = min(lanes, bins)
        other = max(1, min(elements // side, channels))
        found.add((side, other, max(1, min(8, side * other // 512))))
    yield from sorted(found)


def sampling_micros(call: CudaCall, reads: float, block: tuple[int, int, int]) -> float:
    """Of a kernel that reads so many pixels of each result, from the L2 cache.

    Args:
        call: The call; its first result is [K, C, P, Q].
        reads: Pixels of each.
        block: Bins and channels of a program, warps.
    """
    x, y = call.inputs[0], call.outputs[0]
    bins, channels, _ = block
    k, c, p, q = y.shape
    programs = k * -(-p * q // bins) * -(-c // channels)
    # Pixels that are no neighbours take a sector each.
    width = x.dtype.itemsize if unit(x) else 8
    cached = cached_micros(call, programs * bins * channels * reads * width, programs)
    return stream_micros(call, sum(view.nbytes for view in call.outputs)) + cached


def _variants(call: CudaCall) -> Iterator[Variant]:
    op: RoiAlign = call.op
    reads = 4.0 * (op.ratio if op.ratio > 0 else 2) ** 2
    timed = [(sampling_micros(call, reads, block), block) for block in block_choices(call)]
    for micros, block in sorted(timed):
        yield Variant(micros, partial(_launches, call, block))


def _launches(call: CudaCall, block: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: RoiAlign = call.op
    x, y, boxes = call.inputs[0], call.outputs[0], boxes_of(call)
    turns = _TURNS if unit(x) else 1
    config = CudaRoiAlignConfig(
        (element_of(x), element_of(y), *boxes.elements),
        op.bins, float(op.scale), max(0, op.ratio), op.aligned, op.mode == "max", op.report,
        boxes.split, op.counted, exact_kind(call), unit(x), unit(y), joined(y), block, turns,
    )  # fmt: skip
    k, c, p, q = y.shape
    programs = -(-(k * -(-p * q // block[0]) * -(-c // block[1])) // turns)
    integers = {
        **boxes.integers, "c": c, "h": x.shape[2], "w": x.shape[3], "programs": programs,
        **channels_strides(x, "x", "nchw"), **channels_strides(y, "y", "kcpq"),
    }  # fmt: skip
    bad = Out(1 if op.report else 0)  # where there is no report nothing is written there
    operands = {"x": In(0), **boxes.operands, "y": Out(0), "bad": bad}
    operands["number"] = In(len(call.inputs) - 1)  # which is read only where it is one
    return (Launch(config, operands, integers, programs + op.report),)


def _entry(config: CudaRoiAlignConfig) -> Entry:
    x, y, boxes, images = config.elements
    constants: dict[str, int | float | bool | str] = {
        "P": config.bins[0], "Q": config.bins[1], "SCALE": config.scale, "RATIO": config.ratio,
        "ALIGNED": config.aligned, "LARGEST": config.largest, "REPORT": config.report,
        "SPLIT": config.split, "COUNTED": config.counted, "DOUBLE": x == "fp64",
        "EXACT": config.exact, "LAST": config.last, "UNIT": config.unit, "JOINED": config.joined,
        "BB": config.block[0], "BC": config.block[1], "TURNS": config.turns,
    }  # fmt: skip
    return Entry(
        "roi.align_code:align",
        (
            ("x", x),
            ("boxes", boxes),
            ("images", images),
            ("y", y),
            ("bad", "i32"),
            ("number", "i64"),
        ),
        _INTEGERS,
        constants,
        multiples=_MULTIPLES,
        warps=config.block[2],
        contract=False,
    )


ROI_ALIGN = CudaKernel("roi.align", (RoiAlign,), CudaRoiAlignConfig, _supports, _variants, _entry)
