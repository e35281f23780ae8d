"""Interpolation: every tap of a block of columns and channels is loaded, most from the cache.

Positions and weights are computed where they are used, so that no size of an image needs tables.
Channels-last images are read, and stored as they come or in rows: the block is transposed within
the program. Its floor is the bytes of the result and the operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Out, Variant, View, per_call
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.epilogue import (
    EpilogueCode,
    epilogue_of,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.reduce.axis_loops import (
    block_of,
    common_step,
    pixel_step,
    power_above,
)
from saccade.kernels.cuda.refusals import refuse_epilogue, refuse_places
from saccade.opdefs import Resize

__all__ = ["RESIZE_DIRECT", "CudaResizeConfig"]

_INTEGERS = (
    "n", "c", "c_read", "h", "w", "p", "q", "x_n", "x_c", "x_h", "x_w", "y_n", "y_c", "y_p", "y_q",
    "h_scale", "w_scale", "h_shift", "w_shift",
)  # fmt: skip
_TAPS = {"same": 1, "nearest": 1, "linear": 2, "cubic": 4}
# Microseconds of a program's loads, arithmetic and stores, and instructions for each tap of an
# element (estimates, not measured).
_LATENCY, _INSTRUCTIONS = 1.5, 2.5
_TILES = {
    ("channels", "channels"): (
        (8, 64), (16, 64), (32, 64), (16, 32), (32, 32), (4, 128), (8, 128), (64, 16),
    ),
    ("channels", "columns"): ((64, 32), (128, 32), (64, 64), (32, 32), (128, 8)),
    ("columns", "columns"): ((128, 1), (256, 1), (512, 1), (128, 8)),
}  # fmt: skip
"""Columns and channels of a block, by what lies side by side in x and in y."""


@dataclass(frozen=True)
class CudaResizeConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of y, and what sums are kept in.
        modes: Along rows and along columns; "same" where the size stays.
        coordinate, nearest, cubic_a, exclude_outside: Of the operator, where the modes need them.
        units: What lies side by side in x and in y: "channels", "columns" or "".
        steps: Extents and strides of x and of y are multiples of so many elements.
        tile: Columns and channels of a block, warps.
        epilogue: See `epilogue.Epilogue.code`.
    """

    elements: tuple[str, str, str]
    modes: tuple[str, str]
    coordinate: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    units: tuple[str, str]
    steps: tuple[int, int]
    tile: tuple[int, int, int]
    epilogue: EpilogueCode


def _image(view: View) -> View:
    """[N, C, W] as [N, C, 1, W]; others as they are."""
    if len(view.shape) != 3:
        return view
    (n, c, w), (s_n, s_c, s_w) = view.shape, view.strides
    return View(view.dtype, (n, c, 1, w), (s_n, s_c, 0, s_w))


@per_call
def _scales(call: CudaCall) -> tuple[float, ...]:
    """Result over operand, [N, C, H, W]."""
    op: Resize = call.op
    x, y = _image(call.inputs[0]), _image(call.outputs[0])
    if op.scales is None:
        return tuple(b / a if a else 1.0 for a, b in zip(x.shape, y.shape, strict=True))
    missing = (1.0,) * (4 - len(op.scales))
    return (*op.scales[:2], *missing, *op.scales[2:])


def _modes(call: CudaCall) -> tuple[str, ...]:
    """Along each of [N, C, H, W]."""
    x, y = _image(call.inputs[0]), _image(call.outputs[0])
    rows = zip(x.shape, y.shape, _scales(call), strict=True)
    return tuple("same" if a == b and scale == 1 else call.op.mode for a, b, scale in rows)


def _supports(call: CudaCall) -> str | None:
    x = call.inputs[0]
    if len(x.shape) not in (3, 4):
        return f"{len(x.shape)} axes"
    if _modes(call)[:2] != ("same", "same"):
        return "a resized batch or channels"
    if x.dtype not in FLOATS and call.op.mode != "nearest":
        return "element types"
    if call.outputs[0].size and not x.size:
        return "an operand without elements"
    return refuse_epilogue(call, call.op.epilogue) or refuse_places(call)


def _unit(view: View) -> str:
    if view.strides[1] == 1 or (view.shape[1] == 1 and view.strides[3] != 1):
        return "channels"
    return "columns" if view.strides[3] == 1 else ""


def _units(call: CudaCall) -> tuple[str, str]:
    return _unit(_image(call.inputs[0])), _unit(_image(call.outputs[0]))


