"""Implicit GEMM on Hopper: TMA gathers pixels, products are asynchronous, no warp has its own part.

For layers of float16 and bfloat16 whose channels come in eights, whatever the taps, strides (up to
8), dilations and paddings. Its floor is the matrix units' rate (990 TFLOP/s on an H200), or the
bytes of x and y; a tile's epilogue overlaps only with other programs of the multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant, View, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import (
    moved,
    packed_block,
    prologue_views,
    words_of,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    gluon_prologue_of,
    tile_bytes,
)
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, unfit, window_of
from saccade.kernels.cuda.epilogue import (
    BlockEpilogue,
    EpilogueCode,
    integers_of,
    pointers_of,
)
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = ["CONV2D_HOPPER", "HopperConfig", "HopperTile", "hopper_tiles", "persistent"]

_INTEGERS = ("rows", "k", "p", "q", "channels", "steps", "y_n", "y_p", "y_q")
_VECTOR = 8  # elements of 16 bytes, TMA's unit
_SPARE = 2 << 10  # shared memory for barriers, alignment and the driver
_EXCHANGE = 4 << 10  # bytes by which a warp's results change places while stages are in use
_FILE, _BESIDE = 64 << 10, 56  # registers of a multiprocessor; of a thread, for all the rest
_MOST_WITH_OPERAND = 128  # registers of a thread for sums and a prologue's operand
_REGISTERS = {False: 224, True: 160}  # of a thread, for sums and operands; of persistent programs
# Fitted to the times of 84 layers of four networks in float16, about seven variants of each, on one
# H200: 17% off in the mean, and what they choose is 3.8% slower than the best.
_STEP, _BEGIN, _NEXT = 0.66, 0.06, 0.34
"""Microseconds from asking for a step to having it, to a program's first, to a next tile's first."""
_RATE, _READ, _COPY = 1.0, 2.8, 1.46
"""Of what `Gpu` says: products; from the L2, over the memory's bandwidth; x and y, beside which the
rest goes on."""
_TILE, _ENDS, _ADDED, _UNEVEN = 0.23, 4.35e-5, 0.41, 1.9
"""Microseconds of a tile's end; of each result's; as much again for each byte that it reads; times so
much where pixels are not evenly apart."""
_CHANGED = 1e-4
"""Microseconds of an element's prologue, by a multiprocessor."""
_BESIDE_EACH_OTHER = 1.5  # 1 where sums and bytes wait for each other, much more where they do not


