"""`WeightedSamples`: a query's pixels and their shares as numbers first, then sums of channels.

A chunk is some queries. For each of them, where all heads look is found in vectors of places and
kept in scratch: a pixel, the shares of the four around the place, which of them are in the image.
Where channels are neighbours in memory a head's are summed in vectors, over all images and places;
else they are walked one by one. Pixels outside are not read: zeros are, from scratch. float32 and
halves, sums in float32.

6380 queries of 8 heads with 32 channels each, which look at 16 random places of 6380 pixels, take
8.1 ms on one core of Zen 4 and 4.7 ms on two (the best of some, beside other work). 4.9 ms on one
core where all look at the same place: the rest is the last-level cache, which most of 418 MB come
from. To ask it for a later head's pixels ahead of time was no faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import clock, machine
from saccade.kernels.cpu.refusals import refuse_other_types, refuse_repeats, refuse_types
from saccade.kernels.cpu.sample.weighted_code import SCRATCH, WeightedSums
from saccade.opdefs.weighted_samples import WeightedSamples

__all__ = ["WEIGHTED", "WeightedConfig"]

_VECTORS = 8  # of channels that are summed side by side, at most
_PLACES = 1024  # of a chunk, at least
# Cycles for a place, for its four pixels' part in a vector of channels, for that in one channel
# alone; and how much of their bytes the last-level cache gives, from 8 to 160 channels of each of
# 8 heads (Zen 4).
_PLACE, _VECTOR, _CHANNEL, _FAR = 14.0, 4.0, 13.0, 0.75


@dataclass(frozen=True)
class WeightedConfig:
    """What the code depends on.

    Attributes:
        elements: Of the images, of their grids, of the weights, of the result.
        points: Places of a head in each image.
        aligned: Of the operator.
        pairs: For each grid, whether a head's places are neighbours, as are their two numbers.
        line: Whether a head's weights are neighbours.
        vectors: Of channels that are summed side by side; 0 where channels are not neighbours in
            images and result.
        whole: How many of them have a channel in every lane, always.
    """

    elements: tuple[str, ...]
    points: tuple[int, ...]
    aligned: bool
    pairs: tuple[bool, ...]
    line: bool
    vectors: int
    whole: int


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    images = call.inputs[: call.op.levels]
    refused = refuse_types((*call.inputs, *call.outputs), {DType.F32, DType.F16, DType.BF16})
    # Pixels are numbered in int32, those a step outside, too.
    if any(_reach(x) >= 2**31 for x in images):
        return "an image of 2^31 elements and more"
    return refused or refuse_other_types(images) or refuse_repeats(call.outputs[0])


def _reach(x: View) -> int:
    return sum(n * max(1, abs(s)) for n, s in zip(x.shape[2:], x.strides[2:], strict=True))


def _each(call: CpuCall) -> int:
    """Channels of a head."""
    return int(call.outputs[0].shape[2] // call.op.heads)


def _in_vectors(call: CpuCall) -> bool:
    images, y = call.inputs[: call.op.levels], call.outputs[0]
    return y.strides[2] == 1 and all(x.strides[1] == 1 for x in images) and _each(call) > 1


def _vectors(call: CpuCall) -> tuple[int, int]:
    """`WeightedConfig.vectors` and `whole`."""
    if not _in_vectors(call):
        return 0, 0
    each, lanes = _each(call), call.target.lanes
    count = -(-each // lanes)
    blocks = -(-count // _VECTORS)
    vectors = -(-count // blocks)
    # The last block has the fewest channels.
    return vectors, max(0, each - (blocks - 1) * vectors * lanes) // lanes


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    op, y, n = call.op, call.outputs[0], call.op.levels
    images, grids, weights = call.inputs[:n], call.inputs[n:-1], call.inputs[-1]
    points = tuple(grid.shape[3] for grid in grids)
    vectors, whole = _vectors(call)
    config = WeightedConfig(
        tuple(view.dtype.value for view in (*call.inputs, y)), points, op.aligned,
        tuple(grid.strides[3:] == (2, 1) for grid in grids), weights.strides[3] == 1,
        vectors, whole,
    )  # fmt: skip
    rows, places = prod(y.shape[:2]), op.heads * sum(points)
    share = max(1, -(-_PLACES // max(1, places)))
    integers: dict[str, int | tuple[int, ...]] = {
        "heads": op.heads, "channels": _each(call), "queries": y.shape[1], "rows": rows,
        "share": share, "capacity": places + call.target.lanes,
    }  # fmt: skip
    for level, (x, grid) in enumerate(zip(images, grids, strict=True)):
        integers |= {
            f"sizes{level}": x.shape[2:], f"x{level}_strides": x.strides,
            f"grid{level}_strides": grid.strides,
        }  # fmt: skip
    integers |= {"weight_strides": weights.strides, "y_strides": y.strides}
    operands: dict[str, Operand] = {
        **{f"x{level}": In(level) for level in range(n)},
        **{f"grid{level}": In(n + level) for level in range(n)},
        "weights": In(2 * n), "y": Out(0),
        **{name: Scratch(4 * count * (places + call.target.lanes)) for name, count in SCRATCH},
        "zeros": Scratch(4 * max(1, vectors) * call.target.lanes),
    }  # fmt: skip
    return (Launch(config, operands, integers, -(-rows // share) if y.size else 0),)


def emit(k: KernelBuilder, config: WeightedConfig) -> None:
    """The code of one configuration."""
    WeightedSums(k, config).emit()


def cost(call: CpuCall) -> float:
    """Microseconds: a place's arithmetic, its pixels' way through vectors or channel by channel."""
    images, places, each = call.inputs[: call.op.levels], call.inputs[-1].size, _each(call)
    vectors = _VECTOR * -(-each // call.target.lanes) if _in_vectors(call) else _CHANNEL * each
    pixels = 4.0 * places * each * images[0].dtype.itemsize
    speeds = machine(call.target)
    busy = places * (_PLACE + vectors) / clock(call.target) + _FAR * pixels / speeds.cache_bandwidth
    nbytes = sum(view.nbytes for view in (*call.inputs, *call.outputs))
    return speeds.step + busy / call.threads + speeds.traffic(nbytes, call.threads)


WEIGHTED = CpuKernel(
    "sample.weighted", (WeightedSamples,), WeightedConfig, supports,
    single_variant(launch, cost), emit,
)  # fmt: skip
