"""Implicit GEMM on Hopper: TMA gathers pixels, products are asynchronous, no warp has its own part.

For images of float16 and bfloat16 whose channels come in eights, whatever the taps, strides (up to
8), dilations and paddings, and however many channels the result has. Its floor is the matrix units'
rate (990 TFLOP/s on an H200), or the bytes of x and y; a tile's epilogue overlaps only with other
programs of the multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import (
    In,
    Launch,
    Operand,
    Out,
    Packed,
    Packing,
    Variant,
    View,
    interned,
)
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import packed_block
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    gluon_prologue_of,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import (
    HopperTile,
    fetches_early,
    hopper_epilogue,
    pixel_distance,
    programs_of,
)
from saccade.kernels.cuda.conv2d.hopper_times import hopper_times
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, unfit, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = [
    "CONV2D_HOPPER", "HopperConfig", "HopperOperands", "begins", "beyond_tma", "constants_of",
    "filters_map", "functions_of", "hopper_launch", "loose_result", "matrix_map", "nested",
    "pixels_map", "refuse_vectors", "unaligned", "upper_of", "window_map",
]  # fmt: skip

_INTEGERS = ("rows", "k", "p", "q", "channels", "steps", "y_n", "y_p", "y_q")
_VECTOR = 8  # elements of 16 bytes, TMA's unit
_TAPS_OUTER = 1.035
"""Times as long where steps go through the channels first and ask the L2 for pixels anew with each
tap. 24 pairs of ResNet-50's 3x3 layers on one H100: 1.00 to 1.07, 1.038 in the mean."""


@dataclass(frozen=True)
class HopperConfig:
    """What the code depends on.

    Attributes:
        element: Of x, the weights and y.
        window: The window.
        tile: How the work is cut.
        taps_inner: Whether steps go through the taps first, then through the channels.
        even: Whether pixels of y, and of each operand of the epilogue, lie evenly apart through all
            images.
        block: Of DepthToSpace; 1 for a plain store.
        packed: Whether packing brings the channels of a pixel together (CRD).
        epilogue: See `epilogue.BlockEpilogue.code`; its operands come after the prologue's.
        prologue: Expression over `$0`, an element of x, and the operands.
        result: Element of y where that is float32; empty for the others'.
        unit: How many channels of y lie together at multiples of 16 bytes: 8 or 1.
        room: Channels behind the last one which zeros are written to.
    """

    element: str
    window: WindowConfig
    tile: HopperTile
    taps_inner: bool
    even: bool
    block: int
    packed: bool
    epilogue: EpilogueCode
    prologue: str = str(IDENTITY)
    result: str = ""
    unit: int = _VECTOR
    room: int = 0


_config = interned(HopperConfig)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    if op.groups != 1:
        return f"{op.groups} groups"
    # TMA fills in zeros before the prologue; padding is zero behind it.
    if op.prologue != IDENTITY and any(op.padding):
        return "a prologue, which padding has none of"
    if call.inputs[1].shape[1] % _VECTOR:
        return f"{call.inputs[1].shape[1]} input channels"
    if op.store is not None and _unit(call) == 1:
        return "channels that become pixels do not come in eights"
    return _beyond_tma(call) or _window(call)


def beyond_tma(call: CudaCall) -> str | None:
    """What of a convolution is nothing for kernels of TMA and wgmma, whatever its window is."""
    return loose_result(call) or _beyond_tma(call)


def loose_result(call: CudaCall) -> str | None:
    """Why a result cannot be written sixteen bytes at a time, in x's elements, or None."""
    x, y = call.inputs[0], call.outputs[0]
    if y.dtype is not x.dtype:
        return "element types"
    return None if _unit(call) == _VECTOR else "channels of the result do not come in eights"


def refuse_vectors(call: CudaCall) -> str | None:
    """Why `conv2d.hopper` does not take a call, or not sixteen bytes of its result at a time."""
    return _supports(call) or loose_result(call)


def _unit(call: CudaCall) -> int:
    """How many channels of the result lie together, and begin where so many may."""
    y = call.outputs[0]
    together = y.shape[1] % _VECTOR == 0 and unaligned(y) is None
    return _VECTOR if together else 1


def _beyond_tma(call: CudaCall) -> str | None:
    """The same whatever the result is."""
    # Code with wgmma runs on sm_90 alone, on no later one either.
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    x, y = call.inputs[0], call.outputs[0]
    if x.dtype not in (DType.F16, DType.BF16) or y.dtype not in (x.dtype, DType.F32):
        return "element types"
    if isinstance(call.op.store, InterleaveStore):
        return "an interleaving store"
    if not call.constant[1]:
        return "weights are no constant"
    return unfit(call) or _storage(call)