@dataclass(frozen=True, slots=True)
class HopperTile:
    """How the work is cut.

    Attributes:
        rows: Output pixels of a tile.
        columns: Its output channels.
        depth: Input channels of a step.
        warps: Each four hold 64 rows, or so many times that one after the other.
        stages: Steps in shared memory.
        persistent: Whether a program takes several tiles, one after the other.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    persistent: bool = False

    @property
    def shared(self) -> int:
        """Bytes of shared memory, two of them an element."""
        ring = 2 * self.stages * self.depth * (self.rows + self.columns)
        return ring + _SPARE + (_EXCHANGE * self.warps if self.persistent else 0)

    @property
    def sums(self) -> int:
        """Registers of a thread."""
        return self.rows * self.columns // (32 * self.warps)


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


_TILES = (
    HopperTile(128, 128, 64, 4, 5), HopperTile(128, 128, 64, 4, 3), HopperTile(256, 128, 64, 8, 4),
    HopperTile(128, 256, 64, 8, 4), HopperTile(64, 256, 64, 4, 4), HopperTile(128, 128, 64, 8, 3),
    HopperTile(128, 64, 64, 4, 5), HopperTile(128, 64, 64, 4, 4), HopperTile(128, 64, 64, 4, 3),
    HopperTile(64, 128, 64, 4, 5), HopperTile(64, 128, 64, 4, 4), HopperTile(64, 64, 64, 4, 6),
    HopperTile(64, 64, 64, 4, 3), HopperTile(128, 32, 64, 4, 4), HopperTile(64, 32, 64, 4, 5),
    HopperTile(64, 16, 64, 4, 5),
)  # fmt: skip


def hopper_tiles(call: CudaCall) -> tuple[HopperTile, ...]:
    """The tiles that suit a call."""
    k, c, r, s = call.inputs[1].shape
    depth = 64 if c > 32 else 32 if c > 16 else 16
    steps = r * s * ceil(c / depth)
    found = dict[HopperTile, None]()
    prologue = call.op.prologue != IDENTITY
    widest = 256 if tile_bytes(_epilogue(call)[0].code) else 512  # or registers spill
    for tile in _TILES:
        if tile.columns >= widest or (prologue and _with_operand(tile) > _MOST_WITH_OPERAND):
            continue
        if tile.columns < 2 * max(16, k) and tile.shared <= call.target.shared:
            stages = min(tile.stages, max(2, steps + 1))
            found[replace(tile, depth=depth, stages=stages)] = None
    return tuple(found)


def _with_operand(tile: HopperTile) -> int:
    """Registers of a thread for sums and for elements of x, in float32 while they are changed."""
    return tile.sums + tile.rows * tile.depth // (32 * tile.warps)


def persistent(call: CudaCall, tile: HopperTile) -> HopperTile | None:
    """The tile for programs that take several, if they would, with stages that it has steps for."""
    if call.op.prologue != IDENTITY:
        return None
    _, c, r, s = call.inputs[1].shape
    stages = min(tile.stages, r * s * ceil(c / tile.depth) + 1)
    lasting = replace(tile, stages=stages, persistent=True)
    while lasting.shared > call.target.shared:
        lasting = replace(lasting, stages=lasting.stages - 1)
    resident = _resident(call, lasting) * call.target.multiprocessors
    epilogue, even = _epilogue(call)
    if tile.sums >= 128 and (tile_bytes(epilogue.code) or not even):
        return None  # or registers spill
    return lasting if lasting.stages > 1 and _tiles(call, tile) > resident else None


def _resident(call: CudaCall, tile: HopperTile) -> int:
    """Programs that a multiprocessor runs at once."""
    each = _operands(tile, _epilogue(call)[0].code) + _BESIDE
    return max(1, min(call.target.shared // tile.shared, _FILE // (32 * tile.warps * each)))


def _tiles(call: CudaCall, tile: HopperTile) -> int:
    n, k, p, q = sums_of(call)
    return ceil(n * p * q / tile.rows) * ceil(k / tile.columns)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    if x.dtype not in (DType.F16, DType.BF16) or y.dtype is not x.dtype:
        return "element types"
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.prologue != IDENTITY and any(op.padding):
        return "a prologue, which padding has none of"
    if isinstance(op.store, InterleaveStore):
        return "an interleaving store"
    if not call.constant[1]:
        return "weights are no constant"
    if w.shape[1] % _VECTOR or y.shape[1] % _VECTOR:
        return f"{w.shape[1]} input channels, {y.shape[1]} of the result"
    return unfit(call) or _window(call) or _storage(call)


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
    if x.strides[3] != x.shape[1]:  # a slice may begin anywhere, TMA only at multiples of 16 bytes
        return "x is a part of wider pixels"
    if any(outer % step or outer < n * step for (_, outer), (n, step) in pairwise(_nested(x))):
        return "rows of x are apart by no whole number of pixels"
    apart = [(view.strides[axis], view.shape[axis]) for view in (x, y) for axis in (0, 2, 3)]
    if any(stride <= 0 or stride % _VECTOR for stride, size in apart if size > 1):
        return "pixels are no multiples of 16 bytes apart"
    return None


def _nested(x: View) -> list[tuple[int, int]]:
    """Size and stride of images, rows, pixels; where there is one, the stride is as if packed."""
    _, _, h, w = x.shape
    n_step, _, h_step, w_step = x.strides
    h_step = h_step if h > 1 else w * w_step
    n_step = n_step if x.shape[0] > 1 else h * h_step
    return [(x.shape[0], n_step), (h, h_step), (w, w_step)]


def _step(strides: Sequence[int], sizes: Sequence[int]) -> int | None:
    """Elements between neighbours counted through all images, rows and columns, if it is one."""
    axes = [(n, step) for n, step in zip(sizes, strides, strict=True) if n > 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


@per_call
def _epilogue(call: CudaCall) -> tuple[BlockEpilogue, bool]:
    """The epilogue, and whether pixels are evenly apart: they count as q then."""
    op: Conv2d = call.op
    n, k, p, q = sums_of(call)
    y = call.outputs[0]
    before = prologue_views(call)
    views = [view.broadcast_to((n, k, p, q)) for view in call.inputs[2 + len(before) :]]
    strides = [(view.strides[0], *view.strides[2:]) for view in (*views, y)]
    steps = [_step(three, (n, p, q)) for three in strides]
    block = op.store is not None
    even = [step for step in steps[:-1] if step is not None]
    if block or None in steps:
        return _block_epilogue(call, (*before, *views)), False
    merged = [
        View(view.dtype, (1, k, 1, n * p * q), (0, view.strides[1], 0, step))
        for view, step in zip(views, even, strict=True)
    ]
    return _block_epilogue(call, (*before, *merged)), True


def _block_epilogue(call: CudaCall, views: tuple[View, ...]) -> BlockEpilogue:
    """The epilogue over all operands, the prologue's before its own."""
    words, operands, integers = words_of(call, 2, len(call.inputs), views)
    expression = moved(call.op.epilogue, call.op.n_prologue)
    return BlockEpilogue((expression, *words), operands, integers)


