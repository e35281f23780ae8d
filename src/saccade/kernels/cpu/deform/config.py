"""Sizes and code variants that the phases of deformable convolution share.

Channels are cut into blocks, none of which crosses a border between groups or offset groups: a
unit is the largest run of channels that does not, and has `per` blocks. Images become
[image, block, pixel, channel of the block]; one more pixel of zeros stands for all that lies
outside.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import gcd

from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.base import View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.register_tiles import Piece, ranked_tiles
from saccade.kernels.cpu.floats import FLOATS, wide

__all__ = [
    "COLUMNS",
    "DeformConfig",
    "SampleGeometry",
    "SampleSizes",
    "Strides",
    "by_name",
    "ceil_to",
    "element_of",
    "geometry",
    "linear",
    "pixel_stride",
    "refuse",
    "strides_of",
    "sums_of",
    "tile_shape",
]

COLUMNS = 8
"""Multiple of the elements of a pixel's columns: whole trips of the products' loop."""


@dataclass(frozen=True, slots=True)
class DeformConfig:
    """What the code of a phase depends on.

    Attributes:
        phase: Which one.
        source, target: Elements of what it reads and writes.
        wide: Elements of sums.
        pairs: Whether products sum pairs of bfloat16.
        form: How the source lies (the target where pixels are stored).
        vectors, rows: Tile of a product.
        offset, mask, bias: Their elements, "" where there is none.
        strided: Whether neighbouring offsets lie apart.
        wanted: Gradients that the phase makes.
    """

    phase: str
    source: str = ""
    target: str = ""
    wide: str = "float32"
    pairs: bool = False
    form: str = ""
    vectors: int = 1
    rows: int = 1
    offset: str = ""
    mask: str = ""
    bias: str = ""
    strided: bool = False
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleSizes:
    """Integer parameters of the phases that sample.

    Attributes:
        pixels, across: Of the result: all, and of a row.
        height, width: Of the image.
        taps, tap_columns: All, and of a row.
        stride_y, stride_x, top, left, dilation_y, dilation_x: As the operator has them.
        unit, per, block, pitch: Channels of a unit; its blocks; their channels; the same in whole
            vectors.
        blocks, per_offset, per_group: Blocks of an image, of an offset group, of a group.
        outputs: Channels of a group of the result.
        panels: Panels of a group's weights.
        steps: Space for a pixel's columns of one block.
        tile, tiles: Pixels of a tile, and tiles of an image.
    """

    pixels: Int
    across: Int
    height: Int
    width: Int
    taps: Int
    tap_columns: Int
    stride_y: Int
    stride_x: Int
    top: Int
    left: Int
    dilation_y: Int
    dilation_x: Int
    unit: Int
    per: Int
    block: Int
    pitch: Int
    blocks: Int
    per_offset: Int
    per_group: Int
    outputs: Int
    panels: Int
    steps: Int
    tile: Int
    tiles: Int

    def channels_of(self, block: Int) -> tuple[Int, Int]:
        """The first channel of a block, and how many it has."""
        unit = block // self.per
        before = (block - unit * self.per) * self.block
        left = self.unit - before
        return unit * self.unit + before, (left < self.block).select(left, self.block)


@dataclass(frozen=True, slots=True)
class Strides:
    """Integer parameters of an operand: from image to image, channel to channel, pixel to pixel."""

    image: Int
    channel: Int
    pixel: Int


@dataclass(frozen=True, slots=True)
class SampleGeometry:
    """The numbers behind `SampleSizes` (fields of the same names), and what else launches need.

    Attributes:
        images: How many there are.
        area: Pixels of an image of x.
        channels: Of x.
        groups: Groups of channels with weights of their own.
        offset_groups: The same with offsets.
    """

    images: int
    area: int
    channels: int
    groups: int
    offset_groups: int
    pixels: int
    across: int
    height: int
    width: int
    taps: int
    tap_columns: int
    stride_y: int
    stride_x: int
    top: int
    left: int
    dilation_y: int
    dilation_x: int
    unit: int
    per: int
    block: int
    pitch: int
    blocks: int
    per_offset: int
    per_group: int
    outputs: int
    panels: int
    steps: int
    tile: int
    tiles: int

    def integers(self) -> dict[str, int]:
        """The integer parameters of `SampleSizes`."""
        return {field.name: getattr(self, field.name) for field in fields(SampleSizes)}


def geometry(
    call: CpuCall, x: View, weight: View, result: View, *, most: int, tile: int, panel: int
) -> SampleGeometry:
    """The geometry of a call.

    Args:
        call: The call.
        x: The image.
        weight: The weights.
        result: The result or its gradient.
        most: Channels of a block, at most.
        tile: Pixels of a tile.
        panel: Channels of the result that a panel of weights has.
    """
    op, lanes = call.op, call.target.lanes
    n, channels, height, width = x.shape
    down, across = result.shape[2:]
    rows, columns = weight.shape[2:]
    taps, outputs = rows * columns, weight.shape[0] // op.groups
    # Borders of groups of either kind lie at multiples of this.
    unit = gcd(channels // op.groups, channels // op.offset_groups)
    per = -(-unit // most)
    # A unit in several blocks has whole vectors in all but the last, which may make do with fewer.
    block = unit if per == 1 else ceil_to(-(-unit // per), lanes)
    per = -(-unit // block)
    blocks = channels // unit * per
    pitch = ceil_to(block, lanes)
    return SampleGeometry(
        images=n, area=height * width, channels=channels, groups=op.groups,
        offset_groups=op.offset_groups, pixels=down * across, across=across, height=height,
        width=width, taps=taps, tap_columns=columns, stride_y=op.stride[0],
        stride_x=op.stride[1], top=op.padding[0], left=op.padding[1],
        dilation_y=op.dilation[0], dilation_x=op.dilation[1], unit=unit, per=per, block=block,
        pitch=pitch, blocks=blocks, per_offset=blocks // op.offset_groups,
        per_group=blocks // op.groups, outputs=outputs, panels=-(-outputs // panel),
        steps=ceil_to(taps * block, COLUMNS), tile=tile, tiles=-(-down * across // tile),
    )  # fmt: skip


def ceil_to(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


def tile_shape(
    call: CpuCall, element: str, *, rows: int, depth: int, columns: int
) -> tuple[int, int]:
    """Vectors and rows of a product's tile: the one that convolutions would take.

    Args:
        call: The call.
        element: In which sums are kept.
        rows: Of the product.
        depth: Elements of a sum.
        columns: Of the product.
    """
    if element == "float64":  # a vector of them takes two registers
        return 1, (call.target.registers - 4) // 2
    borders = (("none", (Piece(max(1, rows), depth),)),)
    best = ranked_tiles(
        borders, columns, pitch=4 * depth, unit=True, target=call.target, threads=1
    )[0]  # fmt: skip
    return best.vectors, best.rows


def linear(view: View) -> bool:
    """Whether pixels of an image are equally far apart from row to row."""
    (_, _, height, width), (_, _, down, along) = view.shape, view.strides
    # The stride along an axis of one element may be anything.
    return height <= 1 or width <= 1 or down == width * along


def pixel_stride(view: View) -> int:
    """Elements from pixel to pixel."""
    return view.strides[3] if view.shape[3] > 1 else view.strides[2]


def strides_of(view: View) -> tuple[int, int, int]:
    """From image to image, channel to channel, pixel to pixel."""
    return view.strides[0], view.strides[1], pixel_stride(view)


def by_name(name: str, view: View | None) -> dict[str, int]:
    """The integer parameters of `Strides` with the prefix `name_`; 0 where there is no view."""
    strides = (0, 0, 0) if view is None else strides_of(view)
    axes = (f"{name}_{axis}" for axis in ("image", "channel", "pixel"))
    return dict(zip(axes, strides, strict=True))


def refuse(call: CpuCall, images: tuple[View, ...]) -> str | None:
    """Why a call cannot be done."""
    for view in (*call.inputs, *call.outputs):
        if view.dtype not in FLOATS:
            return f"elements are {view.dtype.value}"
    if not all(map(linear, images)):
        return "rows of pixels lie apart"
    # Samples number pixels in int32, and the one past the last has a number, too.
    if 0 in call.inputs[0].shape[1:2] or max(v.shape[2] * v.shape[3] for v in images) >= 2**31:
        return "images without channels or of 2^31 pixels"
    return None


def element_of(view: View) -> str:
    """Name of the elements."""
    return str(view.dtype.value)


def sums_of(view: View) -> str:
    """Elements in which sums over a view's are kept."""
    return wide(element_of(view))
