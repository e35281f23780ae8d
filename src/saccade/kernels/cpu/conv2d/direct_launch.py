"""The parameters of the direct convolution's code, for windows of any operator that slides them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from saccade.backends.cpu.target import Target
from saccade.ir import DType, Expr
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import (
    In,
    Launch,
    Operand,
    Packed,
    Packing,
    Scratch,
    Variant,
    View,
    image_strides,
)
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.direct_config import (
    Cuts,
    DirectConfig,
    TileSchedule,
    blockings,
    direct_config,
    schedules,
)
from saccade.kernels.cpu.conv2d.direct_regions import (
    REGION_WORDS,
    ConvAxis,
    Span,
    spans,
    tile_count,
)
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec, even_step
from saccade.kernels.cpu.conv2d.microkernel import FEW, Reduction, asks_early, steps_of
from saccade.kernels.cpu.conv2d.register_tiles import Borders, Piece, RegisterTile, ranked_tiles
from saccade.kernels.cpu.machine import clock, machine, ports
from saccade.opdefs._taps import expr_flops

__all__ = ["EFFICIENCY", "SlidingWindows", "beside"]

_MOST_REGIONS = 64  # of pixels that need the same taps; with more, zeros are read
EFFICIENCY = 0.97
"""Share of the peak that full tiles reach: ResNet-50's 1x1 layers 95 to 100% (two Zen 4 cores)."""
# Share of the shorter of products and weights that adds to the longer: as was calibrated for
# Winograd on two Zen 4 cores; of hungry ones by layers of 7x7 and 14x14 on two of Zen 5, where the
# products of a panel's first tile last half as long, and so hide half as much.
_OVERLAP = {False: 0.15, True: 0.5}
# Multiply-adds of a tile beside which its lines may be asked for. Fewer do not cover the requests:
# 16 to 16 channels over 260x260 took 190 µs for 142 (Zen 4, bfloat16).
_COVERED = 512
_FEW_TILES = 16  # of a chunk, beside which the first one's wait for its weights counts