def _micros(call: CudaCall, tile: HopperTile) -> float:
    """Tiles of the busiest multiprocessor, as many at a time as it holds; or the bytes.

    A tile alone takes its steps one after the other, as they arrive; several at a time share the
    matrix units and what comes from the L2.
    """
    op, machine = call.op, gpu(call.target.machine)
    _, c, r, s = call.inputs[1].shape
    epilogue, even = _epilogue(call)
    steps = r * s * ceil(c / tile.depth)
    flops = 2.0 * tile.rows * tile.columns * tile.depth
    busy = flops * machine.multiprocessors / (_RATE * machine.matrix_flops)
    read = 2.0 * tile.depth * (tile.rows + tile.columns) * machine.multiprocessors
    ends = tile.rows * tile.columns * _ENDS * (1.0 if even else _UNEVEN)
    ends = _TILE + ends * (1 + _ADDED * sum(tile_bytes(epilogue.code)))
    changed = tile.rows * tile.depth * _CHANGED if op.prologue != IDENTITY else 0.0
    shared = steps * max(busy, changed, read / (_READ * machine.bandwidth)) + ends
    alone = steps * max(busy + changed, _STEP / (tile.stages - 1)) + 2 * ends
    resident = _resident(call, tile)
    busiest = ceil(_tiles(call, tile) / machine.multiprocessors)
    if tile.persistent:
        rounds = ceil(busiest / resident)
        total = _BEGIN + rounds * (max(alone, min(resident, busiest) * shared) + _NEXT)
    else:
        whole, rest = divmod(busiest, resident)
        total = whole * max(_BEGIN + alone, resident * shared)
        total += max(_BEGIN + alone, rest * shared) if rest else 0.0
    nbytes = sum(v.extent * v.dtype.itemsize for v in (*call.inputs, *call.outputs))
    moved = nbytes / (_COPY * machine.bandwidth)
    together: float = total**_BESIDE_EACH_OTHER + moved**_BESIDE_EACH_OTHER
    return LAUNCH + together ** (1 / _BESIDE_EACH_OTHER)


def _variants(call: CudaCall) -> Iterator[Variant]:
    found = list(hopper_tiles(call))
    found += [tile for tile in (persistent(call, one) for one in found) if tile is not None]
    _, c, r, s = call.inputs[1].shape
    timed = sorted(((_micros(call, tile), i, tile) for i, tile in enumerate(found)))
    for place, (micros, _, tile) in enumerate(timed):
        build, rounding = partial(_launches, call, tile), tile.depth
        yield Variant(micros, partial(build, False), (rounding, False))
        if place < 2 and r * s > 1 and c > tile.depth:
            yield Variant(1.01 * micros, partial(build, True), (rounding, True))


