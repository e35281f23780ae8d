"""Deformable convolution: samples a tile of columns into the cache and multiplies it there.

`y[n, o, p] = bias[o] + Σ w[o, c, tap] · mask · x[n, c, where the tap's offset points to]`

Phases: x into blocks of channels with one more pixel of zeros; the weights into panels; then a
chunk for each tile of pixels. For every block of channels it samples the tile's columns into
scratch, where the product with the block's panels finds them, and adds to the tile's sums, also in
scratch. Columns of more than a tile and a block never exist. Where images have few tiles, a
tile's panels are cut into parts, each in a chunk of its own that samples for itself.

Layouts: images are row-major or channels-last or anything else whose pixels are equally far
apart; float32, float64, float16 and bfloat16. Two bfloat16 are multiplied in pairs where the target
can, their samples rounded first; sums are float32, or float64 for float64.
Refuses: other elements, rows of pixels that lie apart.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import In, Launch, Out, Scratch, Temp
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.conv2d.microkernel import in_pairs
from saccade.kernels.cpu.deform.channel_blocks import (
    blocks_launch,
    emit_blocks,
    form_of,
    store_square,
)
from saccade.kernels.cpu.deform.config import (
    DeformConfig,
    SampleGeometry,
    SampleSizes,
    Strides,
    by_name,
    element_of,
    geometry,
    pixel_stride,
    refuse,
    sums_of,
    tile_shape,
)
from saccade.kernels.cpu.deform.sample_points import SamplePlan, plan_scratch
from saccade.kernels.cpu.deform.sampled_columns import ColumnRows, sample_rows
from saccade.kernels.cpu.deform.tile_product import Operands, product
from saccade.kernels.cpu.deform.weight_panels import emit_panels, panels_launch
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import DeformConv

__all__ = ["DEFORM_CONV2D"]

_STEPS = 1152  # elements of a pixel's columns: with a tile of pixels a quarter of the L2
_TILE = 56  # pixels
_CHUNKS = 64  # what keeps a large team busy
_SHORT = 100_000  # flops of a strip, a microsecond of Zen 4; what else it takes is noticed below


class _Forward:
    """Emits the last phase."""

    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        self.x = k.pointer("x", config.wide)
        columns = "bfloat16" if config.pairs else config.wide
        self.panels = k.pointer("panels", columns)
        self.y = k.pointer("y", config.target)
        self.plan = SamplePlan(k, config)
        self.bias = k.pointer("bias", config.bias) if config.bias else None
        self.columns, self.sums = k.scratch("columns", columns), k.scratch("sums", config.wide)
        self.g = k.sizes(SampleSizes)
        self.plan.declare(self.g)
        self.by_y, self.by_bias = k.sizes(Strides, "y_"), k.integer("by_bias")
        self.parts, self.each, self.chunks = k.integers("parts each chunks")
        self.width = config.vectors * k.lanes

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        with k.chunks(self.chunks) as chunk:
            tile = chunk // self.parts
            low = (chunk - tile * self.parts) * self.each
            panels = low, k.minimum_int(low + self.each, g.panels)
            image = tile // g.tiles
            first = (tile - image * g.tiles) * g.tile
            count = k.minimum_int(g.tile, g.pixels - first)
            self.plan.start(first, count)
            with k.range(0, g.blocks) as block:
                self._block(image, block, (first, count), panels)

    def _block(
        self, image: Int, block: Int, pixels: tuple[Int, Int], panels: tuple[Int, Int]
    ) -> None:
        """A block of channels of a tile (first pixel, count) into its sums of some panels."""
        k, g = self.k, self.g
        first, count = pixels
        low, high = panels
        # Blocks go in order: those of an offset group share a plan, those of a group its sums.
        shared, group = block // g.per_offset, block // g.per_group
        with k.when((block - shared * g.per_offset).equals(0)):
            self.plan.fill(image, shared, first, count, (0, g.taps))
        within = block - group * g.per_group
        pitch = self.each * self.width
        with k.when(within.equals(0)), k.range(0, g.tile * pitch, k.lanes) as at:
            self.sums.store(k.zero(k.lanes, self.config.wide), at)
        _, channels = g.channels_of(block)
        # Behind each block's pixels lies the one of zeros.
        feature_map = self.x + (image * g.blocks + block) * (g.height * g.width + 1) * g.pitch
        rows = ColumnRows(self.columns, g.steps, channels, count, 0, g.taps)
        steps = sample_rows(k, self.plan, feature_map, rows)
        step = self.width * (2 if self.config.pairs else 1)
        with k.range(low, high) as panel:
            number = (group * g.panels + panel) * g.per_group + within
            right = self.panels + number * g.steps * self.width
            sums = self.sums + (panel - low) * self.width
            product(k, self.config, Operands(
                self.columns, g.steps, count, right, step, steps, sums, pitch, add=True,
            ))  # fmt: skip
        with k.when(within.equals(g.per_group - 1)):
            left = k.minimum_int(high * self.width, g.outputs) - low * self.width
            output = group * g.outputs + low * self.width
            self._finish(image, pixels, (output, left), pitch)

    def _finish(
        self, image: Int, pixels: tuple[Int, Int], outputs: tuple[Int, Int], pitch: Int
    ) -> None:
        """Add the bias and store a range of pixels (first, count), of outputs."""
        k, by = self.k, self.by_y
        (first, count), (output, outputs_left) = pixels, outputs
        start = self.y + (image * by.image + output * by.channel)
        with k.range(0, count, k.lanes) as pixel, k.range(0, outputs_left, k.lanes) as channel:
            bias = self._bias(output + channel, outputs_left - channel)

            def load(i: int) -> Vec:
                # A tile need not be whole vectors of pixels: there may be no row behind its last.
                row = k.minimum_int(pixel + i, count - 1) * pitch
                value = self.sums.vec(row + channel, None, k.lanes)
                return value if bias is None else value + bias

            store_square(
                k, self.config.form, [load(i) for i in range(k.lanes)], start,
                (by.channel, by.pixel), (first + pixel, channel),
                (count - pixel, outputs_left - channel),
            )  # fmt: skip

    def _bias(self, first: Int, left: Int) -> Vec | None:
        if self.bias is None:
            return None
        k, bias = self.k, self.bias + first * self.by_bias
        value = k.zero(k.lanes, self.config.wide)
        for i in range(k.lanes):
            # Lanes behind the last output repeat it: nothing is read past the bias.
            at = k.minimum_int(k.int(i), left - 1) * self.by_bias
            value = k.insert(value, floats.load_one(k, bias, at, self.config.wide), i)
        return value


def _supports(call: CpuCall) -> str | None:
    masks = call.inputs[-1:] if call.op.mask else ()
    return refuse(call, (call.inputs[0], call.inputs[2], call.outputs[0], *masks))


def _launch(call: CpuCall) -> tuple[Launch, ...]:
    x, weight, offset = call.inputs[:3]
    y, config = call.outputs[0], _config(call)
    g, parts = _geometry(call, config)
    lanes, size = call.target.lanes, BYTES[config.wide]
    narrow = 2 if config.pairs else size
    blocks = Temp(0, size * g.images * g.blocks * (g.area + 1) * g.pitch)
    width = config.vectors * lanes
    panels = Temp(1, narrow * g.groups * g.panels * g.per_group * g.steps * width)
    # What the packer does not depend on is left out, so that more calls share its code.
    packed = replace(
        config, phase="panels", source=element_of(weight), form="outputs", offset="", mask="",
        bias="", strided=False, target="bfloat16" if config.pairs else config.wide,
    )  # fmt: skip
    first = blocks_launch(
        x, In(0), blocks, config.wide, g, units=(g.blocks, g.unit, g.per, g.block),
        pitch=g.pitch, extra=1, wide=config.wide,
    )  # fmt: skip
    second = panels_launch(weight, In(1), panels, g, packed, capacity=g.steps, panels=g.panels)
    # The mask comes last, with a bias before it or none.
    mask = {"mask": In(len(call.inputs) - 1)} if call.op.mask else {}
    bias = {"bias": In(3)} if call.op.bias else {}
    each = -(-g.panels // parts)
    # Behind the columns is space for the last tap's vector, which may run past its channels.
    operands = {
        "x": blocks,
        "panels": panels,
        "y": Out(0),
        "offset": In(2),
        **mask,
        **plan_scratch(g, config, lanes),
        **bias,
        "columns": Scratch(narrow * (g.tile * g.steps + lanes)),
        "sums": Scratch(size * g.tile * each * width),
    }
    chunks = g.images * g.tiles * parts
    integers = {
        **g.integers(),
        **by_name("offset", offset),
        **by_name("mask", call.inputs[-1] if call.op.mask else None),
        **by_name("y", y),
        "by_bias": call.inputs[3].strides[0] if call.op.bias else 0,
        "parts": parts,
        "each": each,
        "chunks": chunks,
    }
    return first, second, Launch(config, operands, integers, chunks)


def _config(call: CpuCall) -> DeformConfig:
    x, weight, offset = call.inputs[:3]
    mask = call.inputs[-1] if call.op.mask else None
    pairs = in_pairs(call)
    element = "float64" if "float64" in (sums_of(x), sums_of(weight)) else "float32"
    y, taps = call.outputs[0], weight.shape[2] * weight.shape[3]
    vectors, rows = tile_shape(
        call, element, rows=y.shape[2] * y.shape[3], depth=min(_STEPS, weight.shape[1] * taps),
        columns=weight.shape[0] // call.op.groups,
    )  # fmt: skip
    apart = any(pixel_stride(v) != 1 for v in (offset, mask) if v is not None)
    return DeformConfig(
        "forward", "", element_of(call.outputs[0]), element, pairs, form_of(call.outputs[0]),
        vectors, rows, element_of(offset), element_of(mask) if mask else "",
        element_of(call.inputs[3]) if call.op.bias else "", apart,
    )  # fmt: skip


def _geometry(call: CpuCall, config: DeformConfig) -> tuple[SampleGeometry, int]:
    """Sizes, and how many parts the panels of a tile are cut into."""
    x, weight, y = *call.inputs[:2], call.outputs[0]
    taps, lanes = weight.shape[2] * weight.shape[3], call.target.lanes
    most = max(lanes, min(512, _STEPS // taps // lanes * lanes))
    width = config.vectors * lanes
    panels = -(-(weight.shape[0] // call.op.groups) // width)
    strips = -(-y.shape[2] * y.shape[3] // config.rows) * x.shape[0]
    flops = 2 * config.rows * y.shape[1] * weight.shape[1] * taps
    # At least a vector of pixels, or fewer whose products take so long that the rest is not
    # noticed.
    least = min(-(-lanes // config.rows), -(-_SHORT // flops))
    many, parts = _cut(strips, (least, _TILE // config.rows), panels)
    g = geometry(call, x, weight, y, most=most, tile=many * config.rows, panel=width)
    return g, parts


def _cut(strips: int, limits: tuple[int, int], panels: int) -> tuple[int, int]:
    """Strips of a tile, and parts that its panels are cut into, so that there are chunks enough.

    Parts cost the samples again, and tiles of less than a vector of pixels all of its places and a
    whole square of the result: a few percent, unless products are short.

    Args:
        strips: What all images have of as many pixels as a product's tile has rows.
        limits: Strips of a tile: at least, at most.
        panels: Of a group's weights.
    """
    least, most = limits
    many = max(least, min(most, strips // _CHUNKS))
    parts = max(1, min(panels, _CHUNKS // max(1, -(-strips // many))))
    # As many parts as come of equal shares rounded up: none is empty.
    return many, -(-panels // -(-panels // parts))


def _emit(k: KernelBuilder, config: DeformConfig) -> None:
    if config.phase == "blocks":
        emit_blocks(k, config)
    elif config.phase == "panels":
        emit_panels(k, config)
    else:
        _Forward(k, config).emit()


def _cost(call: CpuCall) -> float:
    x, weight, y = *call.inputs[:2], call.outputs[0]
    taps = weight.shape[2] * weight.shape[3]
    flops = 2.0 * y.size * weight.shape[1] * taps
    # x and the weights are copied before they are used.
    nbytes = 2 * x.nbytes + y.nbytes + 2 * weight.nbytes
    return machine(call.target).roofline(flops, nbytes, call.threads, 0.8)


DEFORM_CONV2D = CpuKernel(
    "deform.forward", (DeformConv,), DeformConfig, _supports, single_variant(_launch, _cost), _emit
)
