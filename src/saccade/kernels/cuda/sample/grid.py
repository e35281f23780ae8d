"""`GridSample`: blocks of places times channels, every pixel of a place loaded with its share.

Places and shares are computed where they are used, operation by operation as the reference has
them; pixels outside are not read where they count as zeros, and are those at the border or behind
the mirror otherwise, so that an index never leaves the image, whatever the grid holds. One to three
spatial axes; float32 and halves, sums in float32.

Floor: the bytes of the result, the grid and the operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.reduce.axis_loops import block_of, power_above
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import GridSample

__all__ = ["SAMPLE_GRID", "CudaGridConfig"]

_AXES = 3  # spatial ones, at most: a volume's
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_INTEGERS = (
    "c", "d", "h", "w", "p0", "p1", "p2", "x_n", "x_c", "x_d", "x_h", "x_w",
    "g_n", "g_0", "g_1", "g_2", "g_a", "y_n", "y_c", "y_0", "y_1", "y_2",
)  # fmt: skip
_TILES = {True: ((16, 64), (8, 64), (32, 32), (4, 128)), False: ((128, 1), (128, 4), (256, 1))}
"""Places and channels of a block, by whether channels lie side by side."""
# Microseconds of a program's loads, arithmetic and stores; instructions for each pixel of an
# element, and for the pixels of a place (estimates, not measured).
_LATENCY, _INSTRUCTIONS, _PLACE = 2.0, 3.0, 60.0


@dataclass(frozen=True)
class CudaGridConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of the grid, of the result.
        mode, padding, aligned: Of the operator.
        axes: Spatial ones.
        units: Whether channels are neighbours, in operand and result.
        tile: Places and channels of a block, warps.
    """

    elements: tuple[str, str, str]
    mode: str
    padding: str
    aligned: bool
    axes: int
    units: tuple[bool, bool]
    tile: tuple[int, int, int]


def _supports(call: CudaCall) -> str | None:
    if len(call.inputs[0].shape) > 2 + _AXES:
        return f"more than {_AXES} spatial axes"
    if any(view.dtype not in FLOATS for view in (*call.inputs, *call.outputs)):
        return "element types"
    return refuse_places(call)


def _units(call: CudaCall) -> tuple[bool, bool]:
    x, y = call.inputs[0], call.outputs[0]
    several = x.shape[1] > 1
    return several and x.strides[1] == 1, several and y.strides[1] == 1


def _variants(call: CudaCall) -> Iterator[Variant]:
    y = call.outputs[0]
    places, channels = prod(y.shape[2:]), power_above(y.shape[1])
    tiles = {
        block_of(min(pixels, max(8, power_above(places))), min(block, channels), y.dtype)
        for pixels, block in _TILES[all(_units(call))]
    }
    for micros, tile in sorted((_micros(call, tile), tile) for tile in tiles):
        yield Variant(micros, partial(_launches, call, tile))


def _programs(call: CudaCall, tile: tuple[int, int, int]) -> int:
    y = call.outputs[0]
    return y.shape[0] * -(-prod(y.shape[2:]) // tile[0]) * -(-y.shape[1] // tile[1])


def _micros(call: CudaCall, tile: tuple[int, int, int]) -> float:
    machine, x, y = gpu(call.target.machine), call.inputs[0], call.outputs[0]
    places, channels, warps = tile
    taps: int = _TAPS[call.op.mode] ** (len(x.shape) - 2)
    programs = _programs(call, tile)
    resident = max(1, min(32, 48 // warps))
    waiting = ceil(programs / (call.target.multiprocessors * resident)) * _LATENCY
    moved = x.nbytes + call.inputs[1].nbytes + y.nbytes
    each = taps * (channels * _INSTRUCTIONS + _PLACE)
    done = programs * places * each / (machine.flops / 2)
    return LAUNCH + max(waiting, moved / (0.8 * machine.bandwidth), done)


def _spatial(view: View, first: int, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of three spatial axes, those missing in front."""
    missing = _AXES - axes
    here = slice(first, first + axes)
    return (1,) * missing + view.shape[here], (0,) * missing + view.strides[here]


def _launches(call: CudaCall, tile: tuple[int, int, int]) -> tuple[Launch, ...]:
    op, (x, grid), y = call.op, call.inputs, call.outputs[0]
    axes = len(x.shape) - 2
    elements = (element_of(x), element_of(grid), element_of(y))
    config = CudaGridConfig(elements, op.mode, op.padding, op.aligned, axes, _units(call), tile)
    sizes, x_steps = _spatial(x, 2, axes)
    places, y_steps = _spatial(y, 2, axes)
    _, g_steps = _spatial(grid, 1, axes)
    values = (
        x.shape[1], *sizes, *places, *x.strides[:2], *x_steps,
        grid.strides[0], *g_steps, grid.strides[-1], *y.strides[:2], *y_steps,
    )  # fmt: skip
    operands: dict[str, Operand] = {"x": In(0), "points": In(1), "y": Out(0)}
    integers = dict(zip(_INTEGERS, values, strict=True))
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: CudaGridConfig) -> Entry:
    places, channels, warps = config.tile
    constants: dict[str, int | bool | str] = {
        "MODE": config.mode, "PADDING": config.padding, "ALIGNED": config.aligned,
        "AXES": config.axes, "TAPS": _TAPS[config.mode], "X_UNIT": config.units[0],
        "Y_UNIT": config.units[1], "BP": places, "BC": channels,
    }  # fmt: skip
    return Entry(
        "sample.grid_code:sample",
        tuple(zip(("x", "points", "y"), config.elements, strict=True)),
        _INTEGERS,
        constants,
        warps=warps,
        contract=False,  # which pixel is the nearest hangs on the last bit of a place
    )


SAMPLE_GRID = CudaKernel("sample.grid", (GridSample,), CudaGridConfig, _supports, _variants, _entry)
