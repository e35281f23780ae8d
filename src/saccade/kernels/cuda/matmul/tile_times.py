"""Blocks of matrix products, and how long they are estimated to take."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from saccade.backends.cuda.gpus import Gpu, gpu
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.matmul.product_axes import ProductAxes
from saccade.kernels.cuda.precision import product_dtype

__all__ = ["LATENCY", "Tile", "sum_micros", "tiled_times"]

Tile = tuple[int, int, int, int, int]
"""Rows, columns and depth of a block, warps, stages."""

_TILES: tuple[Tile, ...] = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 3),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 32, 64, 4, 5),
    (32, 64, 64, 4, 5), (32, 32, 128, 4, 4), (16, 64, 128, 4, 4), (16, 32, 128, 4, 4),
    (16, 128, 64, 4, 5), (128, 16, 64, 4, 5),
)  # fmt: skip
"""Of 16-bit elements; of float32 blocks are half as deep, which is as many bytes."""
_EXACT_TILES: tuple[Tile, ...] = (
    (128, 128, 16, 8, 3), (128, 64, 32, 8, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 4),
    (32, 32, 32, 4, 4), (16, 64, 32, 4, 4), (16, 32, 64, 4, 4),
)  # fmt: skip
"""Of float32 products without matrix units, whose operands are registers."""
_HELD = {True: 64, False: 32}
"""Elements of a block of float32 for each thread beyond which registers spill: on Hopper, whose b
stays in shared memory, or of one TF32 product; and elsewhere, of three for one of float32."""
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 32)  # parts of a sum
LATENCY = 0.7  # microseconds from a load to its use, one H200's memory
_FILL = 85e3  # bytes that one multiprocessor reads from L2 in a microsecond (an estimate)
_SPLIT_ROWS = 4  # waves of programs beyond which dividing sums has nothing left to fill


class _ProductWork(NamedTuple):
    """Of a tile, whatever the sizes of a product.

    Attributes:
        tile: The tile.
        step: Microseconds of a step of a block, on one multiprocessor.
        filled: What small blocks use of that, as they wait more for each product.
        room: Programs that the GPU holds at the same time.
    """

    tile: Tile
    step: float
    filled: float
    room: int


@lru_cache(maxsize=64)
def _works(precision: str, operand: DType, target: GpuTarget) -> tuple[_ProductWork, ...]:
    """Of blocks worth a try.

    Args:
        precision: Of float32 products.
        operand: What blocks of operands hold.
        target: The GPU.
    """
    machine, wide = gpu(target.machine), operand.itemsize
    # One multiprocessor's time for a step of a block.
    rate = _rate(machine, precision, wide) / machine.multiprocessors
    works = []
    for tile in _tiles(precision, operand, target):
        bm, bn, bk, _, _ = tile
        step = max(2.0 * bm * bn * bk / rate, (bm + bn) * bk * wide / _FILL)
        fill: float = min(1.0, bm * bn / (128 * 256)) ** 0.15
        room = machine.multiprocessors * _resident(machine, tile, wide)
        works.append(_ProductWork(tile, step, 0.85 * fill, room))
    return tuple(works)


def _tiles(precision: str, operand: DType, target: GpuTarget) -> tuple[Tile, ...]:
    tiles = _TILES
    if operand is DType.F32 and precision == "ieee":
        tiles = _EXACT_TILES
    elif operand is DType.F32:
        tiles = tuple((bm, bn, bk // 2, warps, stages) for bm, bn, bk, warps, stages in _TILES)
    if operand is DType.F32 and precision != "ieee":
        each = _HELD[target.arch // 10 == 9 or precision == "tf32"]
        tiles = tuple(t for t in tiles if t[0] * t[1] <= 32 * t[3] * each)
    return tuple(tile for tile in tiles if _staged(tile, operand.itemsize) <= target.shared)


def _staged(tile: Tile, nbytes: int) -> int:
    """Bytes of shared memory that blocks of elements of so many bytes take."""
    bm, bn, bk, _, stages = tile
    return (bm + bn) * bk * nbytes * stages


def tiled_times(call: CudaCall, axes: ProductAxes, precision: str) -> list[tuple[float, Tile, int]]:
    """Estimated microseconds of each tile and number of programs that share a block's sums.

    Arithmetic, operands through the L2 cache, latencies or memory.
    """
    machine = gpu(call.target.machine)
    multiprocessors = machine.multiprocessors
    matrices, rows, columns, inner = axes.matrices, axes.all_rows, axes.columns, axes.inner
    nbytes = sum(view.nbytes for view in (*call.inputs, call.outputs[0]))
    memory, size = nbytes / (0.8 * machine.bandwidth), call.outputs[0].size
    adding = {n: sum_micros(machine, size, n) for n in (1, *_SPLITS)}
    found = []
    for tile, step, filled, room in _works(precision, product_dtype(call), call.target):
        bm, bn, bk, _, stages = tile
        blocks, all_steps = matrices * -(-rows // bm) * -(-columns // bn), -(-inner // bk)
        for splits in _splits(blocks, all_steps, multiprocessors):
            programs, steps = blocks * splits, -(-all_steps // splits)
            busy = -(-programs // multiprocessors) * steps * step / filled
            latency = -(-programs // room) * LATENCY * (1.5 + steps / (stages - 1))
            found.append((LAUNCH + max(busy, latency, memory) + adding[splits], tile, splits))
    return found


def _splits(programs: int, steps: int, multiprocessors: int) -> Iterator[int]:
    """How many programs may share the sums of a block; 1 first."""
    yield 1
    most = _SPLIT_ROWS * multiprocessors
    for n in _SPLITS:
        if 2 * n > steps or not 0 < programs * n <= most:
            break
        yield n


def sum_micros(machine: Gpu, size: int, splits: int) -> float:
    """Of parts of `size` sums: written, and read by the launch that adds them."""
    if splits == 1:
        return 0.0
    parts = 4.0 * splits * size
    rate = machine.bandwidth * (2 if parts < machine.cache / 2 else 0.8)
    return LAUNCH + 2 * parts / rate


def _rate(machine: Gpu, precision: str, nbytes: int) -> float:
    """Operations per microsecond."""
    if nbytes == 2:
        return machine.matrix_flops
    return {"ieee": machine.flops, "tf32": machine.matrix_flops / 2}.get(
        precision, machine.matrix_flops / 6
    )


def _resident(machine: Gpu, tile: Tile, nbytes: int) -> int:
    """Programs that one multiprocessor holds: by shared memory and by registers."""
    threads = 32 * tile[3]
    registers = threads * (64 + tile[0] * tile[1] // threads)
    return max(1, min(machine.shared // _staged(tile, nbytes), 65536 // registers))
