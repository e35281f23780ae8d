"""Gradients of deformable convolution, those that are wanted, never with all columns in memory.

    x               blocks of the image's gradient, each summed by the one chunk that owns it (by
                    several where there are too few: parts, summed in order), then into the image
    offset, mask    sums over each block's channels, then slopes
    weight          parts, each summed by one chunk, then into the weights' order
    bias            sums of the result's gradient

Nothing is summed by two threads at once, and parts depend on sizes alone. Elements and layouts as
in the forward kernel; pairs of bfloat16 too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.deform.channel_blocks import (
    blocks_launch,
    emit_blocks,
    emit_images,
    images_launch,
    planes_launch,
    planes_pitch,
)
from saccade.kernels.cpu.deform.config import (
    COLUMNS,
    DeformConfig,
    SampleGeometry,
    by_name,
    ceil_to,
    element_of,
    geometry,
    pixel_stride,
    refuse,
    sums_of,
    tile_shape,
)
from saccade.kernels.cpu.deform.gradient_code import ColumnsGradient, WeightGradient, emit_bias
from saccade.kernels.cpu.deform.gradient_offsets import Slopes, slopes_launch
from saccade.kernels.cpu.deform.sample_points import plan_scratch
from saccade.kernels.cpu.deform.weight_panels import (
    emit_panels,
    emit_weight_gradient,
    panels_launch,
    weight_gradient_launch,
)
from saccade.kernels.cpu.machine import machine, pairs_pay
from saccade.locks import cached_property
from saccade.opdefs import DeformConvGradient

__all__ = ["DEFORM_CONV2D_GRADIENT"]

_BLOCK = 64  # channels that one chunk owns: their gradient of a small image stays in the L2
_TILE = 56  # pixels
_WEIGHT_TILE = 256  # pixels: sums are fetched and stored once for so many products
_WEIGHT_COLUMNS = 256  # of a chunk: with so many pixels a quarter of the L2, sums as much again
_SLOPES_TILE = 128  # pixels
_CHUNKS = 64  # what keeps a large team busy: parts, as far as an image has tiles

_X, _GRAD, _PLANES, _PANELS, _FEATURE_MAP, _SLOPES, _WEIGHTS = range(7)  # temporaries


@dataclass(frozen=True)
class _Launches:
    """Makes the phases of a call."""

    call: CpuCall

    @property
    def _wanted(self) -> tuple[str, ...]:
        return tuple(self.call.op.wanted)

    def _out(self, name: str) -> tuple[Out, View]:
        index = self._wanted.index(name)
        return Out(index), self.call.outputs[index]

    @cached_property
    def _views(self) -> tuple[View, View, View, View]:
        grad, x, weight, offset = self.call.inputs[:4]
        return grad, x, weight, offset

    @cached_property
    def _given(self) -> tuple[dict[str, Operand], dict[str, int]]:
        """Offset and mask, and their strides."""
        mask = self.call.inputs[4] if self.call.op.mask else None
        operands: dict[str, Operand] = {"offset": In(3)}
        if mask is not None:
            operands["mask"] = In(4)
        return operands, by_name("offset", self._views[3]) | by_name("mask", mask)

    @cached_property
    def config(self) -> DeformConfig:
        """What phases that sample have in common."""
        grad, x, weight, offset = self._views
        mask = self.call.inputs[4] if self.call.op.mask else None
        kinds = {element_of(v) for v in (grad, x, weight)}
        element = "float64" if "float64" in map(sums_of, (grad, x, weight)) else "float32"
        given = [v for v in (offset, mask) if v is not None]
        return DeformConfig(
            "", wide=element, pairs=pairs_pay(self.call.target) and kinds == {"bfloat16"},
            offset=element_of(offset), mask=element_of(mask) if mask else "",
            strided=any(pixel_stride(v) != 1 for v in given),
        )  # fmt: skip

    def _tiled(self, phase: str, rows: int, depth: int, columns: int) -> DeformConfig:
        """The configuration of a phase with a tile for its product."""
        vectors, most = tile_shape(
            self.call, self.config.wide, rows=rows, depth=depth, columns=columns
        )  # fmt: skip
        return replace(self.config, phase=phase, vectors=vectors, rows=most)

    def _geometry(self, tile: int, panel: int) -> SampleGeometry:
        grad, x, weight, _ = self._views
        most = max(_BLOCK, self.call.target.lanes)
        return geometry(self.call, x, weight, grad, most=most, tile=tile, panel=panel)

    @property
    def _size(self) -> int:
        return BYTES[self.config.wide]

    @property
    def _narrow(self) -> tuple[str, int]:
        """Elements of products' operands, and their bytes."""
        return ("bfloat16", 2) if self.config.pairs else (self.config.wide, self._size)

    def all(self) -> tuple[Launch, ...]:
        """The phases, in order."""
        # The gradient of x alone does not read x: it spreads that of the columns.
        wanted = set(self._wanted)
        columns = bool(wanted & {"x", "offset", "mask"})
        phases: list[Launch] = []
        if wanted & {"weight", "offset", "mask"}:
            phases.append(self._blocks())
        if wanted & {"weight", "bias"}:
            phases.append(self._planes())
        if columns:
            phases += self._columns()
        if "weight" in wanted:
            phases += self._weight()
        if "bias" in wanted:
            phases.append(self._bias())
        return tuple(phases)

    def _blocks(self) -> Launch:
        x, g = self._views[1], self._geometry(1, 1)
        return blocks_launch(
            x, In(1), self._image(_X), self.config.wide, g,
            units=(g.blocks, g.unit, g.per, g.block), pitch=g.pitch, extra=1,
            wide=self.config.wide,
        )  # fmt: skip

    def _image(self, index: int, parts: int = 1) -> Temp:
        """Blocks of an image."""
        g = self._geometry(1, 1)
        return Temp(index, self._size * parts * g.images * g.blocks * (g.area + 1) * g.pitch)

    @cached_property
    def _plane(self) -> int:
        # Products read whole groups of columns, of the last plane too.
        return planes_pitch(self._geometry(1, 1).pixels, max(COLUMNS, self.call.target.lanes))

    @cached_property
    def _planes_temp(self) -> Temp:
        grad = self._views[0]
        return Temp(_PLANES, self._narrow[1] * grad.shape[0] * grad.shape[1] * self._plane)

    def _planes(self) -> Launch:
        return planes_launch(
            self._views[0], In(0), self._planes_temp, self._narrow[0], self._geometry(1, 1),
            pitch=self._plane, wide=self.config.wide,
        )  # fmt: skip

    def _columns(self) -> list[Launch]:
        """The phases behind the gradients of x, offset and mask."""
        grad, _, weight, _ = self._views
        target, size = self.call.target, self._size
        element, narrow = self._narrow
        slopes, spreads = bool({"offset", "mask"} & set(self._wanted)), "x" in self._wanted
        makes = ("slopes",) * slopes + ("x",) * spreads
        g = self._geometry(1, 1)
        steps = ceil_to(g.outputs, max(COLUMNS, target.lanes))
        config = replace(self._tiled("columns", g.pixels, steps, g.block), wanted=makes)
        g, width = (
            # Whole strips of the product's tile: rows of a part of one would be computed in vain.
            self._geometry(_TILE // config.rows * config.rows, 1),
            config.vectors * target.lanes,
        )
        rows = Temp(_GRAD, narrow * g.images * g.groups * g.pixels * steps)
        first = blocks_launch(
            grad, In(0), rows, element, g, units=(g.groups, g.outputs, 1, g.outputs),
            pitch=steps, extra=0, wide=config.wide,
        )  # fmt: skip
        panels = -(-g.pitch // width)
        packed = replace(
            config, phase="panels", source=element_of(weight), target=element, form="channels",
            offset="", mask="", strided=False, wanted=(),
        )  # fmt: skip
        count = g.blocks * g.taps * panels
        right = Temp(_PANELS, narrow * count * steps * width)
        second = panels_launch(weight, In(2), right, g, packed, capacity=steps, panels=panels)
        # Parts make up for few chunks, but each is an image of its own to be cleared and summed.
        pieces = g.images * g.blocks
        parts = max(1, min(g.tiles, _CHUNKS // max(1, pieces)))
        capacity = ceil_to(g.pixels, target.lanes)
        sums = Temp(_SLOPES, size * pieces * g.taps * capacity * 4)
        operands = {
            "grad": rows,
            "panels": right,
            **({"x": self._image(_X), "sums": sums} if slopes else {}),
            **({"feature_map": self._image(_FEATURE_MAP, parts)} if spreads else {}),
            **self._given[0],
            **plan_scratch(g, config, target.lanes),
            "columns": Scratch(size * g.tile * g.taps * panels * width),
        }
        chunks = pieces * parts
        integers = {
            **g.integers(),
            **self._given[1],
            "grad_steps": steps,
            "groups": g.groups,
            "parts": parts,
            "capacity": capacity,
            "chunks": chunks,
        }
        phases = [first, second, Launch(config, operands, integers, chunks)]
        if spreads:
            result, view = self._out("x")
            feature_map = self._image(_FEATURE_MAP, parts)
            phases.append(
                images_launch(view, feature_map, result, g, parts=parts, wide=config.wide)
            )
        if slopes:
            phases.append(self._slopes(sums, capacity))
        return phases

    def _slopes(self, sums: Temp, capacity: int) -> Launch:
        names = tuple(n for n in ("offset", "mask") if n in self._wanted)
        results = [self._out(name) for name in names]
        views = tuple(view for _, view in results)
        apart = self.config.strided or any(pixel_stride(v) != 1 for v in views)
        # Nothing is multiplied in pairs here: one code serves calls with and without.
        config = replace(self.config, phase="slopes", wanted=names, pairs=False, strided=apart)
        g = self._geometry(_SLOPES_TILE, 1)
        return slopes_launch(
            config, g, self.call.target.lanes, sums=sums,
            results=dict(zip(names, results, strict=True)), given=self._given, capacity=capacity,
        )  # fmt: skip

    def _weight(self) -> list[Launch]:
        grad, lanes = self._views[0], self.call.target.lanes
        pixels = self._geometry(1, 1).pixels
        # Tiles of about equal length: sums are fetched and stored for a short last one, too.
        tile = ceil_to(-(-pixels // -(-pixels // _WEIGHT_TILE)), max(COLUMNS, lanes))
        g = self._geometry(tile, 1)
        sets = -(-g.taps // max(1, _WEIGHT_COLUMNS // g.pitch))
        each = -(-g.taps // sets)
        sets = -(-g.taps // each)
        config = self._tiled("weight", g.outputs, tile, each * g.block)
        capacity = ceil_to(each * g.block, max(config.vectors * lanes, COLUMNS))
        parts = max(1, min(g.images * g.tiles, -(-_CHUNKS // (g.blocks * sets))))
        sums = Temp(_WEIGHTS, self._size * parts * g.blocks * sets * g.outputs * capacity)
        # Vectors of the last tap run past its channels, in pairs twice as far.
        columns = Scratch(self._narrow[1] * (tile * capacity + 2 * lanes))
        operands = {
            "x": self._image(_X),
            "planes": self._planes_temp,
            "sums": sums,
            **self._given[0],
            **plan_scratch(g, config, lanes),
            "columns": columns,
        }
        chunks = parts * g.blocks * sets
        integers = {
            **g.integers(),
            **self._given[1],
            "images": g.images,
            "all_outputs": grad.shape[1],
            "plane": self._plane,
            "parts": parts,
            "capacity": capacity,
            "each": each,
            "sets": sets,
            "chunks": chunks,
        }
        result, view = self._out("weight")
        last = weight_gradient_launch(
            view,
            sums,
            result,
            g,
            capacity=capacity,
            parts=parts,
            taps=(each, sets),
            wide=config.wide,
        )
        return [Launch(config, operands, integers, chunks), last]

    def _bias(self) -> Launch:
        result, view = self._out("bias")
        config = DeformConfig("bias", self._narrow[0], element_of(view), self.config.wide)
        grad = self._views[0]
        integers = {
            "images": grad.shape[0],
            "outputs": grad.shape[1],
            "plane": self._plane,
            "stride": view.strides[0],
        }
        operands: dict[str, Operand] = {"planes": self._planes_temp, "result": result}
        return Launch(config, operands, integers, grad.shape[1])


def _supports(call: CpuCall) -> str | None:
    names = dict(zip(call.op.wanted, call.outputs, strict=True))
    results = tuple(view for name, view in names.items() if name not in ("weight", "bias"))
    # Weights, and the gradients of weights and bias, are no images: any strides will do.
    inputs = tuple(view for i, view in enumerate(call.inputs) if i != 2)
    return refuse(call, (*inputs, *results))


def _launch(call: CpuCall) -> tuple[Launch, ...]:
    return _Launches(call).all()


def _cost(call: CpuCall) -> float:
    grad, x, weight = call.inputs[:3]
    # Two products, of the columns and of the weights.
    flops = 4.0 * grad.size * weight.size / max(1, weight.shape[0])
    nbytes = 4 * x.nbytes + 2 * grad.nbytes + 4 * weight.nbytes
    return machine(call.target).roofline(flops, nbytes, call.threads, 0.7)


def _emit(k: KernelBuilder, config: DeformConfig) -> None:
    if config.phase == "columns":
        ColumnsGradient(k, config).emit()
    elif config.phase == "weight":
        WeightGradient(k, config).emit()
    elif config.phase == "slopes":
        Slopes(k, config).emit()
    else:
        phases = {
            "blocks": emit_blocks, "images": emit_images, "panels": emit_panels,
            "weight_gradient": emit_weight_gradient, "bias": emit_bias,
        }  # fmt: skip
        phases[config.phase](k, config)


DEFORM_CONV2D_GRADIENT = CpuKernel(
    "deform.gradient", (DeformConvGradient,), DeformConfig, _supports,
    single_variant(_launch, _cost), _emit,
)  # fmt: skip
