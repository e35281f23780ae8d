"""Convolutions whose taps are as far apart as the image is large: transforms of short lattices.

With taps `d` apart and as much padding, every d-th row and column of an image is one of its own
(a lattice) between zeros. Where lattices have at most three pixels along each axis, an axis takes
1, 3 or 4 products (`lattice_points`) where its valid taps are 1, 4 or 7. Images of at most 3x3
pixels are their own lattices.

Three phases over shared buffers: lattices to V, [frequency][block of channels][lattice][channel];
for every frequency V times the transformed weights into M, [panel][frequency][lattice][filter]; M
to pixels. Layouts as for Winograd's algorithm: x and the result channels-last with any pitch, the
result also through DepthToSpace or a channel interleave; float32 or bfloat16 in any mix, transforms
and products in float32. Refused: everything but 3x3 with stride 1, one group and as much padding as
dilation; longer lattices; prologues; row-major images; `exact`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import cast

from saccade.kernels.base import In, Launch, Packed, Packing, Scratch, Temp, Variant, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.lattice_code import LatticeConfig, emit_lattices
from saccade.kernels.cpu.conv2d.lattice_forms import LONG, frequency_rows, lengths, long_of
from saccade.kernels.cpu.conv2d.lattice_points import LONGEST, POINTS, points_of
from saccade.kernels.cpu.conv2d.winograd import refuse_transforms
from saccade.kernels.cpu.conv2d.winograd_gemm import even_heights, panel_vectors, phased_heights
from saccade.kernels.cpu.machine import clock, machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_LATTICE", "launch_as"]

_SET_STEP = 16  # elements that keep frequencies off each other's L1 sets
_AHEAD = 64  # vectors of weights: what comes from memory takes half a microsecond (Zen 4)
_BLOCKS = 8  # of tiles, for each thread
# Measured on a Zen 4 server core, in multiply-adds: products, a vector of the panel from L2, an
# element of V from L3 (broadcast). Fewer rows take as long: they wait for the panel.
_MULTIPLY, _VECTOR, _ELEMENT, _LEAST_ROWS = 1.02, 1.0, 0.09, 2.5
# Of both transforms for one vector of one pixel, most of it waiting for V and M (the same core).
_INPUT_CYCLES, _OUTPUT_CYCLES = 36.0, 48.0
# Share of the shorter of arithmetic and streaming that adds to the longer: Winograd's (Zen 4).
_OVERLAP = 0.2


def _supports(call: CpuCall) -> str | None:
    op, x = call.op, call.inputs[0]
    reason = refuse_transforms(call)
    if reason is not None:
        return reason
    if op.stride != (1, 1):
        return "only stride 1"
    if op.padding != op.dilation * 2:
        return "the padding is not the distance of the taps"
    if any(size > LONGEST * d for size, d in zip(x.shape[2:], op.dilation, strict=True)):
        return "lattices are longer than three pixels"
    return None


@dataclass(frozen=True, slots=True)
class _Problem:
    """Sizes of one call, in elements.

    Attributes:
        axes: `lengths` down and along.
        rows: Rows of every frequency.
        tiles: Lattices of all images.
        channels: Of the image.
        nv: Vectors of filters in a panel.
        panels, vectors: Panels, and vectors of filters.
        lanes: Width of a vector.
    """

    axes: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
    rows: tuple[int, ...]
    tiles: int
    channels: int
    nv: int
    panels: int
    vectors: int
    lanes: int

    @property
    def v_step(self) -> int:
        return self.tiles * self.lanes * -(-self.channels // self.lanes) + _SET_STEP

    @property
    def m_step(self) -> int:
        return self.tiles * self.lanes * self.nv + _SET_STEP

    @property
    def squares(self) -> int:
        return len(self.rows)

    @property
    def weights(self) -> int:
        return self.squares * self.panels * self.nv * self.lanes * self.channels

    @property
    def bases(self) -> tuple[int, int]:
        """Lengths of the longest lattices."""
        down, along = (axis[0][0] for axis in self.axes)
        return down, along

    @property
    def long(self) -> tuple[int, int]:
        """Of the lattices that the code calls long."""
        down, along = map(long_of, self.axes)
        return down, along


def _problem(call: CpuCall, spec: EpilogueSpec, nv: int) -> _Problem:
    images, channels, *size = call.inputs[0].shape
    down, along = (lengths(n, d) for n, d in zip(size, call.op.dilation, strict=True))
    tiles = images
    for axis in (down, along):
        tiles *= sum(count for _, count in axis)
    rows = frequency_rows(images, (down, along))
    panels = -(-spec.vectors // nv)
    return _Problem(
        (down, along), rows, tiles, channels, nv, panels, spec.vectors, call.target.lanes
    )


def _micros(call: CpuCall, p: _Problem) -> float:
    """Estimated microseconds."""
    speed = machine(call.target)
    most = phased_heights(p.nv, call.target)[0]
    taken = sum(
        pieces * (max(rows, _LEAST_ROWS) * (_MULTIPLY + _ELEMENT / p.nv) + _VECTOR)
        for many in p.rows
        for rows, pieces in even_heights(many, most)
    )
    flops = 2.0 * taken * p.channels * p.panels * p.nv * p.lanes
    images, channels, height, width = call.inputs[0].shape
    vectors = -(-channels // p.lanes)
    pixel = vectors * _INPUT_CYCLES + p.vectors * _OUTPUT_CYCLES
    busy = flops / speed.flops + images * height * width * pixel / clock(call.target)
    stream = 4.0 * p.weights / speed.bandwidth
    shorter, longer = sorted((busy / call.threads, stream))
    shared = 4.0 * p.squares * (p.v_step + p.m_step * p.panels)
    handed = 2 * speed.traffic(shared, call.threads)
    return 3 * speed.step + longer + _OVERLAP * shorter + handed


def _variants(call: CpuCall) -> Iterator[Variant]:
    spec = conv_epilogue(call)
    found = []
    for nv in range(1, panel_vectors(spec.vectors, call.target) + 1):
        problem = _problem(call, spec, nv)
        found.append(Variant(_micros(call, problem), partial(launch_as, call, spec, nv)))
    yield from sorted(found, key=lambda variant: variant.micros)


def _integers(call: CpuCall, p: _Problem, blocks: int) -> dict[str, int]:
    """The values of `lattice_code.Sizes`."""
    x, op = call.inputs[0], call.op
    rows, columns = (dict(axis) for axis in p.axes)
    tall, wide = p.long
    return {
        "blocks": blocks,
        "images": x.shape[0],
        "long_rows": rows.get(tall, 0),
        "short_rows": rows.get(tall - 1, 0),
        "long_columns": columns.get(wide, 0),
        "short_columns": columns.get(wide - 1, 0),
        "row_points": POINTS[p.bases[0]],
        "column_points": POINTS[p.bases[1]],
        "short_row_points": points_of(tall, tall - 1),
        "short_column_points": points_of(wide, wide - 1),
        "row_step": op.dilation[0],
        "column_step": op.dilation[1],
        "channels": p.channels,
        "v_block": p.tiles * p.lanes,
        "v_step": p.v_step,
        "m_step": p.m_step,
        "panels": p.panels,
        "vectors": p.vectors,
        **image_strides("x", x.strides),
    }


def _configs(
    call: CpuCall, spec: EpilogueSpec, nv: int, long: tuple[int, int]
) -> tuple[LatticeConfig, LatticeConfig, LatticeConfig]:
    """Of the phases."""
    return (
        LatticeConfig("input", *long, x=call.inputs[0].dtype.value),
        LatticeConfig("products", heights=phased_heights(nv, call.target), nv=nv, ahead=_AHEAD),
        LatticeConfig("output", *long, nv=nv, epilogue=spec.code()),
    )


def launch_as(call: CpuCall, spec: EpilogueSpec, nv: int) -> tuple[Launch, ...]:
    """The phases of a call with panels of nv vectors."""
    p = _problem(call, spec, nv)
    panel = nv * p.lanes
    u = Packed(Packing("pack_lattice", (p.bases, panel, spec.order), (1,), 4 * p.weights))
    v, m = Temp(0, 4 * p.squares * p.v_step), Temp(1, 4 * p.squares * p.m_step * p.panels)
    stage = Scratch(4 * LONGEST**2 * p.lanes)
    blocks = max(1, min(p.tiles, _BLOCKS * call.threads))
    integers = _integers(call, p, blocks)
    forward, products, output = _configs(call, spec, nv, p.long)
    last = {"m": m, "stage_tile": stage, **spec.pointers()}
    return (
        Launch(forward, {"x": In(0), "v": v}, integers, blocks),
        Launch(products, {"v": v, "u": u, "m": m}, integers, p.squares * p.panels),
        Launch(output, last, {**integers, **spec.integers()}, blocks * p.panels),
    )


def _generic_configs(call: CpuCall) -> tuple[LatticeConfig, ...]:
    """For lattices of every length, in panels of the width that is the fastest one here."""
    spec = conv_epilogue(call)
    nv = cast("LatticeConfig", next(_variants(call)).launches[1].config).nv
    found = [_configs(call, spec, nv, long) for long in product(LONG, LONG)]
    return tuple(dict.fromkeys(config for configs in found for config in configs))


CONV2D_LATTICE = CpuKernel(
    name="conv2d.lattice",
    ops=(Conv2d,),
    config=LatticeConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_lattices,
    effort=lambda config: 2.0 if config.stage == "products" else 1.0,
    generic_configs=_generic_configs,
)
