"""Estimated times on the described GPU that a target names."""

from __future__ import annotations

from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import per_call
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.precision import product_dtype

__all__ = [
    "LAUNCH",
    "PROGRAM",
    "SHARED_PORT",
    "cached_micros",
    "moved_bytes",
    "operation_micros",
    "product_micros",
    "stream_micros",
]

LAUNCH = 1.3
"""Microseconds from launch to launch inside a CUDA graph, of programs that wait by themselves (one
H200)."""
PROGRAM = 1.25e-3
"""Microseconds from the start of a program to that of the next, whatever they do: 75 000 programs
of a vector norm took 94.6, 920 000 of a copy 1 112 (one H200)."""
SHARED_PORT = 202e3
"""Bytes a microsecond from and to a multiprocessor's shared memory: 128 a cycle, nearly (fitted to
64 times of 16 convolutions on one H100)."""
_CACHE = 0.89  # of the L2 cache's rate, which loads of threads reach (an estimate)


@per_call
def moved_bytes(call: CudaCall) -> int:
    """Bytes of all operands and results."""
    return sum(view.nbytes for view in (*call.inputs, *call.outputs))


def stream_micros(call: CudaCall, nbytes: float | None = None) -> float:
    """Of a kernel that only moves bytes: those of its operands and results, or so many."""
    if nbytes is None:
        nbytes = moved_bytes(call)
    return LAUNCH + nbytes / (0.8 * gpu(call.target.machine).bandwidth)


def cached_micros(call: CudaCall, nbytes: float, programs: float) -> float:
    """Of reading so many bytes from the L2 cache, by programs that may be too few for it."""
    machine = gpu(call.target.machine)
    filled = min(1.0, max(1.0, programs) / machine.multiprocessors)
    return nbytes / (_CACHE * machine.cached * filled)


def operation_micros(call: CudaCall, operations: float) -> float:
    """Of so many operations other than fused products and sums, which count as two."""
    return operations / (0.5 * gpu(call.target.machine).flops)


def product_micros(
    call: CudaCall, rows: int, columns: int, depth: int, tile: tuple[int, int, int, int, int]
) -> float:
    """Of a matrix product in blocks: its waves over the multiprocessors, or its bytes.

    Args:
        call: The call.
        rows: Of the product.
        columns: The same.
        depth: Terms of each sum.
        tile: Rows, columns and depth of a block, warps, stages.
    """
    machine = gpu(call.target.machine)
    bm, bn, bk, _, _ = tile
    blocks = -(-rows // bm) * -(-columns // bn)
    steps = -(-depth // bk)
    rate = machine.matrix_flops if product_dtype(call) is not DType.F32 else machine.flops
    per_block = steps * 2.0 * bm * bn * bk / (rate / machine.multiprocessors)
    fill: float = min(1.0, bm * bn / (128 * 128)) ** 0.35  # small blocks read more for each product
    resident = max(1, min(4, (128 * 128 * 2) // (bm * bn)))
    waves = ceil(blocks / (machine.multiprocessors * resident)) * resident
    busy = waves * per_block / (0.75 * fill)
    return LAUNCH + max(busy, moved_bytes(call) / (0.8 * machine.bandwidth))
