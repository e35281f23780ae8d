"""The code of native packers: rows side by side, transposed in registers or element by element.

A chunk is a panel. Of a few channels at a time all lanes are gathered into a tile,
`tile[channel · taps + tap][lane]`, and written from there in the order of the result. The bits are
those of the NumPy functions, whatever the instruction set: bfloat16 is rounded in integers, and
spectra are plain products and sums in this order,

    v_is = (D_i0 · g_0s + D_i1 · g_1s) + D_i2 · g_2s
    u_ij = ((A_j0 · v_i0 + A_j1 · v_i1) + A_j2 · v_i2) / divisor

About 0.1 ms for a MB of the result on a core that has both in its caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.base import Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.movement.register_shuffles import transpose
from saccade.kernels.cpu.pack.panels_config import PackConfig

__all__ = ["PACK"]


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call: it is run by who packs constants."""
    del call
    return "packs constants only"


def variants(call: CpuCall) -> tuple[Variant, ...]:
    """None."""
    del call
    return ()


@dataclass(frozen=True, slots=True)
class _PanelSizes:
    """`Panels.integers`."""

    panels: Int
    width: Int
    pitch: Int
    channels: Int
    taps: Int
    block: Int
    by_channel: Int
    to_panel: Int
    to_square: Int


@dataclass(frozen=True, slots=True)
class _PanelTile:
    """Channels `first, first + 1, …` of a panel, and where its lanes begin in the source."""

    rows: Ptr
    lanes: Ptr
    first: Int
    count: Int
    size: _PanelSizes

    def at(self, channel: Int, tap: Int | int) -> Int:
        """Of a row of lanes."""
        return (channel * self.size.taps + tap) * self.size.pitch


@dataclass(frozen=True, slots=True)
class _Transform:
    """Matrices of spectra: D, then A, each [rows, 3]; then the divisor."""

    matrices: Ptr
    down: Int
    along: Int

    @property
    def divisor(self) -> Vec:
        """What all sums are divided by."""
        return self.matrices.splat((self.down + self.along) * 3)


def emit(k: KernelBuilder, config: PackConfig) -> None:
    """Buffers and integers are `PackConfig.pointers` and `PackConfig.integers`."""
    # Instructions for bfloat16 take denormals for zero, which NumPy does not.
    k.target = replace(k.target, bf16=False)
    source, lanes = k.pointer("source", config.source), k.pointer("lanes", "int64")
    beside = k.pointer("beside", "float32" if config.gather == "rows" else "int64")
    matrices = k.pointer("matrices") if config.result == "spectra" else None
    target = k.pointer("target", "bfloat16" if config.result == "pairs" else "float32")
    rows = k.scratch("tile")
    size = k.sizes(_PanelSizes)
    transform = _Transform(matrices, *k.integers("down along")) if matrices is not None else None
    declared = k.parameters.pointers, tuple(name for name, _ in k.parameters.integers)
    assert declared == (config.pointers, config.integers), declared
    with k.chunks(size.panels) as panel, k.range(0, size.channels, size.block) as first:
        count = k.minimum_int(size.channels - first, size.block)
        tile = _PanelTile(rows, lanes + panel * size.pitch, first, count, size)
        if config.gather == "rows":
            _gather_rows(k, tile, source, beside)
        elif config.gather == "columns":
            _gather_columns(k, tile, source, beside.load_int(panel))
        else:
            _gather_elements(k, tile, source, beside)
        to = target + panel * size.to_panel
        if transform is not None:
            _write_spectra(k, tile, to, transform)
        elif config.result == "pairs":
            _write_pairs(k, tile, to)
        else:
            _write(k, tile, to)


def _gather_rows(k: KernelBuilder, tile: _PanelTile, source: Ptr, zeros: Ptr) -> None:
    """Squares of vectors along the rows, transposed."""
    size = tile.size
    length, skipped = tile.count * size.taps, tile.first * size.taps
    with k.range(0, size.width, k.lanes) as lane:
        rows = []
        for i in range(k.lanes):
            start = tile.lanes.load_int(lane + i)
            # A lane without a source reads zeros of the same length, so that nothing branches.
            rows.append(k.pick(start >= 0, source + (start + skipped), zeros))
        with k.range(0, length, k.lanes) as at:
            inside = k.first(length - at)
            vectors = [row.vec(at, inside) for row in rows]
            # Whole squares, past the last row too: a tile has space for them.
            for i, vector in enumerate(transpose(k, vectors)):
                tile.rows.store(vector, (at + i) * size.pitch + lane)