def _window(call: CudaCall) -> str | None:
    """What of the window TMA's im2col mode cannot do."""
    op: Conv2d = call.op
    if max(op.stride) > 8:  # TMA's limit
        return f"strides {op.stride}"
    reach = [(taps - 1) * d for taps, d in zip(call.inputs[1].shape[2:], op.dilation, strict=True)]
    if max(reach) > 255:  # offsets are bytes
        return f"taps {max(reach)} pixels apart"
    corners = [-pad for pad in op.padding[:2]] + list(upper_of(call))
    if min(corners) < -128 or max(corners) > 127:  # signed bytes
        return f"corners {corners}"
    return None


def upper_of(call: CudaCall) -> tuple[int, int]:
    """Offsets of the last output pixel's first tap from the input's last pixel."""
    op: Conv2d = call.op
    _, _, p, q = sums_of(call)
    _, _, h, w = call.inputs[0].shape
    top, left = op.padding[:2]
    return (p - 1) * op.stride[0] + 1 - h - top, (q - 1) * op.stride[1] + 1 - w - left


def _storage(call: CudaCall) -> str | None:
    x, y = call.inputs[0], call.outputs[0]
    if 0 in x.shape or 0 in y.shape:
        return "nothing to do"
    if x.strides[1] != 1 or y.strides[1] != 1:
        return "not channels-last"
    if not begins(x):
        return "x is a part of wider pixels"
    if any(outer % step or outer < n * step for (_, outer), (n, step) in pairwise(nested(x))):
        return "rows of x are apart by no whole number of pixels"
    return unaligned(x)


def begins(view: View) -> bool:
    """Whether pixels begin where TMA can: a part of wider ones may anywhere."""
    return view.strides[3] == view.shape[1] or view.aligned


def unaligned(*views: View) -> str | None:
    """Why pixels of these cannot be moved by sixteen bytes at a time, or None."""
    apart = [(view.strides[axis], view.shape[axis]) for view in views for axis in (0, 2, 3)]
    if any(stride <= 0 or stride % _VECTOR for stride, size in apart if size > 1):
        return "pixels are no multiples of 16 bytes apart"
    return None


def nested(x: View) -> list[tuple[int, int]]:
    """Size and stride of images, rows, pixels; where there is one, the stride is as if packed."""
    _, _, h, w = x.shape
    n_step, _, h_step, w_step = x.strides
    h_step = h_step if h > 1 else w * w_step
    n_step = n_step if x.shape[0] > 1 else h * h_step
    return [(x.shape[0], n_step), (h, h_step), (w, w_step)]


def _variants(call: CudaCall) -> Iterator[Variant]:
    _, c, r, s = call.inputs[1].shape
    for place, (micros, _, tile) in enumerate(hopper_times(call)):
        build, rounding = partial(_launches, call, tile), tile.depth
        # With one tap or one block of channels there is one order only.
        inner = r * s > 1 and c > tile.depth
        yield Variant(micros, partial(build, inner), (rounding, inner))
        if place < 2 and inner:
            yield Variant(_TAPS_OUTER * micros, partial(build, False), (rounding, False))


class HopperOperands(NamedTuple):
    """What a launch has whatever its tiles, for steps of some input channels.

    Attributes:
        epilogue: See `HopperConfig`; as are `even`, `block`, `packed` and `unit`.
        operands: Of the launch.
        integers: Of the launch, without those that only some code has.
    """

    epilogue: EpilogueCode
    even: bool
    block: int
    packed: bool
    unit: int
    operands: dict[str, Operand]
    integers: dict[str, int]

    @classmethod
    def of(cls, call: CudaCall, depth: int) -> HopperOperands:
        """Those of a call whose steps have so many input channels."""
        op: Conv2d = call.op
        x, y = call.inputs[0], call.outputs[0]
        n, k, p, q = sums_of(call)
        _, c, r, s = call.inputs[1].shape
        # Steps take whole blocks of channels, of which the weights' last ones are zeros.
        together, inputs = packed_block(call), -(-c // depth) * depth
        epilogue, even = hopper_epilogue(call)
        packing = Packing(
            "cuda.filters", (x.dtype.value, inputs, *together), (1,),
            k * r * s * inputs * x.dtype.itemsize,
        )  # fmt: skip
        step = pixel_distance((y.strides[0], *y.strides[2:]), (n, p, q)) if even else y.strides[3]
        unit = _unit(call)
        integers = {
            "k": k // unit, "p": p, "q": q, "channels": y.shape[1] // unit,
            "y_n": y.strides[0] // unit, "y_p": y.strides[2] // unit,
            "y_q": (step or 0) // unit, "n": n, "h": x.shape[2], "wd": x.shape[3], "c": c,
            "filters": k, "depth": r * s * inputs,
            **{f"x_{axis}": step for axis, (_, step) in zip("nhw", nested(x), strict=True)},
            **epilogue.integers,
        }  # fmt: skip
        operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **epilogue.operands}
        block = op.store.block if isinstance(op.store, DepthToSpaceStore) else 1
        return cls(epilogue.code, even, block, bool(together), unit, operands, integers)


