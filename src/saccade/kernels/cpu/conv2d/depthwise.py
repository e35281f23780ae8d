"""Depthwise convolution on the CPU.

`y[n,p,q,c] = Σ_r,s x[n, p·stride + r·dilation - pad, …, c] · w[r,s,c]`

Vectors over channels of channels-last images with any pitch; several output pixels of a row share
the columns that they load. Rows of taps outside the image are skipped, columns outside are left
out when the code is written (`row_groups`). Chunks are (image, band of rows, block of channels); a
chunk takes one vector of channels after the other, so that its weights and the rows under the
window stay in the L1 cache. Sums of rows are taken along where they are wanted. Refused: more
than one filter for a channel; prologues; row-major images; DepthToSpace; windows that leave the
image for more than a few dozen columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int
from saccade.backends.cpu.fusions import RowSums
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Packed, Packing, Variant, per_call
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.depthwise_code import (
    DepthwiseRows,
    FinishRow,
    RowCode,
    any_groups,
    groups_of,
    row_micros,
)
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.row_bands import RowBands, band_integers, split_bands
from saccade.kernels.cpu.conv2d.row_groups import RowGroups, Side
from saccade.kernels.cpu.conv2d.row_sums import RowTotals, SumsSpec, conv_call
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DEPTHWISE", "DepthwiseConfig"]


@dataclass(frozen=True, slots=True)
class DepthwiseConfig:
    """What the code depends on.

    Attributes:
        element: Element type of the image.
        taps, stride, dilation: Of the convolution, along the row.
        first, last: Groups of pixels at the borders: pixels, columns left of the image, right of
            it.
        body: Pixels of a group between them, 0 if there is none.
        any_width: Whether all groups are the body's, and find out by themselves where borders are.
        epilogue: `EpilogueSpec.code`.
        sums: `SumsSpec.code`.
    """

    element: str
    taps: int
    stride: int
    dilation: int
    first: Side
    body: int
    last: Side
    any_width: bool
    epilogue: tuple[str, ...]
    sums: str


@dataclass(frozen=True, slots=True)
class _DepthwiseSizes(RowBands):
    """Integer parameters."""

    repeats: Int
    vectors: Int
    block: Int


def _emit(k: KernelBuilder, config: DepthwiseConfig) -> None:
    x, w = k.pointer("x", config.element), k.pointer("w")
    epilogue, totals = Epilogue(k, config.epilogue), RowTotals(k, config.sums)
    s = k.sizes(_DepthwiseSizes)
    epilogue.declare_integers()
    totals.declare_integers()
    groups = RowGroups.of(config.first, config.body, config.last, config.any_width)
    code = RowCode(k, groups, config.taps, config.stride, config.dilation, s)
    with s.chunks(k, (s.vectors + s.block - 1) // s.block) as band:
        vector = band.part * s.block
        with k.range(vector, k.minimum_int(vector + s.block, s.vectors)) as v:
            place = epilogue.place(v)
            corner = x + (s.x_n * band.image + v * k.lanes - s.x_w * s.left)
            weights = w + v * (s.taps * (config.taps * k.lanes))
            with k.range(band.low, s.end(k, band)) as p:
                h, taps = s.window(k, p)
                rows = DepthwiseRows(
                    corner + s.x_h * h, s.x_h * s.dilation, s.x_w, weights, k.int(k.lanes),
                    taps, place.mask,
                )  # fmt: skip
                total = totals.begin()
                code.emit(rows, s.repeats, FinishRow(epilogue, place, band.image, p, total))
                totals.end(total, band.image, p, place)


# Planning


def _supports(call: CpuCall) -> str | None:
    sums, call = SumsSpec(call), conv_call(call)
    if not isinstance(call.op, Conv2d):
        return "another convolution's sums"
    op, (x, w) = call.op, call.inputs[:2]
    if op.groups != x.shape[1] or w.shape[0] != op.groups or w.shape[1] != 1:
        return "not one filter for each channel"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if not call.constant[1]:
        return "weights are not known ahead"
    if x.dtype not in FLOATS or w.dtype not in FLOATS:
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if not x.channels_last:
        return "x is not channels-last"
    if w.shape[3] > 15:
        return "more than 15 taps along a row"
    spec = _epilogue(call)
    if spec.kind not in ("plain", "interleave"):
        return "the result is not channels-last"
    if _groups(call, spec) is None:
        return "too many windows leave the image"
    return spec.refuse() or sums.refuse()


@per_call
def _epilogue(call: CpuCall) -> EpilogueSpec:
    # Channels are counted through all groups: a vector holds one channel of each of several.
    return replace(conv_epilogue(call), groups=1)


def _groups(call: CpuCall, spec: EpilogueSpec) -> RowGroups | None:
    x, w = call.inputs[:2]
    return groups_of(call.op, spec.shape[3], x.shape[3], w.shape[3], call.target)


def _config(call: CpuCall, spec: EpilogueSpec, sums: SumsSpec, cut: RowGroups) -> DepthwiseConfig:
    op, (x, w) = call.op, call.inputs[:2]
    return DepthwiseConfig(
        x.dtype.value,
        w.shape[3],
        op.stride[1],
        op.dilation[1],
        *cut.code(),
        spec.code(),
        sums.code,
    )


def _any_groups(call: CpuCall, spec: EpilogueSpec) -> RowGroups:
    return any_groups(spec.shape[3], call.inputs[1].shape[3], call.target)


def _variants(call: CpuCall) -> Iterator[Variant]:
    """Code for rows as they are cut, then code for rows of any length."""
    conv = conv_call(call)
    spec = _epilogue(conv)
    cut = _groups(conv, spec)
    assert cut is not None
    yield Variant(_micros(conv, spec, cut), partial(_launch, call, cut))
    free = _any_groups(conv, spec)
    yield Variant(_micros(conv, spec, free), partial(_launch, call, free))


def _generic_configs(call: CpuCall) -> tuple[DepthwiseConfig, ...]:
    sums, conv = SumsSpec(call), conv_call(call)
    spec = _epilogue(conv)
    return (_config(conv, spec, sums, _any_groups(conv, spec)),)


def _launch(call: CpuCall, cut: RowGroups) -> tuple[Launch, ...]:
    sums, call = SumsSpec(call), conv_call(call)
    spec, op, (x, w) = _epilogue(call), call.op, call.inputs[:2]
    band, block = split_bands(spec.shape[2], spec.vectors, call.threads)
    lanes = call.target.lanes
    size = 4 * w.shape[2] * w.shape[3] * spec.vectors * lanes
    weights = Packed(Packing("pack_depthwise", (lanes,), (1,), size))
    n, _, rows, _ = spec.shape
    bands = band_integers(op, x, w.shape[2], spec.shape, band)
    integers = {
        **bands,
        "repeats": cut.repeats,
        "vectors": spec.vectors,
        "block": block,
        **spec.integers(),
        **sums.integers(),
    }
    chunks = n * -(-rows // band) * -(-spec.vectors // block)
    operands = {"x": In(0), "w": weights, **spec.pointers(), **sums.pointers()}
    return (Launch(_config(call, spec, sums, cut), operands, integers, chunks),)


def _micros(call: CpuCall, spec: EpilogueSpec, cut: RowGroups) -> float:
    (x, w), speed = call.inputs[:2], machine(call.target)
    n, _, rows, columns = spec.shape
    row = row_micros(cut, columns, w.shape[2:], spec.expr, call.target)
    moved = float(x.nbytes + 2 * call.outputs[0].nbytes)
    bandwidth = speed.bandwidth if moved > call.target.l3 else speed.cache_bandwidth * call.threads
    return speed.step + max(n * rows * spec.vectors * row / call.threads, moved / bandwidth)


CONV2D_DEPTHWISE = CpuKernel(
    "conv2d.depthwise", (Conv2d, RowSums), DepthwiseConfig, _supports, _variants, _emit,
    generic_configs=_generic_configs,
)  # fmt: skip
