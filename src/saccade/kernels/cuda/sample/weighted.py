"""`WeightedSamples`: blocks of queries' heads times channels, samples weighed where they come.

No sample is stored: places, shares and weights of a row are read by all its channels, pixels are
loaded where they are inside of their image, and sums stay in float32 registers through all images.
Layouts: any strides; wide loads and stores where channels lie side by side, as in images that are
parts of one list of pixels.

Floor: the pixels that samples read, from the L2 cache; or the bytes of all operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, hypot

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, moved_bytes
from saccade.kernels.cuda.reduce.axis_loops import power_above
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import WeightedSamples

__all__ = ["SAMPLE_WEIGHTED", "CudaWeightedConfig"]

_INTEGERS = (
    "rows", "queries", "channels", "k_n", "k_q", "k_h", "k_s", "y_n", "y_q", "y_c",
)  # fmt: skip
_LEVEL = ("h", "w", "x_n", "x_c", "x_h", "x_w", "g_n", "g_q", "g_h", "g_p", "g_a")
_WIDE = 128  # channels of a block, at most
_BYTES = 512
"""That a warp loads at once of pixels, 16 a thread. With twice as many what is on its way for all
places spills: 552 µs for 32 (6380 queries of 8 heads, 16 places, 32 channels; one H200)."""
_WARPS = (1, 2, 4)  # of a program
_UNROLLED = 16  # places of all images, up to which code has each of them
# Microseconds of a program's begin and of a place's chain of loads; how much longer the L2 cache
# takes than its rate says; bytes that it gives at least. Fitted to five layers of Deformable DETR,
# Mask2Former and RT-DETR, 4 to 32 µs: 3 to 11% off (one H200).
_BEGIN, _LATENCY, _CACHED, _SECTOR = 0.5, 0.21, 1.45, 32


@dataclass(frozen=True)
class CudaWeightedConfig:
    """What the code depends on.

    Attributes:
        elements: Of the images, of each grid, of the weights, of the result.
        points: Places in each image.
        heads, aligned: Of the operator.
        units: Whether channels are neighbours in all images, in the result.
        unrolled: Whether there is code for each place.
        tile: Rows and channels of a block, warps.
    """

    elements: tuple[str, ...]
    points: tuple[int, ...]
    heads: int
    aligned: bool
    units: tuple[bool, bool]
    unrolled: bool
    tile: tuple[int, int, int]


def _supports(call: CudaCall) -> str | None:
    if any(view.dtype not in FLOATS for view in (*call.inputs, *call.outputs)):
        return "element types"
    if len({view.dtype for view in call.inputs[: call.op.levels]}) > 1:
        return "images of several types"
    return refuse_places(call)


def _parts(call: CudaCall) -> tuple[tuple[View, ...], tuple[View, ...], View]:
    """Images, grids, weights."""
    n = call.op.levels
    return call.inputs[:n], call.inputs[n:-1], call.inputs[-1]


def _sizes(call: CudaCall) -> tuple[int, int, int]:
    """Rows, queries, channels of a head."""
    y, heads = call.outputs[0], call.op.heads
    return y.shape[0] * y.shape[1] * heads, y.shape[1], y.shape[2] // heads


def _variants(call: CudaCall) -> Iterator[Variant]:
    _, _, channels = _sizes(call)
    wide = min(_WIDE, power_above(channels))
    item = call.inputs[0].dtype.itemsize
    tiles = [(max(1, warps * _BYTES // (item * wide)), wide, warps) for warps in _WARPS]
    for micros, tile in sorted((_micros(call, tile), tile) for tile in tiles):
        yield Variant(micros, partial(_launches, call, tile))


def _programs(call: CudaCall, tile: tuple[int, int, int]) -> int:
    rows, _, channels = _sizes(call)
    return -(-rows // tile[0]) * -(-channels // tile[1])


def _micros(call: CudaCall, tile: tuple[int, int, int]) -> float:
    machine, warps = gpu(call.target.machine), tile[2]
    _, grids, _ = _parts(call)
    rows, _, channels = _sizes(call)
    places = sum(grid.shape[3] for grid in grids)
    item = call.inputs[0].dtype.itemsize
    pixel = -(-channels * item // _SECTOR) * _SECTOR
    programs = _programs(call, tile)
    resident = max(1, min(32, 48 // warps))
    turns = ceil(programs / (call.target.multiprocessors * resident))
    waiting = turns * (_BEGIN + _LATENCY * places)
    read = _CACHED * cached_micros(call, 4.0 * rows * places * pixel, programs)
    return LAUNCH + max(waiting, hypot(read, moved_bytes(call) / machine.bandwidth))


def _launches(call: CudaCall, tile: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: WeightedSamples = call.op
    images, grids, weights = _parts(call)
    y = call.outputs[0]
    rows, queries, channels = _sizes(call)
    points = tuple(grid.shape[3] for grid in grids)
    stored = (images[0], *grids, weights, y)
    config = CudaWeightedConfig(
        tuple(element_of(view) for view in stored), points, op.heads, op.aligned,
        (all(x.strides[1] == 1 for x in images), y.strides[2] == 1), sum(points) <= _UNROLLED, tile,
    )  # fmt: skip
    values = (rows, queries, channels, *weights.strides, *y.strides)
    integers = dict(zip(_INTEGERS, values, strict=True))
    operands: dict[str, Operand] = {"weights": In(2 * op.levels), "y": Out(0)}
    for i, (x, grid) in enumerate(zip(images, grids, strict=True)):
        known = (*x.shape[2:], *x.strides, *grid.strides)
        integers |= zip(_of_level(i), known, strict=True)
        operands |= {f"x{i}": In(i), f"points{i}": In(op.levels + i)}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _of_level(level: int) -> tuple[str, ...]:
    return tuple(f"{name}{level}" for name in _LEVEL)


def _entry(config: CudaWeightedConfig) -> Entry:
    rows, channels, warps = config.tile
    x, *grids, weights, y = config.elements
    levels = range(len(grids))
    constants: dict[str, int | float | bool | str] = {
        "LEVELS": len(grids), "POINTS": " ".join(map(str, config.points)), "HEADS": config.heads,
        "ALIGNED": config.aligned, "X_UNIT": config.units[0], "Y_UNIT": config.units[1],
        "UNROLLED": config.unrolled, "BM": rows, "BC": channels,
    }  # fmt: skip
    return Entry(
        "sample.weighted_code:weigh_samples",
        (("weights", weights), ("y", y)),
        _INTEGERS,
        constants,
        extra_pointers=(
            *((f"x{i}", x) for i in levels), *((f"points{i}", grids[i]) for i in levels),
        ),
        extra_integers=tuple(name for i in levels for name in _of_level(i)),
        multiples=(
            "channels", "y_n", "y_q", *(f"x_{axis}{i}" for i in levels for axis in "nhw"),
        ),
        warps=warps,
    )  # fmt: skip


SAMPLE_WEIGHTED = CudaKernel(
    "sample.weighted", (WeightedSamples,), CudaWeightedConfig, _supports, _variants, _entry
)
