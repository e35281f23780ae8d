"""How long sums in blocks are estimated to take, for the kernels that sum as implicit GEMM does.

A new size of an image changes how many rows the products have and nothing else: what follows from
layer, tile and GPU is computed once and stands in tables.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import per_call
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.implicit_gemm_config import Tile
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes
from saccade.kernels.cuda.precision import dot_precision, product_dtype

__all__ = ["BEGIN", "Products", "tile_times"]

BEGIN = 0.8
"""Microseconds more, until programs have their first operands (98 layers in float16, one H100)."""

# What these kernels reach of the L2 cache's rate, and microseconds from asking for what a step
# multiplies to having it: estimates, which factors measured on one H200 correct
# (`implicit_gemm._MEASURED`).
_CACHED, _LATENCY = 0.535, 0.7
# Blocks whose float32 is three products of TF32, times over estimates without this: 27 steps of
# ResNet-50 at batch 32, one H200 (other GPUs: taken over). Parts of operands take registers, and
# large blocks spill.
_THREE = {
    (128, 128): 2.2, (128, 64): 1.45, (64, 128): 4.0, (64, 64): 1.45, (256, 64): 1.15,
    (128, 32): 0.95, (64, 32): 0.9,
}  # fmt: skip
_OTHER_THREE = 1.5


class Products(NamedTuple):
    """The products of a layer, but for their rows.

    Attributes:
        matrices: How many there are.
        columns: Of each.
        taps: Parts of each sum.
        terms: Of a part, which takes whole steps.
    """

    matrices: int
    columns: int
    taps: int
    terms: int


class _BlockWork(NamedTuple):
    """Of a tile, whatever the rows.

    Attributes:
        rows: Of a block.
        beside: Blocks of the same rows, in all products and parts of sums.
        steps: Of a block.
        operations: Of a block.
        rate: Operations per microsecond of a multiprocessor.
        room: Blocks that the GPU holds at the same time.
        ahead: Steps that are asked for before their turn.
        nbytes: Of a block's operands.
    """

    rows: int
    beside: int
    steps: int
    operations: float
    rate: float
    room: int
    ahead: int
    nbytes: int


def tile_times(
    call: CudaCall,
    tiles: tuple[Tile, ...],
    products: Products,
    rows: int,
    splits: tuple[int, ...] = (),
) -> list[tuple[float, int]]:
    """Estimated microseconds of sums in blocks of each tile, and blocks of the busiest processor.

    Args:
        call: The call.
        tiles: The tiles.
        products: What is summed.
        rows: Of each product.
        splits: For each tile the parts that sums are made in; none unless given.
    """
    target = call.target
    size = call.inputs[0].dtype.itemsize
    three = dot_precision(call) == "tf32x3"
    table = _works(tiles, products, splits, target.machine, size, _rate(call), three)
    machine = gpu(target.machine)
    multiprocessors, cached_rate = machine.multiprocessors, _CACHED * machine.cached
    moved = moved_bytes(call) / (0.8 * machine.bandwidth)
    found = []
    for height, beside, steps, operations, rate, room, ahead, nbytes in table:
        blocks = beside * -(-rows // height)
        waves = -(-blocks // multiprocessors)
        busy = waves * operations / rate
        waited = -(-blocks // room) * steps * _LATENCY / ahead
        # Every block reads its rows and columns anew, from the L2 cache at best.
        fill = 1.0 if blocks >= multiprocessors else max(1e-3, blocks / multiprocessors)
        cached = blocks * nbytes / (cached_rate * fill)
        longest = busy if busy > moved else moved
        longest = waited if waited > longest else longest
        longest = cached if cached > longest else longest
        found.append((LAUNCH + longest + 0.05 * (busy + cached), waves))
    return found


@lru_cache(maxsize=4096)
def _works(
    tiles: tuple[Tile, ...],
    products: Products,
    splits: tuple[int, ...],
    machine: str,
    size: int,
    rate: float,
    three: bool,
) -> tuple[_BlockWork, ...]:
    """Of each tile; `size` is bytes of an element, `rate` operations per microsecond.

    `three` says that these are three products of TF32 each.
    """
    known = gpu(machine)
    works = []
    for (bm, bn, bk, _, stages), parts in zip(tiles, splits or (1,) * len(tiles), strict=True):
        depth = products.taps * -(-products.terms // bk) * bk
        steps = -(-depth // (bk * parts))
        # Small blocks read more for each product, and wait for it where few are at work.
        part: float = min(1.0, bm * bn / (128 * 128)) ** 0.35
        part /= _THREE.get((bm, bn), _OTHER_THREE) if three else 1.0
        resident = max(1, min(8, known.shared // (stages * (bm + bn) * bk * size)))
        works.append(
            _BlockWork(
                bm,
                products.matrices * parts * -(-products.columns // bn),
                steps,
                steps * 2.0 * bm * bn * bk,
                0.75 * part * rate / known.multiprocessors,
                known.multiprocessors * resident,
                max(1, stages - 1),
                steps * bk * (bm + bn) * size,
            )
        )
    return tuple(works)


@per_call
def _rate(call: CudaCall) -> float:
    """Operations per microsecond."""
    machine = gpu(call.target.machine)
    if product_dtype(call) is not DType.F32:
        return machine.matrix_flops
    # TF32 has half the rate of float16, and three of its products make one of float32.
    parts = {"tf32": 2.0, "tf32x3": 6.0}.get(dot_precision(call))
    return machine.matrix_flops / parts if parts else machine.flops
