"""Implicit GEMM on Hopper: TMA gathers, a warp loads while others multiply and store.

For layers of at least eight channels on both sides in float16 or bfloat16, whatever the taps,
strides (up to 8), dilations and paddings. Its floor is the matrix units' rate (990 TFLOP/s on an
H200) or, with few output channels, what one multiprocessor reads from the L2: each pixel comes once
for every tap and every block of output channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    is_tile,
)
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.epilogue import (
    BlockEpilogue,
    EpilogueCode,
    epilogue_of,
    integers_of,
    pointers_of,
)
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = [
    "CONV2D_HOPPER",
    "HopperConfig",
    "HopperTile",
    "hopper_launches",
    "hopper_room",
    "hopper_tiles",
]

_INTEGERS = ("n", "k", "p", "q", "channels", "steps", "y_n", "y_p", "y_q")
_MULTIPLES = ("k", "channels", "y_n", "y_p", "y_q")
_GRAIN = 8  # elements of 16 bytes, TMA's unit
_HELD = 160 << 10  # bytes of weights that may stay in shared memory
_SPARE = 2 << 10  # shared memory for barriers, alignment and the driver


@dataclass(frozen=True)
class HopperTile:
    """How the work is cut.

    Attributes:
        rows: Output pixels of a tile.
        columns: Its output channels.
        depth: Input channels of a step.
        warps: Of each consumer; each four hold 64 rows, or twice that one after the other.
        consumers: Groups of warps that take tiles in turn, 1 or 2.
        together: Programs that share a multiprocessor.
        held: Weight blocks that stay in shared memory (all of a column block's), or 0.
        stages: Blocks of pixels (and of weights) in flight.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    consumers: int
    together: int = 1
    held: int = 0
    stages: int = 0

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Of one stage's pixels and weights (two bytes an element)."""
        return 2 * self.rows * self.depth, 2 * self.columns * self.depth


@dataclass(frozen=True)
class HopperConfig:
    """What the code depends on.

    Attributes:
        elements: Of x and the weights, of y.
        taps, stride, dilation, padding: Of the window; padding at the top and the left.
        tile: How the work is cut.
        boxes: Whether results are stored by TMA.
        block, crd: Of DepthToSpace; 1 for a plain store.
        epilogue: See `epilogue.BlockEpilogue.code`.
    """

    elements: tuple[str, str]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    tile: HopperTile
    boxes: bool
    block: int
    crd: bool
    epilogue: EpilogueCode


_TILES = (
    HopperTile(128, 256, 64, 8, 1),
    HopperTile(256, 128, 64, 8, 1),
    HopperTile(128, 128, 64, 4, 2),
    HopperTile(128, 128, 64, 4, 1, 2),
    HopperTile(256, 64, 64, 4, 2),
    HopperTile(128, 64, 64, 4, 2),
    HopperTile(128, 64, 64, 4, 1, 2),
    HopperTile(64, 256, 64, 4, 2),
    HopperTile(64, 128, 64, 4, 2),
    HopperTile(64, 128, 64, 4, 1, 2),
    HopperTile(64, 64, 64, 4, 1),
    HopperTile(64, 32, 64, 4, 1),
    HopperTile(64, 16, 64, 4, 1),
    HopperTile(128, 128, 32, 4, 2),
    HopperTile(128, 64, 32, 4, 2),
    HopperTile(128, 32, 32, 4, 2),
    HopperTile(128, 16, 32, 4, 2),
    HopperTile(64, 16, 32, 4, 1),
)


def hopper_tiles(call: CudaCall) -> tuple[HopperTile, ...]:
    """The tiles that suit a call, with their stages; weights stay in shared memory if they can."""
    k, c, r, s = call.inputs[1].shape
    found = []
    for tile in _TILES:
        if tile.columns > max(16, k) * 2 or tile.depth != (64 if c > 32 else 32):
            continue
        blocks = r * s * ceil(c / tile.depth)
        for held in (blocks, 0):
            staged = _staged(call, tile, held)
            if staged is not None:
                found.append(staged)
    return tuple(found)


def hopper_room(call: CudaCall, tile: HopperTile) -> int:
    """Bytes of shared memory that a program has left for its stages."""
    room = call.target.shared // tile.together - _SPARE - tile.held * tile.block_bytes[1]
    results = tile.consumers * tile.rows * tile.columns * call.outputs[0].dtype.itemsize
    return room - results


def _staged(call: CudaCall, tile: HopperTile, held: int) -> HopperTile | None:
    """A tile with as many stages as there is memory for, if that is enough."""
    pixels, weights = tile.block_bytes
    if held * weights > _HELD or (held and -(-call.inputs[1].shape[0] // tile.columns) > 4):
        return None
    tile = replace(tile, held=held)
    stages = min(8, hopper_room(call, tile) // (pixels + (0 if held else weights)))
    return replace(tile, stages=stages) if stages >= 2 else None


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    if x.dtype not in (DType.F16, DType.BF16) or y.dtype is not x.dtype:
        return "element types"
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.prologue != IDENTITY:
        return "a prologue"
    if isinstance(op.store, InterleaveStore):
        return "an interleaving store"
    if not call.constant[1]:
        return "weights are no constant"
    if min(w.shape[:2]) < _GRAIN:
        return f"{w.shape[1]} input and {w.shape[0]} output channels"
    return _window(call) or _storage(call)


def _window(call: CudaCall) -> str | None:
    """What of the window TMA's im2col mode cannot do."""
    op: Conv2d = call.op
    if max(op.stride) > 8:  # TMA's limit
        return f"strides {op.stride}"
    reach = [(taps - 1) * d for taps, d in zip(call.inputs[1].shape[2:], op.dilation, strict=True)]
    if max(reach) > 255:  # offsets are bytes
        return f"taps {max(reach)} pixels apart"
    corners = [-pad for pad in op.padding[:2]] + list(_upper(call))
    if min(corners) < -128 or max(corners) > 127:  # signed bytes
        return f"corners {corners}"
    return None


def _upper(call: CudaCall) -> tuple[int, int]:
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
    if any(stride % _GRAIN or stride <= 0 for axis, stride in enumerate(x.strides) if axis != 1):
        return "pixels of x are no multiples of 16 bytes apart"
    if any(view.size >= 1 << 31 for view in (*call.inputs, y)):
        return "2^31 elements or more"
    code = _epilogue(call).code
    if any(is_tile(word) and word.split()[0] != element_of(y) for word in code[1:]):
        return "an operand of the epilogue of another element type"
    return None


def _epilogue(call: CudaCall) -> BlockEpilogue:
    return epilogue_of(call, call.op.epilogue, 2, sums_of(call))


def _micros(call: CudaCall, tile: HopperTile) -> float:
    """Steps at the rate of the matrix units or of the L2, and what no other tile's work hides."""
    machine = gpu(call.target.machine)
    n, k, p, q = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    units = machine.multiprocessors * tile.together
    tiles = ceil(n * p * q / tile.rows) * ceil(k / tile.columns)
    pixels, weights = tile.block_bytes
    flops = 2.0 * tile.rows * tile.columns * tile.depth
    busy = flops / (0.85 * machine.matrix_flops / machine.multiprocessors)
    blocks = pixels + (0 if tile.held else weights)
    read = blocks * machine.multiprocessors / (2.0 * machine.bandwidth)  # the L2's
    step = max(busy, read, 0.05) * (tile.together if tiles > machine.multiprocessors else 1)
    lone = tile.consumers * tile.together == 1
    last = tile.rows * tile.columns * (4e-5 if lone else 1e-5)
    total = ceil(tiles / units) * (r * s * ceil(c / tile.depth) * step + last) + 1.0
    nbytes = sum(view.nbytes for view in (*call.inputs, *call.outputs))
    return LAUNCH + max(total, nbytes / (0.8 * machine.bandwidth)) + 0.05 * total


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(_micros(call, tile), i, tile) for i, tile in enumerate(hopper_tiles(call))]
    for micros, _, tile in sorted(timed, key=lambda entry: entry[:2]):
        yield Variant(micros, partial(hopper_launches, call, tile), rounding=tile.depth)


def _boxes(y: View, block: int) -> bool:
    """Whether the result is rows of channels, evenly apart, as TMA stores them."""
    _, _, p, q = y.shape
    even = y.strides[2] == q * y.strides[3] and y.strides[0] == p * y.strides[2]
    return block == 1 and even and y.strides[3] % _GRAIN == 0


def hopper_launches(call: CudaCall, tile: HopperTile) -> tuple[Launch, ...]:
    """One launch of as many programs as the machine runs at once."""
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    n, k, p, q = sums_of(call)
    _, c, r, s = w.shape
    store = op.store if isinstance(op.store, DepthToSpaceStore) else DepthToSpaceStore(1)
    crd = store.mode == "CRD" and store.block > 1
    epilogue = _epilogue(call)
    config = HopperConfig(
        (element_of(x), element_of(y)), (r, s), op.stride, op.dilation, op.padding[:2], tile,
        _boxes(y, store.block), store.block, crd, epilogue.code,
    )  # fmt: skip
    steps = -(-c // tile.depth)
    depth = r * s * steps * tile.depth
    packing = (x.dtype.value, steps * tile.depth, store.block**2 if crd else 1)
    weights = Packing("cuda.filters", packing, (1,), k * depth * x.dtype.itemsize)
    upper_h, upper_w = _upper(call)
    integers = {
        "n": n, "k": k, "p": p, "q": q, "channels": y.shape[1], "steps": steps,
        "y_n": y.strides[0], "y_p": y.strides[2], "y_q": y.strides[3],
        "h": x.shape[2], "wd": x.shape[3], "c": c, "x_n": x.strides[0], "x_h": x.strides[2],
        "x_w": x.strides[3], "upper_h": upper_h, "upper_w": upper_w, "depth": depth,
        "pixels": n * p * q, **epilogue.integers,
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "x": In(0), "w": Packed(weights), "y_box": Out(0), "y": Out(0), **epilogue.operands
    }  # fmt: skip
    blocks = -(-k // tile.columns)
    tiles = -(-n * p * q // tile.rows) * blocks
    programs = min(call.target.multiprocessors * tile.together, tiles)
    if tile.held:
        programs -= programs % blocks  # each keeps to one block of channels
    return (Launch(config, operands, _taken(config, integers), programs),)


def _taken(config: HopperConfig, integers: dict[str, int]) -> dict[str, int]:
    names = _entry(config).launch_integers
    return {name: value for name, value in integers.items() if name in names}


def _entry(config: HopperConfig) -> Entry:
    tile = config.tile
    constants: dict[str, int | float | bool | str] = {
        "R": config.taps[0], "S": config.taps[1],
        "STRIDE_H": config.stride[0], "STRIDE_W": config.stride[1],
        "DILATION_H": config.dilation[0], "DILATION_W": config.dilation[1],
        "PAD_T": config.padding[0], "PAD_L": config.padding[1],
        "BM": tile.rows, "BN": tile.columns, "BK": tile.depth, "WARPS": tile.warps,
        "STAGES": tile.stages, "CONSUMERS": tile.consumers, "RESIDENT": tile.held,
        "BOXES": config.boxes, "BLOCK": config.block, "CRD": config.crd,
    }  # fmt: skip
    pointers = [("y", config.elements[1])]
    if not config.boxes:
        pointers.insert(0, ("y_box", config.elements[1]))
    return Entry(
        "conv2d.hopper_code:convolve",
        tuple(pointers),
        _INTEGERS,
        constants,
        {
            "FETCH": gluon_fetch_of(config.epilogue),
            "EPILOGUE": gluon_epilogue_of(config.epilogue),
        },
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        (*_MULTIPLES, *integers_of(config.epilogue)),
        tile.warps,
        descriptors=_descriptors(config),
        gluon=True,
        registers=128 if tile.consumers == 1 and tile.warps == 4 else 0,  # leaves 232 to multiply
    )


def _descriptors(config: HopperConfig) -> tuple[Descriptor, ...]:
    tile = config.tile
    kind, result = config.elements
    lower = tuple(-pad for pad in config.padding)
    pixels = Descriptor(
        "x", kind, (tile.rows, tile.depth), ("n", "h", "wd", "c"), ("x_n", "x_h", "x_w", 1),
        lower, ("upper_h", "upper_w"), config.stride,
    )  # fmt: skip
    weights = Descriptor("w", kind, (tile.columns, tile.depth), ("k", "depth"), ("depth", 1))
    block = (tile.rows, tile.columns)
    boxes = Descriptor("y_box", result, block, ("pixels", "k"), ("y_q", 1))
    return (pixels, weights, boxes) if config.boxes else (pixels, weights)


CONV2D_HOPPER = CudaKernel("conv2d.hopper", (Conv2d,), HopperConfig, _supports, _variants, _entry)