def _launches(call: CudaCall, tile: HopperTile, taps_inner: bool) -> tuple[Launch, ...]:
    return (hopper_launch(call, tile, taps_inner=taps_inner),)


def hopper_launch(call: CudaCall, tile: HopperTile, *, taps_inner: bool) -> Launch:
    """The launch of a call by these tiles; see `HopperConfig.taps_inner`."""
    made, y = HopperOperands.of(call, tile.depth), call.outputs[0]
    config = _config(
        element_of(call.inputs[0]), window_of(call), tile, taps_inner, made.even, made.block,
        made.packed, made.epilogue, str(call.op.prologue),
        element_of(y) if y.dtype is not call.inputs[0].dtype else "", made.unit,
        y.room if y.zeros else 0,
    )  # fmt: skip
    n, _, p, q = sums_of(call)
    upper_h, upper_w = upper_of(call)
    steps = -(-call.inputs[1].shape[1] // tile.depth)
    integers = {
        **made.integers, "rows": n * p * q, "steps": steps, "upper_h": upper_h, "upper_w": upper_w
    }  # fmt: skip
    return Launch(config, made.operands, integers, programs_of(call, tile))


def constants_of(config: HopperConfig) -> dict[str, int]:
    """For `Entry.constants`."""
    tile = config.tile
    window = config.window.constants()
    del window["PADDED"]  # what lies outside is zero for TMA
    return {
        **window, "BM": tile.rows, "BN": tile.columns, "BK": tile.depth, "WARPS": tile.warps,
        "STAGES": tile.stages, "TAPS_INNER": config.taps_inner, "EVEN": config.even,
        "BLOCK": config.block, "CRD": config.packed,
        "EARLY": fetches_early(config.tile, config.epilogue),
    }  # fmt: skip


def functions_of(config: HopperConfig) -> dict[str, str]:
    """For `Entry.functions`."""
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue, rounded=not config.result)}
    if config.prologue != str(IDENTITY):
        functions["PROLOGUE"] = gluon_prologue_of((config.prologue, *config.epilogue[1:]))
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    return functions


def _entry(config: HopperConfig) -> Entry:
    tile = config.tile
    return Entry(
        f"conv2d.hopper_code:{'convolve_tiles' if tile.persistent else 'convolve'}",
        (("y", config.result or config.element),),
        _INTEGERS,
        {**constants_of(config), "UNIT": config.unit, "ROOM": config.room},
        functions_of(config),
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        descriptors=(
            pixels_map(config), filters_map(config.element, tile.columns, tile.depth)
        ),
        gluon=True,
    )  # fmt: skip


def filters_map(element: str, columns: int, depth: int) -> Descriptor:
    """The tensor map of the weights."""
    return Descriptor("w", element, (columns, depth), ("filters", "depth"), ("depth", 1))


def pixels_map(config: HopperConfig) -> Descriptor:
    """The tensor map of x."""
    return window_map(config.element, config.tile.rows, config.tile.depth, config.window)


def matrix_map(element: str, rows: int, depth: int) -> Descriptor:
    """The tensor map of x whose pixels are rows of a matrix; see `matrix_step`."""
    return Descriptor("x", element, (rows, depth), ("rows", "c"), ("x_apart", 1))


def window_map(element: str, rows: int, depth: int, window: WindowConfig) -> Descriptor:
    """The tensor map of x of which a load brings so many pixels' first taps, and channels."""
    return Descriptor(
        "x", element, (rows, depth), ("n", "h", "wd", "c"), ("x_n", "x_h", "x_w", 1),
        tuple(-pad for pad in window.padding), ("upper_h", "upper_w"), window.stride,
    )  # fmt: skip


CONV2D_HOPPER = CudaKernel("conv2d.hopper", (Conv2d,), HopperConfig, _supports, _variants, _entry)
