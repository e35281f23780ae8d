"""Blocks of matrix products, and how long they are estimated to take."""

from __future__ import annotations

from math import ceil

from saccade.backends.cuda.gpus import Gpu, gpu
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import DType
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.matmul.product_axes import ProductAxes
from saccade.kernels.cuda.precision import product_dtype

__all__ = ["LATENCY", "Tile", "splits_of", "sum_micros", "tiled_micros", "tiles_for"]

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


def tiles_for(precision: str, operand: DType, target: GpuTarget) -> tuple[Tile, ...]:
    """Blocks worth a try.

    Args:
        precision: Of float32 products.
        operand: What blocks of operands hold.
        target: The GPU.
    """
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


def _programs(axes: ProductAxes, tile: Tile) -> int:
    return axes.matrices * -(-axes.all_rows // tile[0]) * -(-axes.columns // tile[1])


def splits_of(call: CudaCall, axes: ProductAxes, tile: Tile) -> tuple[int, ...]:
    """How many programs may share the sums of a block; 1 first."""
    programs, steps = _programs(axes, tile), -(-axes.inner // tile[2])
    most = _SPLIT_ROWS * gpu(call.target.machine).multiprocessors
    return (1, *(n for n in _SPLITS if 2 * n <= steps and 0 < programs * n <= most))


def tiled_micros(
    call: CudaCall, axes: ProductAxes, tile: Tile, splits: int, precision: str
) -> float:
    """Estimated microseconds: arithmetic, operands through the L2 cache, latencies or memory."""
    machine = gpu(call.target.machine)
    bm, bn, bk, _, stages = tile
    wide = product_dtype(call).itemsize
    programs = _programs(axes, tile) * splits
    steps = ceil(-(-axes.inner // bk) / splits)
    # One multiprocessor's time for a step of a block, and the blocks that it gets.
    rate = _rate(machine, precision, wide) / machine.multiprocessors
    step = max(2.0 * bm * bn * bk / rate, (bm + bn) * bk * wide / _FILL)
    fill: float = min(1.0, bm * bn / (128 * 256)) ** 0.15  # small blocks wait more for each product
    busy = ceil(programs / machine.multiprocessors) * steps * step / (0.85 * fill)
    waves = ceil(programs / (machine.multiprocessors * _resident(machine, tile, wide)))
    latency = waves * LATENCY * (1.5 + steps / (stages - 1))
    nbytes = sum(view.nbytes for view in (*call.inputs, call.outputs[0]))
    one = LAUNCH + max(busy, latency, nbytes / (0.8 * machine.bandwidth))
    return one + sum_micros(machine, call.outputs[0].size, splits)


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