def beside(busy: float, stream: float, target: Target) -> float:
    """Microseconds of products and of reading the weights, most of them at the same time."""
    return max(busy, stream) + _OVERLAP[ports(target).hungry] * min(busy, stream)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that slide over input 0 of a call, each summed with packed weights.

    Attributes:
        depth: Input channels of a group.
        pairs: Whether they are summed in pairs of bfloat16.
        groups: Groups of channels.
        taps: Rows and columns of a window.
        stride: Distance of windows.
        before: Rows above and columns left of the image where the first window starts; may be
            negative.
        dilation: Distance of taps.
        size: How many windows, [rows, columns].
        pack: Packing function of the weights and its first parameters; width and pairs follow.
        step: Distance of the result's pixels.
        first: The result's pixel of the first window.
        prologue: Applied to every loaded element.
        n_prologue: How many operands it has, from input 2 on.
        row_parts: Parts of the rows of taps, summed apart: so many groups of results for each.
        finite: Whether taps outside the image may be products with zero; no tile may decide that
            where weights are not finite.
        widened: Whether a chunk's pixels are copied as float32 first: those of bfloat16, which the
            products of each block of channels would widen anew. As for a prologue, windows of one
            tap that lie on the image, of one group.
    """

    depth: int
    pairs: bool
    groups: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int]
    size: tuple[int, int]
    pack: tuple[str, tuple[int | str | tuple[int, int], ...]]
    step: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)
    prologue: Expr = IDENTITY
    n_prologue: int = 0
    row_parts: int = 1
    finite: bool = True
    widened: bool = False

    @property
    def copied(self) -> bool:
        """Whether products read a copy of the chunk's pixels, in scratch."""
        return self.widened or self.prologue != IDENTITY

    @property
    def length(self) -> int:
        """Steps of one sum: a product of float32 or two of bfloat16, 32 bits of weights a lane."""
        return steps_of(self.depth, self.pairs) * self.taps[0] * self.taps[1]

    def tiles(self, call: CpuCall, spec: EpilogueSpec) -> Sequence[RegisterTile]:
        """Tiles with what they do at the border, the best one first."""
        x = call.inputs[0]
        apart = self.depth if self.copied else x.strides[3] * self.stride[1]
        return ranked_tiles(
            self._borders(call, spec), spec.channels, pitch=self._itemsize(call) * apart,
            unit=self.copied or x.channels_last, target=call.target, threads=call.threads,
            groups=self.groups * self.row_parts, halves=spec.kind == "plain",
        )  # fmt: skip

    def _itemsize(self, call: CpuCall) -> int:
        """Bytes of an element as the products read it, from the input or from the copy."""
        read = DType.F32 if self.copied else call.inputs[0].dtype
        return 2 if self.pairs else read.itemsize

    def _borders(self, call: CpuCall, spec: EpilogueSpec) -> Borders:
        """Ways to keep taps inside the image, with the pixels and products of each part."""
        pixels, n = self._pixels(spec), spec.shape[0]
        if not pixels or self._inside(call):
            return (("none", (Piece(pixels, self.length / self.row_parts),)),)
        rows, columns = self._spans(call)
        taken = sum(count * (high - low) for _, count, low, high in rows)
        reached = taken / max(1, self.size[0] * self.taps[0])
        steps = steps_of(self.depth, self.pairs)
        part = 1 / self.row_parts
        checks = (1.0 if steps <= FEW else 3.0) * self.taps[0] * self.taps[1]
        zeros = Piece(pixels, self.length * reached * part, checks)
        # Few channels leave little to do between the steps from tap to tap.
        moves = 0.25 * self.taps[0] * self.taps[1] if steps <= FEW else 0.0
        if self.finite and len(rows) * len(columns) > _MOST_REGIONS:
            return (("zeros", (zeros,)),)
        regions = tuple(
            Piece(n * r[1] * s[1], steps * (r[3] - r[2]) * (s[3] - s[2]) * part, moves)
            for r in rows
            for s in columns
        )
        alone = (("regions", regions),)
        return (("zeros", (zeros,)), *alone) if self.finite else alone

    def _inside(self, call: CpuCall) -> bool:
        """Whether all windows lie on the image."""
        if max(self.before) > 0:
            return False
        down, along = (
            (count - 1) * step - before + (taps - 1) * apart
            for count, step, before, taps, apart in zip(
                self.size, self.stride, self.before, self.taps, self.dilation, strict=True
            )
        )
        rows, columns = call.inputs[0].shape[2:]
        return down < rows and along < columns

    def _spans(self, call: CpuCall) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """Rows and columns of windows, by the taps that fall on the image."""
        size = call.inputs[0].shape[2:]
        rows, columns = (
            spans(ConvAxis(size[i], self.size[i], self.taps[i], self.stride[i], self.before[i],
                       self.dilation[i]))
            for i in range(2)
        )  # fmt: skip
        return rows, columns

    def _pixels(self, spec: EpilogueSpec) -> int:
        return spec.shape[0] * self.size[0] * self.size[1]

    def _flat(self, call: CpuCall, spec: EpilogueSpec) -> bool:
        """Whether window number i reads pixel i and writes pixel i, evenly apart."""
        x = call.inputs[0]
        same = (self.taps, self.stride, self.before, self.step) == (*[(1, 1)] * 2, (0, 0), (1, 1))
        if not same or x.shape[2:] != self.size:
            return False
        return even_step(x) is not None and spec.flat and not any(self._images(call))

    def _images(self, call: CpuCall) -> tuple[int, ...]:
        """Elements from image to image of each operand of the prologue."""
        if not self.n_prologue:
            return ()
        shape = (call.inputs[0].shape[0], self.depth, 1, 1)
        return tuple(v.broadcast_to(shape).strides[0] for v in self._prologue_views(call))

    def _prologue_views(self, call: CpuCall) -> tuple[View, ...]:
        return call.inputs[2 : 2 + self.n_prologue]

    def schedules(self, call: CpuCall, spec: EpilogueSpec) -> Iterator[TileSchedule]:
        """Tiles and their cuts into chunks, the best first."""
        return schedules(self.tiles(call, spec), lambda tile: self._cuts(call, spec, tile))

    def _cuts(self, call: CpuCall, spec: EpilogueSpec, tile: RegisterTile) -> Cuts:
        width = tile.width(call.target.lanes)
        count = -(-self._pixels(spec) // tile.rows)
        if tile.border == "regions":
            count = tile_count(*self._spans(call), spec.shape[0], tile.rows)
        return blockings(
            count, -(-spec.channels // width),
            panel=4 * self.length * width,
            row=self._itemsize(call) * self.depth * tile.rows * self.taps[0],
            cycles=100 + self.length // self.row_parts * width * tile.rows // call.target.lanes,
            target=call.target,
            threads=1 if spec.groups >= 4 * call.threads else call.threads,
            shared=self._prologue_cycles(call, tile.rows),
        )  # fmt: skip

    def units(self, call: CpuCall, spec: EpilogueSpec) -> int:
        """Tiles of the whole grid, taken as the best ones."""
        best = self.tiles(call, spec)[0]
        blocks = -(-spec.channels // best.width(call.target.lanes))
        return -(-self._pixels(spec) // best.rows) * blocks * spec.groups

    def _prologue_cycles(self, call: CpuCall, rows: int) -> int:
        """Of one tile: every chunk applies the prologue to its pixels anew."""
        if not self.copied:
            return 0
        moves = 2 + self.n_prologue + expr_flops(self.prologue)
        return int(rows * self.depth * moves / call.target.lanes)

    def variants(
        self, call: CpuCall, spec: EpilogueSpec, traffic: float, stream: float
    ) -> Iterator[Variant]:
        """The schedules as variants of a call that is this window alone.

        Args:
            call: The call.
            spec: Its epilogue.
            traffic: Microseconds of reading images and writing results.
            stream: Microseconds of reading the weights, most of them beside the products.
        """
        tiles = self.tiles(call, spec)
        micros, config_of = self._micros(call, tiles), self._config_of(call, spec)
        for schedule in schedules(tiles, lambda tile: self._cuts(call, spec, tile)):
            time = traffic + beside(micros * schedule.slowdown, stream, call.target)
            tile = schedule.tile
            code = (tile.vectors, tile.rows, tile.half, tile.border)
            one = _Alone(self, call, spec, schedule, config_of)
            yield Variant(time, one.launches, None, code, one.configs)

    def cost(self, call: CpuCall, spec: EpilogueSpec) -> float:
        """Estimated microseconds of the best schedule, without traffic of operands and results."""
        return self._micros(call, self.tiles(call, spec))

    def _micros(self, call: CpuCall, tiles: Sequence[RegisterTile]) -> float:
        return machine(call.target).step + tiles[0].cycles / (EFFICIENCY * clock(call.target))

    def _config_of(
        self, call: CpuCall, spec: EpilogueSpec
    ) -> Callable[[RegisterTile], DirectConfig]:
        """What the code of each tile depends on."""
        reduction, x, pairs = Reduction.of(self.depth, self.pairs), call.inputs[0], self.pairs
        element, unit, spread = x.dtype.value, x.channels_last, self.step != (1, 1)
        flat, phase = self._flat(call, spec), "rows" if self.row_parts > 1 else "whole"
        copied, prologue = self.copied, str(self.prologue)
        operands = tuple(view.dtype.value for view in self._prologue_views(call))

        def early(tile: RegisterTile) -> bool:
            panel = 4 * self.length * tile.width(call.target.lanes)
            return asks_early(call.target, panel)

        def config(tile: RegisterTile) -> DirectConfig:
            return direct_config(
                tile.rows, tile.vectors, tile.half, reduction.unroll, reduction.shape, pairs,
                reduction.odd, element, tile.border, unit, spread, flat, phase, copied, prologue,
                operands, spec.code(tile.vectors, tile.half), early(tile),
            )  # fmt: skip

        return config

    def launch(
        self,
        call: CpuCall,
        spec: EpilogueSpec,
        schedule: TileSchedule,
        config: DirectConfig | None = None,
    ) -> Launch:
        """The phase that computes all windows, one of `schedules`; with its config, if known."""
        config = config or self._config_of(call, spec)(schedule.tile)
        tile, cut = schedule.tile, self._cuts(call, spec, schedule.tile)[schedule.place]
        blocks = -(-spec.channels // tile.width(call.target.lanes))
        regions = self._regions(call, spec, tile.rows) if tile.border == "regions" else None
        flat = config.flat
        operands = self._operands(call, tile, blocks, regions)
        if self.copied:
            panel = self._itemsize(call) * cut.tiles * tile.rows * self.depth
            operands["panel"] = Scratch(panel + 64)
        operands |= spec.pointers()
        integers = spec.integers(flat)
        integers |= self._geometry(call, spec, flat)
        integers |= cut.integers(spec.groups, blocks)
        integers["regions"] = regions.nbytes // (8 * REGION_WORDS) if regions else 0
        integers["far"] = self._far(call, tile)
        integers["ahead"] = int(cut.tiles <= _FEW_TILES)
        integers["prologue_n"] = self._images(call)
        chunks = spec.groups * cut.tile_chunks * cut.block_chunks
        return Launch(config, operands, integers, chunks)

    def _operands(
        self, call: CpuCall, tile: RegisterTile, blocks: int, regions: Packing | None
    ) -> dict[str, Operand]:
        """What is read, without what belongs to the epilogue."""
        width = tile.width(call.target.lanes)
        name, parameters = self.pack
        size = 4 * self.length * width * blocks * self.groups
        weights = Packing(name, (*parameters, width, self.pairs), (1,), size)
        found: dict[str, Operand] = {"x": In(0), "w": Packed(weights)}
        if tile.border == "zeros":
            # Elements that step on their own stay on one zero.
            zeros = self.depth if call.inputs[0].channels_last else 1
            found["zeros"] = Packed(Packing("zeros", (zeros,), (), 4 * zeros))
        if regions:
            found["regions"] = Packed(regions)
        for i in range(self.n_prologue):
            found[f"prologue{i}"] = In(2 + i)
        return found

    def _geometry(self, call: CpuCall, spec: EpilogueSpec, flat: bool) -> dict[str, int]:
        """The values of `direct_pixels.Geometry`, without those that depend on the tile."""
        x = call.inputs[0]
        return {
            **image_strides("x", x.strides, "nch"),
            "x_w": (even_step(x) or 0) if flat else x.strides[3],
            "height": x.shape[2],
            "width": x.shape[3],
            "out_height": self.size[0],
            "out_width": self.size[1],
            "depth": self.depth,
            "taps_r": self.taps[0],
            "taps_s": self.taps[1],
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "pad_top": self.before[0],
            "pad_left": self.before[1],
            "dilation_h": self.dilation[0],
            "dilation_w": self.dilation[1],
            "pixels": self._pixels(spec),
            "step_h": self.step[0],
            "step_w": self.step[1],
            "first_h": self.first[0],
            "first_w": self.first[1],
            "row_parts": self.row_parts,
        }

    def _far(self, call: CpuCall, tile: RegisterTile) -> int:
        """Whether to ask early for what tiles touch: images exceed the L2 caches.

        Of two cores, whatever the team. Few products would not cover it.
        """
        covered = self.length * tile.rows * tile.vectors >= _COVERED
        return int(covered and call.inputs[0].nbytes + call.outputs[0].nbytes > 2 * call.target.l2)

    def _regions(self, call: CpuCall, spec: EpilogueSpec, tile: int) -> Packing:
        rows, columns = self._spans(call)
        nbytes = 8 * REGION_WORDS * len(rows) * len(columns)
        return Packing("pack_regions", (rows, columns, spec.shape[0], tile), (), nbytes)


class _Alone:
    """A call that is one window, with a schedule; its config is made when it is needed."""

    __slots__ = ("_call", "_config_of", "_schedule", "_spec", "_window")

    def __init__(
        self,
        window: SlidingWindows,
        call: CpuCall,
        spec: EpilogueSpec,
        schedule: TileSchedule,
        config_of: Callable[[RegisterTile], DirectConfig],
    ) -> None:
        self._window, self._call, self._spec, self._schedule = window, call, spec, schedule
        self._config_of = config_of

    def configs(self) -> tuple[DirectConfig]:
        """The phase's config."""
        return (self._config_of(self._schedule.tile),)

    def launches(self) -> tuple[Launch]:
        """The phase."""
        (config,) = self.configs()
        return (self._window.launch(self._call, self._spec, self._schedule, config),)
