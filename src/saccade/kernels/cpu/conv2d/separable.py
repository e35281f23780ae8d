"""A depthwise convolution and the 1x1 convolution of its result in one pass.

`z[n,p,q,c] = f(Σ_r,s x[n, p·stride + r·dilation - pad, …, c] · u[c,r,s])`,
`y[n,p,q,k] = g(Σ_c z[n,p,q,c] · w[k,c])`

Chunks are ranges of pixels of the result, counted through all images. A chunk computes the rows of
z that its pixels lie in into the thread's scratch, one vector of channels after the other, and then
the products over its pixels; where chunks share a row, each computes it. All channels of a pixel
are in one chunk: nothing else is computed twice, and the weights are read once for every chunk.
z is kept in bfloat16 where the model stores it so and the target has products of pairs.
Refused: feature maps that are not channels-last, more than one filter for a channel, prologues,
weights that are not constant, windows that leave the feature map for more than a few dozen columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from saccade.backends.cpu.fusions import SeparableConv2d
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Packed, Packing, Scratch, Variant, View, per_call
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.depthwise_code import any_groups, groups_of, row_micros
from saccade.kernels.cpu.conv2d.direct_launch import EFFICIENCY, beside
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, epilogue_of, static_sums
from saccade.kernels.cpu.conv2d.microkernel import Reduction, steps_of
from saccade.kernels.cpu.conv2d.register_tiles import Piece, RegisterTile, ranked_tiles
from saccade.kernels.cpu.conv2d.row_bands import window_integers
from saccade.kernels.cpu.conv2d.row_groups import RowGroups
from saccade.kernels.cpu.conv2d.separable_code import SeparableConfig, emit_separable
from saccade.kernels.cpu.machine import clock, machine, pairs_pay

__all__ = ["CONV2D_SEPARABLE"]

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)  # chunks of a thread
_TILES = 8  # worth a thought
_CLAIM = 0.1  # microseconds that a chunk costs beyond its rows and tiles (an estimate)
_AHEAD = 8  # planes past the last one that a core's prefetcher reaches
_FARTHEST = 64 << 10  # bytes that it goes at most


@dataclass(frozen=True, slots=True)
class _SeparableParts:
    """What a call consists of.

    Attributes:
        inner: Epilogue of the depthwise convolution, whose result is planes in scratch.
        outer: Epilogue of the 1x1 convolution.
        cut: How rows of windows are cut; None where too many leave the feature map.
        free: How code that serves every width cuts them.
        pairs: Whether products are summed in pairs of bfloat16.
    """

    inner: EpilogueSpec
    outer: EpilogueSpec
    cut: RowGroups | None
    free: RowGroups
    pairs: bool

    def lines(self, share: int) -> int:
        """Rows that a chunk of so many pixels computes at most."""
        n, _, rows, columns = self.inner.shape
        return min(n * rows, -(-share // columns) + (share % columns > 0))


@per_call
def _parts(call: CpuCall) -> _SeparableParts:
    op, (x, taps, weights), lanes = call.op, call.inputs[:3], call.target.lanes
    pairs = pairs_pay(call.target) and op.between is DType.BF16
    between = static_sums(op.depthwise, x.shape, taps.shape)
    _, _, rows, columns = between
    strides = (rows * columns * lanes, 1, columns * lanes, lanes)
    planes = View(DType.BF16 if pairs else DType.F32, between, strides)
    first, end = 3 + op.n_depthwise, len(call.inputs)
    inner = epilogue_of(call, op.depthwise, between, range(3, first), planes)
    sums = static_sums(op.pointwise, between, weights.shape)
    outer = epilogue_of(call, op.pointwise, sums, range(first, end), call.outputs[0])
    cut = groups_of(op.depthwise, columns, x.shape[3], taps.shape[3], call.target)
    free = any_groups(columns, taps.shape[3], call.target)
    return _SeparableParts(inner, outer, cut, free, pairs)


def _supports(call: CpuCall) -> str | None:
    op: SeparableConv2d = call.op
    x, taps, weights = call.inputs[:3]
    if not all(call.constant[1:3]):
        return "the weights are not constant"
    if any(view.dtype not in FLOATS for view in (x, taps, weights)):
        return "elements are neither float32 nor bfloat16"
    if not x.channels_last:
        return "x is not channels-last"
    if taps.shape[:2] != (x.shape[1], 1) or taps.shape[3] > 15:
        return "not one filter for each channel, or more than 15 taps along a row"
    if op.depthwise.prologue != IDENTITY or op.pointwise.prologue != IDENTITY:
        return "takes no prologue"
    if op.depthwise.store is not None:
        return "the depthwise convolution has a store map"
    parts = _parts(call)
    if parts.cut is None:
        return "too many windows leave the image"
    return parts.inner.refuse() or parts.outer.refuse()


# Planning


class _SeparableSchedule(NamedTuple):
    """Microseconds, pixels of a chunk, the tile, how rows are cut."""

    micros: float
    share: int
    tile: RegisterTile
    cut: RowGroups


def _variants(call: CpuCall) -> Iterator[Variant]:
    """One for each share of the pixels and each tile, the fastest first.

    Beside each tile's fastest, one whose code serves every width.
    """
    parts = _parts(call)
    assert parts.cut is not None
    known = sorted(_timed(call, parts.cut), key=itemgetter(0))
    yield _variant(call, known[0])
    free: dict[RegisterTile, _SeparableSchedule] = {}
    for schedule in sorted(_timed(call, parts.free), key=itemgetter(0)):
        free.setdefault(schedule.tile, schedule)
    for schedule in sorted((*known[1:], *free.values()), key=itemgetter(0)):
        yield _variant(call, schedule)


def _variant(call: CpuCall, schedule: _SeparableSchedule) -> Variant:
    tile, cut = schedule.tile, schedule.cut
    code = (tile.vectors, tile.rows, tile.half, cut.any_width)
    configs = partial(_configs, call, tile, cut)
    return Variant(schedule.micros, partial(_launch, call, schedule), None, code, configs)


def _generic_configs(call: CpuCall) -> tuple[SeparableConfig, ...]:
    """For tiles of the size that is the fastest one here."""
    parts = _parts(call)
    assert parts.cut is not None
    return _configs(call, min(_timed(call, parts.cut), key=itemgetter(0)).tile, parts.free)


def _shares(call: CpuCall) -> list[int]:
    """Pixels of a chunk, whole rows or an even part; planes fill a quarter of the L2 cache."""
    inner = _parts(call).inner
    n, _, rows, columns = inner.shape
    counts = [part * call.threads for part in _PARTS]
    whole = {-(-n * rows // count) * columns for count in counts}
    even = {-(-n * rows * columns // count) for count in counts}
    shares = sorted(max(1, share) for share in whole | even)
    most = call.target.l2 // 4 // (inner.vectors * call.target.lanes * inner.out.dtype.itemsize)
    return [share for share in shares if share <= most] or shares[:1]


def _timed(call: CpuCall, cut: RowGroups) -> Iterator[_SeparableSchedule]:
    """Estimated microseconds with each share and tile."""
    parts, speed = _parts(call), machine(call.target)
    inner, outer = parts.inner, parts.outer
    n, depth, rows, columns = inner.shape
    pixels, steps = n * rows * columns, steps_of(depth, parts.pairs)
    row = row_micros(cut, columns, call.inputs[1].shape[2:], inner.expr, call.target)
    reading, writing = (
        speed.traffic(view.nbytes, call.threads) for view in (call.inputs[0], call.outputs[0])
    )
    stream = call.inputs[2].nbytes / speed.bandwidth
    tiles = ranked_tiles(
        (("none", (Piece(pixels, steps),)),), outer.channels, pitch=4 * call.target.lanes,
        unit=True, target=call.target, threads=1, halves=outer.kind == "plain",
    )[:_TILES]  # fmt: skip
    costs = [  # microseconds of the pixels of one tile, all of their channels
        (tile, tile.cycles / (EFFICIENCY * clock(call.target)) / max(1, -(-pixels // tile.rows)))
        for tile in tiles
    ]
    for share in _shares(call):
        chunks = -(-pixels // share)
        turns = -(-chunks // call.threads)  # of the busiest thread
        lines = share / columns if share % columns == 0 else (share - 1) / columns + 1
        windows = turns * (lines * inner.vectors * row + _CLAIM)
        others = speed.step + max(windows, reading) + writing
        for tile, cost in costs:
            products = turns * -(-share // tile.rows) * cost
            yield _SeparableSchedule(
                others + beside(products, stream, call.target), share, tile, cut
            )


def _configs(call: CpuCall, tile: RegisterTile, cut: RowGroups) -> tuple[SeparableConfig]:
    return (_config(call, tile, cut),)


def _config(call: CpuCall, tile: RegisterTile, cut: RowGroups) -> SeparableConfig:
    parts, (x, taps), conv = _parts(call), call.inputs[:2], call.op.depthwise
    inner, outer, pairs = parts.inner, parts.outer, parts.pairs
    reduction = Reduction.of(inner.shape[1] % call.target.lanes, pairs)
    return SeparableConfig(
        x.dtype.value, inner.out.dtype.value, taps.shape[3], conv.stride[1], conv.dilation[1],
        *cut.code(), tile.rows, tile.vectors, tile.half, reduction.unroll, reduction.shape, pairs,
        reduction.odd, outer.flat, inner.code(), outer.code(tile.vectors, tile.half),
    )  # fmt: skip


def _launch(call: CpuCall, schedule: _SeparableSchedule) -> tuple[Launch, ...]:
    parts, (x, taps), conv = _parts(call), call.inputs[:2], call.op.depthwise
    inner, outer, (_, share, tile, cut) = parts.inner, parts.outer, schedule
    config = _config(call, tile, cut)
    lanes, (n, depth, rows, columns) = call.target.lanes, inner.shape
    plane = (parts.lines(share) * columns + tile.rows) * lanes  # a tile may read past its end
    blocks = -(-outer.channels // tile.width(lanes))
    windows = window_integers(conv, x, taps.shape[2], inner.shape)
    depthwise, pointwise = _weights(call, parts, tile.width(lanes))
    operands = {
        "x": In(0),
        "depthwise": depthwise,
        "pointwise": pointwise,
        "between": _scratch(inner, plane),
        **inner.reads("inner_"),
        **outer.pointers(),
    }
    integers = {
        **windows,
        "repeats": cut.repeats,
        "depth": depth,
        "vectors": inner.vectors,
        "plane": plane,
        "blocks": blocks,
        "share": share,
        **inner.integers(prefix="inner_"),
        **outer.integers(outer.flat),
    }
    return (Launch(config, operands, integers, -(-n * rows * columns // share)),)


def _weights(call: CpuCall, parts: _SeparableParts, width: int) -> tuple[Packed, Packed]:
    """Of both convolutions; those of the second for tiles of so many channels."""
    _, _, rows, columns = call.inputs[1].shape
    inner, outer, lanes = parts.inner, parts.outer, call.target.lanes
    size = 4 * rows * columns * inner.vectors * lanes
    first = Packing("pack_depthwise", (lanes,), (1,), size)
    size = 4 * steps_of(inner.shape[1], parts.pairs) * width * -(-outer.channels // width)
    second = Packing("pack_conv_weights", (1, outer.order, width, parts.pairs), (2,), size)
    return Packed(first), Packed(second)


def _scratch(inner: EpilogueSpec, plane: int) -> Scratch:
    """The planes, and a gap.

    The core's prefetcher follows the steps from plane to plane past the last one. Without a gap it
    takes away lines that the next thread is about to write (measured: a tenth of the time).
    """
    size = inner.out.dtype.itemsize * plane
    return Scratch(size * inner.vectors + min(size * _AHEAD, _FARTHEST))


def _aliases(call: CpuCall) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: every element is read before it is written."""
    outer = _parts(call).outer
    if outer.kind not in ("plain", "strided"):
        return ()
    return tuple((i, 0) for i, _, _ in outer.operands if call.inputs[i] == call.outputs[0])


CONV2D_SEPARABLE = CpuKernel(
    "conv2d.separable", (SeparableConv2d,), SeparableConfig, _supports, _variants,
    emit_separable, _aliases, generic_configs=_generic_configs,
)  # fmt: skip