def _launches(call: CudaCall, tile: HopperTile, taps_inner: bool) -> tuple[Launch, ...]:
    op: Conv2d = call.op
    x, y = call.inputs[0], call.outputs[0]
    n, k, p, q = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    block = op.store.block if isinstance(op.store, DepthToSpaceStore) else 1
    together = packed_block(call)
    (epilogue, even), steps = _epilogue(call), -(-c // tile.depth)
    config = HopperConfig(
        element_of(x), window_of(call), tile, taps_inner, even, block, bool(together),
        epilogue.code, str(op.prologue),
    )  # fmt: skip
    packing = Packing(
        "cuda.filters", (x.dtype.value, steps * tile.depth, *together), (1,),
        k * r * s * steps * tile.depth * x.dtype.itemsize,
    )  # fmt: skip
    upper_h, upper_w = _upper(call)
    step = _step((y.strides[0], *y.strides[2:]), (n, p, q)) if even else y.strides[3]
    integers = {
        "rows": n * p * q, "k": k // _VECTOR, "p": p, "q": q, "channels": y.shape[1] // _VECTOR,
        "steps": steps, "y_n": y.strides[0] // _VECTOR, "y_p": y.strides[2] // _VECTOR,
        "y_q": (step or 0) // _VECTOR, "n": n, "h": x.shape[2], "wd": x.shape[3], "c": c,
        "upper_h": upper_h, "upper_w": upper_w, "filters": k, "depth": r * s * steps * tile.depth,
        **{f"x_{axis}": step for axis, (_, step) in zip("nhw", _nested(x), strict=True)},
        **epilogue.integers,
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **epilogue.operands}
    programs = _tiles(call, tile)
    if tile.persistent:
        programs = min(programs, call.target.multiprocessors * _resident(call, tile))
    return (Launch(config, operands, integers, programs),)


def _entry(config: HopperConfig) -> Entry:
    tile = config.tile
    window = config.window.constants()
    del window["PADDED"]  # what lies outside is zero for TMA
    constants = {
        **window, "BM": tile.rows, "BN": tile.columns, "BK": tile.depth, "WARPS": tile.warps,
        "STAGES": tile.stages, "TAPS_INNER": config.taps_inner, "EVEN": config.even,
        "BLOCK": config.block, "CRD": config.packed, "EARLY": _early(config),
    }  # fmt: skip
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue)}
    if config.prologue != str(IDENTITY):
        functions["PROLOGUE"] = gluon_prologue_of((config.prologue, *config.epilogue[1:]))
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    return Entry(
        f"conv2d.hopper_code:{'convolve_tiles' if tile.persistent else 'convolve'}",
        (("y", config.element),),
        _INTEGERS,
        constants,
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        descriptors=_descriptors(config),
        gluon=True,
    )


def _early(config: HopperConfig) -> bool:
    """Whether registers hold what the epilogue reads for each element while products are made."""
    return _operands(config.tile, config.epilogue) <= _REGISTERS[config.tile.persistent]


def _operands(tile: HopperTile, code: EpilogueCode) -> int:
    """Registers of a thread for sums and for what an epilogue adds to them, about."""
    return tile.sums + sum(tile.sums * size // 4 for size in tile_bytes(code)) + tile.columns // 4


def _descriptors(config: HopperConfig) -> tuple[Descriptor, ...]:
    tile, window = config.tile, config.window
    pixels = Descriptor(
        "x", config.element, (tile.rows, tile.depth), ("n", "h", "wd", "c"),
        ("x_n", "x_h", "x_w", 1), tuple(-pad for pad in window.padding), ("upper_h", "upper_w"),
        window.stride,
    )  # fmt: skip
    block = (tile.columns, tile.depth)
    weights = Descriptor("w", config.element, block, ("filters", "depth"), ("depth", 1))
    return pixels, weights


CONV2D_HOPPER = CudaKernel("conv2d.hopper", (Conv2d,), HopperConfig, _supports, _variants, _entry)