def _gather_columns(k: KernelBuilder, tile: _PanelTile, source: Ptr, lanes: Int) -> None:
    """Vectors along the lanes, zeros past the last one."""
    size = tile.size
    begin = source + tile.lanes.load_int()
    with k.range(0, tile.count) as channel:
        row = begin + (tile.first + channel) * size.by_channel
        with k.range(0, size.width, k.lanes) as lane:
            value = row.vec(lane, k.first(lanes - lane))
            tile.rows.store(value, channel * size.pitch + lane)


def _gather_elements(k: KernelBuilder, tile: _PanelTile, source: Ptr, places: Ptr) -> None:
    """Element by element, from anywhere."""
    size = tile.size
    with k.range(0, tile.count) as channel, k.range(0, size.taps) as tap:
        step = (tile.first + channel) * size.by_channel + places.load_int(tap)
        row = tile.rows + tile.at(channel, tap)
        with k.range(0, size.pitch) as lane:
            start = tile.lanes.load_int(lane)
            inside = start >= 0
            row.store(_or_zero(k, inside, source.load(inside.select(start + step, 0))), lane)


def _or_zero(k: KernelBuilder, condition: Bool, value: Vec) -> Vec:
    return Vec(k.b, k.b.select(condition.value, value.value, value.like(0.0).value))


@contextmanager
def _vectors(
    k: KernelBuilder, tile: _PanelTile, to: Ptr, channel: Int
) -> Iterator[tuple[Int, Ptr]]:
    """All vectors of lanes of a channel: the first lane, and its place in a square."""
    with k.range(0, tile.size.width, k.lanes) as lane:
        yield lane, to + ((tile.first + channel) * tile.size.width + lane)


def _write(k: KernelBuilder, tile: _PanelTile, to: Ptr) -> None:
    size = tile.size
    with k.range(0, size.taps) as tap, k.range(0, tile.count) as channel:
        square = to + tap * size.to_square
        with _vectors(k, tile, square, channel) as (lane, place):
            value = tile.rows.vec(tile.at(channel, tap) + lane)
            place.store(value, 0, k.first(size.width - lane))


def _write_pairs(k: KernelBuilder, tile: _PanelTile, to: Ptr) -> None:
    """Two channels at a time; of an odd number the last goes with zeros."""
    size = tile.size
    with k.range(0, size.taps) as tap, k.range(0, tile.count, 2) as channel:
        row = to + (tap * size.to_square + (tile.first + channel) * size.width)
        second = channel + 1 < tile.count
        other = second.select(channel + 1, channel)
        with k.range(0, size.width, k.lanes) as lane:
            even = tile.rows.vec(tile.at(channel, tap) + lane)
            odd = tile.rows.vec(tile.at(other, tap) + lane)
            # No mask: pairs come in widths of whole vectors only.
            row.store_halves(even, _or_zero(k, second, odd), lane * 2)


def _write_spectra(k: KernelBuilder, tile: _PanelTile, to: Ptr, transform: _Transform) -> None:
    matrices, divisor = transform.matrices, transform.divisor
    with k.range(0, tile.count) as channel, _vectors(k, tile, to, channel) as (lane, place):
        taps = [tile.rows.vec(tile.at(channel, tap) + lane) for tap in range(9)]
        inside = k.first(tile.size.width - lane)
        with k.range(0, transform.down) as i:
            # Taps lie row by row: every third one is of the same column.
            sums = [_row(matrices, i, taps[s::3]) for s in range(3)]
            with k.range(0, transform.along) as j:
                value = _row(matrices, transform.down + j, sums) / divisor
                place.store(value, (i * transform.along + j) * tile.size.to_square, inside)


def _row(matrices: Ptr, row: Int, values: Sequence[Vec]) -> Vec:
    """A row of three entries times a column, each product and each sum rounded."""
    a, b, c = (matrices.splat(row * 3 + i) * value for i, value in enumerate(values))
    return (a + b) + c


PACK = CpuKernel("pack.panels", (), PackConfig, supports, variants, emit)
