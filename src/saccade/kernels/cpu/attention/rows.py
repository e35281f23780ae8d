"""Attention by rows: `softmax(scale · q kᵀ + mask) v`, with scores that stay in a core's cache.

A chunk is some rows of one head: their scores go to this thread's scratch, become powers there, and
meet the values, whose sums are divided by those of the powers. Both products are those of
convolutions. Up to a number of keys a row is computed at once; more come part after part, and what
is there of a row is scaled again where a larger score comes (Milakov and Gimelshein 2018). Results
depend on no chunk.

Layouts: q, k, v, the mask and y with any strides, so that splitting and merging heads are views; k
is brought into panels by a phase of its own, v where its rows are far apart or no neighbours are in
them; the mask may begin anew along a batch axis.
Floor: 2·L·S·(D + E) operations for each head at the rate of multiply-adds, and an exponential for
each score.
Refuses: other types than float32 (bfloat16 is faster as products of pairs), batch axes that do not
merge into two, masks whose keys are no neighbours, no keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from itertools import product as every_pair

from saccade.backends.fusions import Attention
from saccade.ir import DType
from saccade.kernels.attention_axes import AttentionAxes, heads_of
from saccade.kernels.base import In, Launch, Operand, Scratch, Variant, View, per_call
from saccade.kernels.cpu.attention.rows_code import emit_rows
from saccade.kernels.cpu.attention.rows_config import AttentionRowsConfig
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec
from saccade.kernels.cpu.conv2d.microkernel import Reduction
from saccade.kernels.cpu.conv2d.register_tiles import (
    Piece,
    Ranked,
    RegisterTile,
    ranked_tiles,
    tiles,
)
from saccade.kernels.cpu.machine import clock, machine
from saccade.kernels.cpu.matmul.computed_panels import PanelPacking, computed_panels
from saccade.kernels.cpu.movement.loop_nest import inner_kind

__all__ = ["ATTENTION_ROWS"]

_SHARE = 4  # part of an L2 cache that a chunk's scores take, beside panels of keys and values
_MOST_TILES = 16  # of keys, in a chunk: a panel is read often enough then
_WHOLE = 1280  # keys up to which a row's scores are computed at once
_PART = 576  # keys of the parts of other rows: whole blocks of most tiles
_CHUNKS = 4  # for each thread, at least
_ALIAS = 1024  # float32 after which lines compete for the same ways of the L1 cache
_LINE = 16  # float32 of a cache line
_TILES = 3  # of either product that tuning may try
_POWER = 1.6  # cycles of a score's exponential and its two sweeps, for vectors of 16 (an estimate)


def _supports(call: CpuCall) -> str | None:
    for view in (*call.inputs, *call.outputs):
        if view.dtype is not DType.F32:
            return f"elements are {view.dtype.value}"
    axes = AttentionAxes.of(call)
    if axes is None:
        return "the batch axes do not merge into two"
    if axes.mask is not None and inner_kind(axes.mask[3]) == "strided":
        return "keys of the mask are no neighbours"
    return None if axes.keys else "no keys"


def _keys_of(call: CpuCall, axes: AttentionAxes) -> Ranked:
    """Tiles of rows and keys."""
    piece = Piece(axes.rows, axes.head)
    return ranked_tiles(
        (("none", (piece,)),), axes.keys, pitch=4 * abs(axes.q[2]), unit=_unit(axes),
        target=call.target, threads=call.threads, groups=axes.matrices,
    )  # fmt: skip


def _values_of(call: CpuCall, axes: AttentionAxes) -> Ranked:
    """Tiles of rows and channels of v."""
    piece = Piece(axes.rows, axes.keys)
    return ranked_tiles(
        (("none", (piece,)),), axes.width, pitch=4 * _LINE, unit=True,
        target=call.target, threads=call.threads, groups=axes.matrices,
    )  # fmt: skip


def _unit(axes: AttentionAxes) -> bool:
    return axes.q[3] == 1 or axes.head == 1


def _variants(call: CpuCall) -> Iterator[Variant]:
    axes = heads_of(call)
    # Parts begin with a block of keys, whatever the tile: bits do not depend on it.
    fitting = (
        tile
        for tile in _keys_of(call, axes)
        if axes.keys <= _WHOLE or _PART % (tile.vectors * call.target.lanes) == 0
    )
    pairs = every_pair(islice(fitting, _TILES), _values_of(call, axes)[:_TILES])
    found = [
        Variant(_micros(call, axes, keys, values), partial(_launch, call, axes, keys, values))
        for keys, values in pairs
    ]
    yield from sorted(found, key=lambda variant: variant.micros)


def _micros(call: CpuCall, axes: AttentionAxes, keys: RegisterTile, values: RegisterTile) -> float:
    """Estimated microseconds: products, powers, and keys that are brought into panels."""
    speed = machine(call.target)
    scores = axes.matrices * axes.rows * axes.keys
    powers = _POWER * 16 / call.target.lanes * scores / call.threads
    nbytes = sum(view.nbytes for view in (*call.inputs, *call.outputs))
    panels = 2 * call.inputs[1].nbytes
    products = keys.cycles + values.cycles
    return (
        2 * speed.step
        + (products + powers) / clock(call.target)
        + speed.traffic(nbytes + panels, call.threads)
    )


@dataclass(frozen=True, slots=True)
class _HeadCut:
    """How rows are cut.

    Attributes:
        part: See `AttentionRowsConfig`.
        pitch: Elements from one row of scores to the next.
        share: Rows of a chunk, whole tiles of them.
        chunks: Of a head.
    """

    part: int
    pitch: int
    share: int
    chunks: int


def _cut(call: CpuCall, axes: AttentionAxes, tile: RegisterTile) -> _HeadCut:
    width = tile.vectors * call.target.lanes
    part = 0 if axes.keys <= _WHOLE else _PART
    pitch = max(1, -(-(part or axes.keys) // width)) * width
    pitch += _LINE if pitch % _ALIAS == 0 else 0
    most = max(1, min(_MOST_TILES, call.target.l2 // _SHARE // (4 * pitch * tile.rows)))
    count = max(1, -(-axes.rows // tile.rows))
    chunks = -(-count // most)
    wanted = -(-_CHUNKS * call.threads // max(1, axes.matrices))
    chunks = min(count, max(chunks, wanted))
    share = -(-count // chunks) * tile.rows
    return _HeadCut(part, pitch, share, -(-axes.rows // share))


def _last(call: CpuCall, axes: AttentionAxes, tile: RegisterTile) -> tuple[int, int]:
    """Vectors and rows of tiles in the last block of keys."""
    lanes, vectors = call.target.lanes, tile.vectors
    left = -(-axes.keys // lanes) - max(0, (axes.keys - 1) // (vectors * lanes)) * vectors
    if left >= vectors:
        return vectors, tile.rows
    # Where no tile is as narrow, panels end in zeros.
    known = (one[:2] for one in tiles(call.target) if one[0] == left and not one[2])
    return next(known, (vectors, tile.rows))


def _launch(
    call: CpuCall, axes: AttentionAxes, keys: RegisterTile, values: RegisterTile
) -> tuple[Launch, ...]:
    op: Attention = call.op
    lanes, spec, cut = call.target.lanes, _epilogue(call), _cut(call, axes, keys)
    k = computed_panels(
        PanelPacking(
            1, DType.F32, (*axes.k[:2], axes.k[3], axes.k[2]), axes.batch, axes.head, axes.keys,
            keys.vectors, lanes, _packed,
        ),
        axes.rows,
    )  # fmt: skip
    v = computed_panels(
        PanelPacking(
            2, DType.F32, axes.v, axes.batch, axes.keys, axes.width, values.vectors, lanes, _packed,
            temp=1, far=axes.width + 1,
        ),
        axes.rows,
    )  # fmt: skip
    pitch = -(-axes.width // lanes) * lanes
    reduction, last = Reduction.of(axes.head), _last(call, axes, keys)
    config = AttentionRowsConfig(
        "attend", keys.vectors, keys.rows, *last, reduction.shape, reduction.unroll,
        values.vectors, values.rows, _unit(axes), k.packed, v.packed, cut.part,
        "" if axes.mask is None else inner_kind(axes.mask[3]), op.scale, op.hidden,
        spec.code(values.vectors),
    )  # fmt: skip
    integers = {
        "q_0": axes.q[0], "q_1": axes.q[1], "q_m": axes.q[2], "q_d": axes.q[3],
        "k_0": k.steps[0], "k_1": k.steps[1], "k_d": k.steps[2],
        "v_0": v.steps[0], "v_1": v.steps[1], "v_s": v.steps[2],
        "inner_batch": axes.batch[1], "rows": axes.rows, "keys": axes.keys, "head": axes.head,
        "width": axes.width, "share": cut.share, "pitch": cut.pitch, "sums_pitch": pitch,
        "row_chunks": cut.chunks, "chunks": axes.matrices * cut.chunks,
    }  # fmt: skip
    operands: dict[str, Operand] = {"q": In(0), "k": k.operand, "v": v.operand}
    if axes.mask is not None:
        operands["mask"] = In(3)
        integers |= {
            "mask_n0": axes.again[0], "mask_n1": axes.again[1],
            "mask_0": axes.mask[0], "mask_1": axes.mask[1], "mask_m": axes.mask[2],
        }  # fmt: skip
    # Tiles in the last block of keys may have more rows than a chunk has left.
    operands |= {
        "scores": Scratch(4 * (cut.share + last[1]) * cut.pitch), "totals": Scratch(4 * cut.share),
    }  # fmt: skip
    if cut.part:
        operands |= {"sums": Scratch(4 * cut.share * pitch), "tops": Scratch(4 * cut.share)}
    operands |= spec.pointers()
    attend = Launch(config, operands, {**integers, **spec.integers()}, axes.matrices * cut.chunks)
    return (*k.phases, *v.phases, attend)


@per_call
def _epilogue(call: CpuCall) -> EpilogueSpec:
    """The results as images [n0, E, n1, L]."""
    op: Attention = call.op
    axes = heads_of(call)
    shape = (axes.batch[0], axes.width, axes.batch[1], axes.rows)
    by_0, by_1, by_row, by_column = axes.y
    view = View(call.outputs[0].dtype, shape, (by_0, by_column, by_1, by_row))
    return EpilogueSpec(op.epilogue, None, shape, (), None, view, 1, call.target.lanes)


def _packed(vectors: int, together: str, pairs: bool, stored: str) -> AttentionRowsConfig:
    del pairs, stored  # float32 alone
    return AttentionRowsConfig("pack", vectors, shape=together)


ATTENTION_ROWS = CpuKernel(
    name="attention.rows",
    ops=(Attention,),
    config=AttentionRowsConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_rows,
)
