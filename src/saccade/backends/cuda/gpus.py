"""Known GPUs: what plans for them are chosen by, from the vendor's data sheets unless said."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.errors import OptionError

__all__ = ["GPUS", "Gpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A described GPU.

    Attributes:
        name: What options and plans call it.
        product: The start of what the driver calls it.
        arch: Compute capability times ten.
        multiprocessors: How many there are.
        shared: Bytes of shared memory that a program may have.
        flops: float32 operations per microsecond, without matrix units.
        matrix_flops: The same of dense float16 products that are summed in float32.
        bandwidth: Bytes per microsecond from and to memory.
        cache: Bytes of the L2 cache.
    """

    name: str
    product: str
    arch: int
    multiprocessors: int
    shared: int
    flops: float
    matrix_flops: float
    bandwidth: float
    cache: int


_ALL = (
    # Copy and 8192³ product as measured on one (4.24 TB/s, 677 TFLOP/s on random data).
    Gpu("h200", "NVIDIA H200", 90, 132, 227 << 10, 67e6, 677e6, 4.24e6, 50 << 20),
    Gpu("h100", "NVIDIA H100", 90, 132, 227 << 10, 67e6, 677e6, 3.0e6, 50 << 20),
    Gpu("a100", "NVIDIA A100", 80, 108, 163 << 10, 19.5e6, 312e6, 1.6e6, 40 << 20),
    Gpu("l4", "NVIDIA L4", 89, 58, 99 << 10, 30e6, 121e6, 0.27e6, 48 << 20),
    Gpu("rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 99 << 10, 82e6, 165e6, 0.95e6, 72 << 20),
)
GPUS = {one.name: one for one in _ALL}


def gpu(name: str) -> Gpu:
    """The GPU of this name.

    Raises:
        OptionError: If there is none.
    """
    if name not in list(GPUS):  # of whatever type
        raise OptionError(f"machine={name!r} is not one of {', '.join(GPUS)}")
    return GPUS[name]
