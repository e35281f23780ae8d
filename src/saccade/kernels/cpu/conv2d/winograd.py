"""Winograd's convolution on the CPU, 3x3 with stride 1 or 2, over channels-last images.

Layouts: x and the result channels-last with any pitch; the result also through DepthToSpace or a
channel interleave. Weights are transformed at load into panels of nv vectors of filters. No halo:
what a patch reads outside the image is zero. With taps `d` apart, every d-th row and column is
an image of its own, one of d² (a lattice) that do not touch each other. The image, operands and
the result are float32 or bfloat16 in any mix; transforms and products are float32. Refused:
everything but 3x3 with one group and stride 1 or 2; stride 2 with taps apart; lattices smaller than
3x3; prologues; row-major images; weights that are not finite; `exact`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import (
    In,
    Launch,
    Operand,
    Packed,
    Packing,
    Scratch,
    Temp,
    Variant,
    image_strides,
    interned,
)
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.pack_winograd import packed_bytes
from saccade.kernels.cpu.conv2d.winograd_code import WinogradConfig, emit_winograd
from saccade.kernels.cpu.conv2d.winograd_gemm import phased_heights, usual_heights
from saccade.kernels.cpu.conv2d.winograd_points import TAPS, shorter
from saccade.kernels.cpu.conv2d.winograd_schedule import SET_STEP, Problem, Schedule, ranked
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_WINOGRAD", "launch_as", "problem_of", "refuse_transforms"]


_config = interned(WinogradConfig)


def refuse_transforms(call: CpuCall) -> str | None:
    """What no algorithm over transformed 3x3 weights takes."""
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if call.exact:
        return "Winograd rounds more than the direct sum"
    if op.integral:
        return "its transforms would round sums of integers"
    if not op.finite:
        return "weights are not finite, their transforms less so"
    if w.shape[2:] != (3, 3) or op.groups != 1:
        return "only 3x3 with one group"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if not call.constant[1]:
        return "weights are not known ahead"
    if x.dtype not in FLOATS or w.dtype not in FLOATS:
        return "only float32 and bfloat16"
    if not x.channels_last:
        return "x is not channels-last"
    spec = conv_epilogue(call)
    if spec.kind not in ("plain", "subpixel", "interleave"):
        return "the result is not channels-last"
    return spec.refuse()


def _supports(call: CpuCall) -> str | None:
    shape, dilation = conv_epilogue(call).shape, call.op.dilation
    if call.op.stride != (1, 1) and (call.op.stride != (2, 2) or dilation != (1, 1)):
        return "only stride 1, or 2 both ways with neighbouring taps"
    if any(d > 1 and size <= 2 * d for size, d in zip(shape[2:], dilation, strict=True)):
        return "taps so far apart leave hardly any neighbours"
    return refuse_transforms(call)


def problem_of(call: CpuCall, spec: EpilogueSpec) -> Problem:
    n, _, rows, columns = spec.shape
    down, along = call.op.dilation
    channels = call.inputs[0].shape[1]
    images, rows, columns = n * down * along, -(-rows // down), -(-columns // along)
    sizes = (call.inputs[0].dtype.itemsize, spec.out.dtype.itemsize)
    vectors, stride = spec.vectors, call.op.stride[0]
    return Problem(
        images, rows, columns, channels, vectors, call.threads, call.target, sizes, stride
    )


@dataclass(frozen=True, slots=True)
class _BufferSizes:
    """Sizes of the buffers of one call, in elements.

    Attributes:
        rows: Tiles that V and M have space for.
        panels: Panels.
        squares: Frequencies.
        v_block: From one vector of channels of V to the next.
        v_step, m_step: From frequency to frequency.
    """

    rows: int
    panels: int
    squares: int
    v_block: int
    v_step: int
    m_step: int


def _layout(problem: Problem, chosen: Schedule) -> _BufferSizes:
    lanes = problem.target.lanes
    counts = chosen.counts(problem)
    rows = sum(counts if chosen.phased else (-(-n // chosen.blocks) for n in counts))
    return _BufferSizes(
        rows,
        -(-problem.vectors // chosen.nv),
        chosen.tile.count**2,
        rows * lanes,
        rows * lanes * -(-problem.channels // lanes) + SET_STEP,
        rows * lanes * chosen.nv + SET_STEP,
    )


def _integers(
    call: CpuCall, problem: Problem, chosen: Schedule, layout: _BufferSizes, blocks: int
) -> dict[str, int]:
    """The values of `winograd_code.Sizes`."""
    x, op, result = call.inputs[0], call.op, conv_epilogue(call).shape[2:]
    m, edges, tile = chosen.m, chosen.edges, chosen.tile
    down, along = (
        size // m if edge else -(-size // m)
        for size, edge in zip((problem.rows, problem.columns), edges, strict=True)
    )
    return {
        "blocks": blocks,
        "parts": chosen.parts,
        "images": problem.images,
        "tile_rows": down,
        "tile_columns": along,
        "edge_rows": edges[0],
        "edge_columns": edges[1],
        "channels": problem.channels,
        "v_block": layout.v_block,
        "v_step": layout.v_step,
        "m_step": layout.m_step,
        "panels": layout.panels,
        "vectors": problem.vectors,
        "height": x.shape[2],
        "width": x.shape[3],
        **image_strides("x", x.strides),
        "top": op.padding[0],
        "left": op.padding[1],
        "rows": result[0],
        "columns": result[1],
        "frequencies": tile.count,
        "points": tile.points,
        "distinct": tile.weights,
        "taps": TAPS[tile.stride],
    }


def _variants(call: CpuCall) -> Iterator[Variant]:
    spec = conv_epilogue(call)
    problem = problem_of(call, spec)
    for chosen in ranked(problem):
        build = partial(launch_as, call, spec, problem, chosen)
        code = (chosen.phased, chosen.nv)
        yield Variant(chosen.micros, build, (chosen.m, chosen.edges), code)


def _far(call: CpuCall) -> bool:
    """Whether an image is larger than the L2 caches, so that patches come from afar.

    Two cores' caches, whatever the team: widths share their code. Of bfloat16 it was not measured.
    """
    x = call.inputs[0]
    return x.dtype is DType.F32 and 4 * math.prod(x.shape) > 2 * call.target.l2


def launch_as(
    call: CpuCall, spec: EpilogueSpec, problem: Problem, chosen: Schedule
) -> tuple[Launch, ...]:
    """The phases of a call under a given schedule."""
    layout = _layout(problem, chosen)
    panel = chosen.nv * problem.target.lanes
    size = packed_bytes(layout.panels, problem.channels, chosen.m, panel, chosen.stride)
    packing = (chosen.m, panel, spec.order, chosen.phased, chosen.stride)
    u = Packed(Packing("pack_winograd", packing, (1,), size))
    code, tail = spec.code(), spec.pointers()
    stage = Scratch(4 * layout.squares * problem.target.lanes)
    v_bytes, m_bytes = 4 * layout.squares * layout.v_step, 4 * layout.squares * layout.m_step
    form = (chosen.m, chosen.stride, shorter(chosen.m, chosen.stride))
    nv, apart = chosen.nv, call.op.dilation
    blocks, x = chosen.blocks, call.inputs[0].dtype.value
    integers = _integers(call, problem, chosen, layout, blocks)
    if not chosen.phased:
        heights = usual_heights(nv, problem.target)
        block = Scratch(v_bytes + m_bytes + stage.nbytes)
        operands = {"x": In(0), "u": u, "block": block, **tail}
        far = _far(call)
        config = _config("fused", *form, apart, heights, nv, chosen.ahead, x, code, far)
        return (Launch(config, operands, {**integers, **spec.integers()}, blocks),)
    v, sums = Temp(0, v_bytes), Temp(1, m_bytes * layout.panels)
    heights = phased_heights(nv, problem.target)
    products = _config("products", 1, 1, (), heights=heights, nv=nv, ahead=chosen.ahead)
    output = _config("output", *form, apart, nv=nv, epilogue=code)
    first: dict[str, Operand] = {"x": In(0), "stage_tile": stage, "v": v}
    last: dict[str, Operand] = {"m": sums, "stage_tile": stage, **tail}
    ends = {**integers, **spec.integers()}
    return (
        Launch(_config("input", *form, apart, x=x), first, integers, blocks),
        Launch(products, {"v": v, "u": u, "m": sums}, integers, layout.squares * chosen.parts),
        Launch(output, last, ends, blocks * layout.panels),
    )


CONV2D_WINOGRAD = CpuKernel(
    name="conv2d.winograd",
    ops=(Conv2d,),
    config=WinogradConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_winograd,
    effort=lambda config: {"fused": 3.0, "products": 2.0}.get(config.stage, 1.0),
)
