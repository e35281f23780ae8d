"""Convolution of up to four channels in two launches: stems of networks that read images.

Gathering such an image element by element costs an instruction for each product's operand. Here a
first launch writes it as [N, H', W', 4] in the type of the products, with zeros around it, and the
second reads the taps of a row as neighbours, eight bytes and more at once. Floor: the bytes of x,
of the image twice, and of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Temp, Variant
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import (
    PLAIN,
    STORES,
    FusedConfig,
    divided,
    fused_of,
    packed_block,
    stored_vector,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_config import Tile
from saccade.kernels.cuda.conv2d.implicit_gemm_times import Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import (
    POINT,
    WindowConfig,
    excess_of,
    sums_of,
    unfit,
    window_of,
)
from saccade.kernels.cuda.machine import stream_micros
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import Conv2d

__all__ = [
    "CONV2D_ROW_TAPS", "PIXEL", "RowTapsConfig", "image_bytes", "image_of", "row_taps_entry",
    "spread_launch",
]  # fmt: skip

PIXEL = 4
"""Channels of a pixel of the image: eight bytes of float16."""
_SPREAD = (4, 256)  # rows and columns of the image, of a program
_MOST_ELEMENTS = 1 << 31  # of the image: offsets are int32
# Of two that differ in stages alone the first is taken: on one H100 ResNet-50's stem at batch 128
# took 273 µs with four, 297 with two.
_TILES = ((128, 64, 4, 4), (64, 64, 4, 2), (32, 64, 4, 2), (128, 128, 8, 2), (64, 32, 4, 2),
          (32, 32, 4, 2), (256, 64, 8, 4), (256, 32, 8, 2), (256, 16, 8, 2), (128, 64, 4, 2),
          (64, 64, 4, 4), (128, 32, 4, 2), (128, 32, 4, 4), (256, 64, 8, 2),
          (64, 32, 4, 4))  # fmt: skip
"""Rows and columns of a block, warps, stages."""
_MOST_COLUMNS = 256  # terms of a row of taps
# Times over estimates; of large blocks, of which a multiprocessor holds one: stems on one H200.
_MEASURED, _MEASURED_LARGE, _LARGE = 0.75, 1.1, 256 * 64
_SHORT, _MEASURED_SHORT = 16, 1.4  # of rows of so few terms: stems of 3x3 taps on one H100


@dataclass(frozen=True)
class RowTapsConfig:
    """What the code depends on.

    Attributes:
        phase: "spread" or "sum".
        elements: Of x, of the image and the products, of y.
        channels: Of x.
        unit: The axis of x along which neighbours lie side by side, where it is known: w or none.
        window: The window; for "spread" a point with the padding.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Rows, columns and depth of a block, warps, stages.
        vector: What the strides of y are multiples of.
        fused: Epilogue, and where results go.
    """

    phase: str
    elements: tuple[str, str, str]
    channels: int
    unit: str
    window: WindowConfig = POINT
    precision: str = "ieee"
    tile: Tile = (*_SPREAD, 1, 4, 2)
    vector: int = 1
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    channels = call.inputs[0].shape[1]
    if op.groups != 1:
        return f"{op.groups} groups"
    if not 1 <= channels <= PIXEL:
        return f"{channels} input channels"
    if op.prologue != IDENTITY:
        return "a prologue"
    if op.dilation[1] != 1:
        return "taps of a row are apart"
    if not call.constant[1]:
        return "weights are no constant"
    if 4 * call.inputs[1].shape[3] > _MOST_COLUMNS:
        return f"{call.inputs[1].shape[3]} taps in a row"
    down, across = image_of(call)
    if call.inputs[0].shape[0] * down * across * PIXEL >= _MOST_ELEMENTS:
        return "an image of 2^31 elements or more"
    return unfit(call)


def image_of(call: CudaCall) -> tuple[int, int]:
    """Rows and columns that windows reach, zeros around the image among them; an even number."""
    op: Conv2d = call.op
    _, _, p, q = sums_of(call)
    r, s = call.inputs[1].shape[2:]
    across = max(0, q - 1) * op.stride[1] + s
    return max(0, p - 1) * op.stride[0] + (r - 1) * op.dilation[0] + 1, across + across % 2


def _depth(call: CudaCall) -> int:
    """Terms of a row of taps, as a power of two that the matrix units take."""
    taps: int = PIXEL * call.inputs[1].shape[3]
    return max(16, 1 << (taps - 1).bit_length())


def _variants(call: CudaCall) -> Iterator[Variant]:
    n, k, p, q = sums_of(call)
    terms = _depth(call)
    x = call.inputs[0]
    before = stream_micros(call, x.nbytes + image_bytes(call))
    timed = []
    tiles = tuple((bm, bn, terms, warps, stages) for bm, bn, warps, stages in _TILES)
    products = Products(1, k, call.inputs[1].shape[2], terms)
    times = tile_times(call, tiles, products, n * p * q)
    for (micros, _), tile in zip(times, tiles, strict=True):
        measured = _MEASURED_LARGE if tile[0] * tile[1] >= _LARGE else _MEASURED
        measured = max(measured, _MEASURED_SHORT if terms <= _SHORT else 0.0)
        timed.append((measured * (before + micros), tile))
    for micros, tile in sorted(timed, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile), tile[2])


def image_bytes(call: CudaCall) -> int:
    """Bytes of the image in the type of the products."""
    down, across = image_of(call)
    images: int = call.inputs[0].shape[0]
    return images * down * across * PIXEL * product_dtype(call).itemsize


def spread_launch(call: CudaCall) -> Launch:
    """The first launch: x as the image `Temp(0, …)` that the sums read."""
    x, window = call.inputs[0], window_of(call)
    down, across = image_of(call)
    unit = "w" if x.strides[3] == 1 else ""
    around = replace(POINT, padding=window.padding, padded=any(window.padding))
    return Launch(
        RowTapsConfig("spread", _elements(call), x.shape[1], unit, around),
        {"x": In(0), "wide": Temp(0, image_bytes(call))},
        {"n": x.shape[0], "h": x.shape[2], "wd": x.shape[3], "down": down, "across": across,
         "x_n": x.strides[0], "x_c": x.strides[1], "x_h": x.strides[2], "x_w": x.strides[3]},
        -(-x.shape[0] * down // _SPREAD[0])
        * -(-(across - window.padding[1] + _lead(around)) // _SPREAD[1]),
    )  # fmt: skip


def _elements(call: CudaCall) -> tuple[str, str, str]:
    x, y = call.inputs[0], call.outputs[0]
    return element_of(x), ELEMENTS[product_dtype(call)], element_of(y)


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    n, k, p, q = sums_of(call)
    fused, kind = fused_of(call), product_dtype(call)
    down, across = image_of(call)
    columns, by_y = -(-k // 16) * 16, stored_vector(call, k)
    config = RowTapsConfig(
        "sum", _elements(call), call.inputs[0].shape[1], "", window_of(call), dot_precision(call),
        tile, by_y, fused.config,
    )  # fmt: skip
    r = call.inputs[1].shape[2]
    packing = Packing(
        "cuda.row_taps", (kind.value, tile[2], columns, *packed_block(call)), (1,),
        r * tile[2] * columns * kind.itemsize,
    )  # fmt: skip
    integers = {
        "n": n, "down": down, "across": across // 2, "k": (k + excess_of(call)) // by_y,
        "p": p, "q": q, "columns": columns,
        **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {
        "wide": Temp(0, image_bytes(call)),
        "w": Packed(packing),
        "y": Out(0),
        **fused.operands,
    }
    programs = -(-n * p * q // tile[0]) * -(-k // tile[1])
    return spread_launch(call), Launch(config, operands, integers, programs)


def _lead(window: WindowConfig) -> int:
    """Columns before the image's first that "spread" begins with: whole vectors of them."""
    return -(-window.padding[1] // PIXEL) * PIXEL


def row_taps_entry(config: RowTapsConfig) -> Entry:
    """What is compiled."""
    x, kind, y = config.elements
    if config.phase == "spread":
        return Entry(
            "conv2d.row_taps_code:spread",
            (("x", x), ("wide", kind)),
            ("n", "h", "wd", "down", "across", "x_n", "x_c", "x_h", "x_w"),
            {
                "C": config.channels, "ROWS": config.tile[0], "COLUMNS": config.tile[1],
                "X_UNIT": config.unit, "PAD_T": config.window.padding[0],
                "PAD_L": config.window.padding[1], "LEAD": _lead(config.window),
            },
            multiples=("wd", "x_n", "x_c", "x_h"),
        )  # fmt: skip
    bm, bn, bk, warps, stages = config.tile
    # Taps of a row are neighbours here, and the image has its zeros around it.
    left_out = ("DILATION_W", "PADDED", "PAD_T", "PAD_L")
    window = {n: v for n, v in config.window.constants().items() if n not in left_out}
    return Entry(
        "conv2d.row_taps_code:convolve",
        (("wide", kind), ("w", kind), ("y", y)),
        ("n", "down", "across", "k", "p", "q", "columns", *STORES),
        {
            **window, "PRECISION": config.precision, "BM": bm, "BN": bn, "BK": bk,
            "Y_VEC": config.vector, **config.fused.constants(),
        },
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("columns", *config.fused.integers),
        warps,
        stages,
    )  # fmt: skip


CONV2D_ROW_TAPS = CudaKernel(
    "conv2d.row_taps", (Conv2d,), RowTapsConfig, _supports, _variants, row_taps_entry
)
