"""What the gradients of operators over boxes plan alike: their phases, and what these leave.

Nothing is added to memory: the programs of the last phase own pixels, and add box after box. What
the phases before it find out takes (P · H + Q · W) numbers a box, lists at most `_LISTS` bytes, and
a copy of the gradient where its channels are no neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, element_of
from saccade.kernels.cuda.roi.box_operands import (
    channels_strides,
    exact_kind,
    joined,
    power_of_two,
    reach,
    unit,
)
from saccade.kernels.cuda.roi.box_phases import Constant, RoiPhaseConfig, Scratchpad
from saccade.opdefs import PsRoiGradient, RoiAlignGradient, RoiPoolGradient

__all__ = [
    "PART", "Square", "Tile", "axes_launch", "box_operands", "copied", "issue_micros",
    "last_launch", "listed_launch", "pitch_of", "ranked", "refuse_rooms", "wide",
]  # fmt: skip

Tile = tuple[int, int, int, int]
"""Rows, columns and channels of a program, warps."""
PART = 4
"""A box reaches this part of an image's rows, of its columns (the boxes say, too late)."""
_LISTS = 32 << 20  # bytes (by eye)
_LINES = 64  # of a block of the tables


@dataclass(frozen=True, slots=True)
class Square:
    """Pixels that have a list of the boxes that reach them.

    Attributes:
        sides: Rows and columns.
        down, along: How many there are of an image.
    """

    sides: tuple[int, int]
    down: int
    along: int

    @classmethod
    def of(cls, call: CudaCall, tile: tuple[int, int]) -> Square:
        """Two times two tiles, or more where lists of so many would be long."""
        count, (_, h, w) = call.inputs[-1].shape[0], call.op.images
        sides = (2 * tile[0], 2 * tile[1])
        while True:
            down, along = -(-h // sides[0]), -(-w // sides[1])
            if 4 * down * along * count <= _LISTS or down * along <= 1:
                return cls(sides, down, along)
            sides = (2 * sides[0], 2 * sides[1])


def ranked(
    call: CudaCall,
    tiles: Iterable[Tile],
    micros: Callable[[CudaCall, Tile], float],
    launches: Callable[[CudaCall, Tile], tuple[Launch, ...]],
) -> Iterator[Variant]:
    """A variant for each tile, the one that should be fastest first."""
    for estimate, tile in sorted((micros(call, tile), tile) for tile in tiles):
        yield Variant(estimate, partial(launches, call, tile))


def issue_micros(call: CudaCall, instructions: float, share: float) -> float:
    """Microseconds of instructions of warps, at a share of the most that the GPU issues."""
    rate: float = share * gpu(call.target.machine).flops / (2 * 32)  # per microsecond
    return instructions / rate


def pitch_of(size: int) -> int:
    """Numbers from one bin's weights along an axis to the next one's."""
    return -(-size // 16) * 16


def box_operands(call: CudaCall) -> tuple[dict[str, Operand], dict[str, int], dict[str, str], bool]:
    """Operands, integers and elements of the boxes, and whether images are apart."""
    first = 2 if isinstance(call.op, RoiPoolGradient) else 1
    split = len(call.inputs) > first + 1
    boxes, images = call.inputs[first], call.inputs[-1]
    integers = {
        "n": call.op.images[0], "count": boxes.shape[0],
        "b_row": boxes.strides[0], "b_step": boxes.strides[1],
        "i_row": images.strides[0],
    }  # fmt: skip
    operands: dict[str, Operand] = {"boxes": In(first), "images": In(len(call.inputs) - 1)}
    # What is not asked for is not written, wherever its pointer goes.
    operands["bad"] = Out(len(call.outputs) - 1)
    return operands, integers, {"boxes": element_of(boxes), "images": element_of(images)}, split


def axes_launch(call: CudaCall, temps: Scratchpad, bands: tuple[int, int]) -> Launch:
    """The weights of rows and columns in bins, and ranges of them.

    Args:
        call: Of RoiAlignGradient or PsRoiGradient.
        temps: Where they go.
        bands: Rows and columns that are told together which bins reach them.
    """
    op: RoiAlignGradient | PsRoiGradient = call.op
    (p, q), (_, h, w), count = op.bins, op.images, call.inputs[0].shape[0]
    double = call.inputs[0].dtype is DType.F64
    kind, width = ("fp64", 8) if double else ("fp32", 4)
    operands, integers, elements, split = box_operands(call)
    high, across = pitch_of(h), pitch_of(w)
    operands["rows"] = temps.room("rows", count * p * high, width)
    operands["columns"] = temps.room("columns", count * q * across, width)
    operands["row_bands"] = temps.room("row_bands", count * high // bands[0])
    operands["column_bands"] = temps.room("column_bands", count * across // bands[1])
    operands["row_spans"] = temps.room("row_spans", count * p)
    operands["column_spans"] = temps.room("column_spans", count * q)
    operands["extents"] = temps.room("extents", 2 * count)
    operands["owners"] = temps.room("owners", count)
    pool = isinstance(op, PsRoiGradient) and op.mode == "pool"
    constants: dict[str, Constant] = {
        "P": p, "Q": q, "SCALE": float(op.scale), "RATIO": 0 if pool else max(0, op.ratio),
        "ALIGNED": op.aligned, "POOL": pool, "REPORT": op.report, "SPLIT": split,
        "EXACT": exact_kind(call), "DOUBLE": double, "BP": min(16, power_of_two(p)),
        "BQ": min(16, power_of_two(q)), "BL": _LINES, "BAND_H": bands[0], "BAND_W": bands[1],
    }  # fmt: skip
    stored = {**elements, "rows": kind, "columns": kind}
    integers |= {"h": h, "w": w, "row_pitch": high, "column_pitch": across}
    config = RoiPhaseConfig("axes", tuple(stored.items()), tuple(constants.items()), 1)
    return Launch(config, operands, integers, 2 * count + op.report)


def listed_launch(call: CudaCall, temps: Scratchpad, square: Square) -> Launch:
    """For each square the boxes that reach it, from `extents` and `owners`."""
    count, images, squares = call.inputs[0].shape[0], call.op.images[0], square.down * square.along
    operands: dict[str, Operand] = {
        "extents": temps["extents"], "owners": temps["owners"],
        "lists": temps.room("lists", squares * count),
        "begins": temps.room("begins", images * squares),
        "numbers": temps.room("numbers", images * squares),
    }  # fmt: skip
    block = min(512, max(32, power_of_two(count)))
    constants = (("SIDE_H", square.sides[0]), ("SIDE_W", square.sides[1]), ("BLOCK", block))
    config = RoiPhaseConfig("listed", (), constants, 1 if block < 512 else 4)
    integers = {"count": count, "down": square.down, "along": square.along}
    return Launch(config, operands, integers, images * squares)


def last_launch(
    view: View, source: In, temp: Temp | None, prefix: str
) -> tuple[tuple[Launch, ...], Operand, dict[str, int]]:
    """What has channels as neighbours: the view itself, or a copy, which a launch makes.

    Args:
        view: [K, C, P, Q].
        source: The operand that it is.
        temp: The copy's room, or None for none.
        prefix: Of its strides' names.

    Returns:
        Launches, the operand, and its strides by name.
    """
    k, c, p, q = view.shape
    if temp is None:
        strides = dict(zip("kpq", (view.strides[0], *view.strides[2:]), strict=True))
        return (), source, {f"{prefix}_{axis}": s for axis, s in strides.items()}
    blocks, parts = -(-c // 64), -(-p * q // 32)
    constants = (("JOINED", joined(view)), ("BB", 32), ("BC", 64))
    element = ELEMENTS[view.dtype]
    config = RoiPhaseConfig("last", (("x", element), ("y", element)), constants, 4)
    integers = {
        "c": c, "bins": p * q, "q": max(1, q), "blocks": blocks, "parts": parts,
        **channels_strides(view, "x", "kcpq"),
    }  # fmt: skip
    launch = Launch(config, {"x": source, "y": temp}, integers, k * blocks * parts)
    return (launch,), temp, {f"{prefix}_k": c * p * q, f"{prefix}_p": c * q, f"{prefix}_q": c}


def refuse_rooms(call: CudaCall, *counts: int) -> str | None:
    """Why no kernel takes a call: its operands, or that temporaries would be so large."""
    kinds = (DType.F32, DType.F16, DType.BF16, DType.F64)
    boxes = call.inputs[2 if isinstance(call.op, RoiPoolGradient) else 1]
    if any(view.dtype not in kinds for view in (call.inputs[0], boxes, call.outputs[0])):
        return "element types"
    y, *reports = call.outputs
    if max(reach(y), *(view.extent for view in (*call.inputs, *reports)), *counts) >= 1 << 31:
        return "2^31 elements or more of an image, or of all boxes"
    if max(call.op.images[1:]) >= 1 << 15 or max(call.inputs[0].shape[2:]) >= 1 << 15:
        return "32768 rows, columns or bins along an axis, or more"
    return None


def copied(view: View) -> bool:
    """Whether channels are no neighbours, so that `last_launch` wants room."""
    return not unit(view)


def wide(view: View) -> bool:
    """Whether columns are neighbours, and channels are not."""
    return not unit(view) and (view.strides[3] == 1 or view.shape[3] == 1)