def _variants(call: CudaCall) -> Iterator[Variant]:
    _, c, _, q = _image(call.outputs[0]).shape
    most = 1024 if "cubic" in _modes(call) else 4096  # 16 taps of more spill registers
    shapes = _TILES.get(_units(call), _TILES["channels", "columns"])
    shapes = tuple(shape for shape in shapes if shape[0] * shape[1] <= most)
    dtype = call.outputs[0].dtype
    blocks = {(min(pixels, max(8, power_above(q))), block) for pixels, block in shapes}
    blocks.add(shapes[1])  # also where it is too wide: other sizes need no code of their own
    tiles = {block_of(pixels, min(block, power_above(c)), dtype) for pixels, block in blocks}
    timed = sorted((_micros(call, tile), tile) for tile in tiles)
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _programs(call: CudaCall, tile: tuple[int, int, int]) -> int:
    n, c, p, q = _image(call.outputs[0]).shape
    return n * p * -(-q // tile[0]) * -(-c // tile[1])


def _micros(call: CudaCall, tile: tuple[int, int, int]) -> float:
    machine = gpu(call.target.machine)
    columns, channels, warps = tile
    taps = _TAPS[_modes(call)[2]] * _TAPS[_modes(call)[3]]
    programs = _programs(call, tile)
    resident = max(1, min(32, 48 // warps))
    waiting = ceil(programs / (call.target.multiprocessors * resident)) * _LATENCY
    run = {"channels": channels, "columns": columns, "": 1}[_units(call)[1]]
    y = call.outputs[0]
    moved = call.inputs[0].nbytes + y.nbytes * (1 + 16 / (run * y.dtype.itemsize))
    done = programs * columns * channels * (2 + taps * _INSTRUCTIONS) / (machine.flops / 2)
    return LAUNCH + max(waiting, moved / (0.8 * machine.bandwidth), done)


def _launches(call: CudaCall, tile: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: Resize = call.op
    x, y = _image(call.inputs[0]), _image(call.outputs[0])
    end = epilogue_of(call, op.epilogue, 1, y.shape, views=_operands(call))
    dtype, modes = call.inputs[0].dtype, (_modes(call)[2], _modes(call)[3])
    steps = _steps(call)
    config = CudaResizeConfig(
        (element_of(x), element_of(y), "fp32" if dtype in FLOATS else ELEMENTS[dtype]), modes,
        op.coordinate, op.nearest if "nearest" in modes else "",
        op.cubic_a if "cubic" in modes else 0.0, op.exclude_outside, _units(call),
        steps, tile, end.code,
    )  # fmt: skip
    integers = {
        **_named("ncpq", y.shape), "h": x.shape[2], "w": x.shape[3],
        "c_read": -(-y.shape[1] // steps[0]) * steps[0],
        **_named(("x_n", "x_c", "x_h", "x_w"), x.strides),
        **_named(("y_n", "y_c", "y_p", "y_q"), y.strides),
        **_mapping(call, "h", 2), **_mapping(call, "w", 3), **end.integers,
    }  # fmt: skip
    operands = {"x": In(0), "y": Out(0), **end.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _operands(call: CudaCall) -> list[View]:
    """The epilogue's operands, broadcast to the result."""
    shape = call.outputs[0].shape
    return (
        [_image(view.broadcast_to(shape)) for view in call.inputs[1:]]
        if len(shape) == 3
        else [view.broadcast_to(shape) for view in call.inputs[1:]]
    )


def _named(names: str | tuple[str, ...], values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(names, values, strict=True))


def _mapping(call: CudaCall, name: str, axis: int) -> dict[str, int]:
    """The axis's scale, and what half_pixel_symmetric adds, as bits of float32."""
    before = _image(call.inputs[0]).shape[axis]
    after = _image(call.outputs[0]).shape[axis]
    scale = _scales(call)[axis]
    shift = before / 2 * (1 - after / (scale * before)) if before else 0.0
    scale_bits, shift_bits = np.array([scale, shift], np.float32).view(np.int32).tolist()
    return {f"{name}_scale": scale_bits, f"{name}_shift": shift_bits}


def _steps(call: CudaCall) -> tuple[int, int]:
    """Elements that loads of x move at once; what extents and strides of y all divide by."""
    x, y = _image(call.inputs[0]), _image(call.outputs[0])
    x_unit, y_unit = _units(call)
    inner = 1 if y_unit == "channels" else 3
    x_strides = [x.strides[axis] for axis in (0, 2, 3) if x.shape[axis] > 1]
    y_strides = [s for axis, s in enumerate(y.strides) if axis != inner and y.shape[axis] > 1]
    step = common_step(x_strides, (x,)) if x_unit == "channels" else 1
    return (
        pixel_step(x.shape[1], x.strides[3], step),
        common_step((*y_strides, y.shape[inner]), (y,)) if y_unit else 1,
    )


def _entry(config: CudaResizeConfig) -> Entry:
    kind, result, wide = config.elements
    columns, channels, warps = config.tile
    constants: dict[str, int | float | str] = {
        "MODE_H": config.modes[0], "MODE_W": config.modes[1], "COORDINATE": config.coordinate,
        "NEAREST": config.nearest, "A": config.cubic_a, "EXCLUDE": config.exclude_outside,
        "TAPS_H": _TAPS[config.modes[0]], "TAPS_W": _TAPS[config.modes[1]], "WIDE": wide,
        "X_UNIT": config.units[0], "Y_UNIT": config.units[1], "X_STEP": config.steps[0],
        "Y_STEP": config.steps[1], "BQ": columns, "BC": channels,
    }  # fmt: skip
    return Entry(
        "resize.direct_code:resize",
        (("x", kind), ("y", result)),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of(config.epilogue)},
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=warps,
    )


RESIZE_DIRECT = CudaKernel(
    "resize.direct", (Resize,), CudaResizeConfig, _supports, _variants, _entry
)
