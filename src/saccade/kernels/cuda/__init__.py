"""How operators are done on NVIDIA's GPUs: one folder per family, a list of all kernels.

Files are named as in `kernels.cpu`. `<algorithm>_code.py` holds handwritten Triton functions, which
only compiling and interpreting import; `<algorithm>.py` plans, with an `Entry` for each config.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.kernels.cuda.base import CudaKernel

__all__ = ["CUDA_KERNELS", "CudaListed", "kernel_named", "kernels_for"]


class CudaListed(NamedTuple):
    """Where a kernel is.

    Attributes:
        name: `CudaKernel.name`.
        ops: Names of the classes in `CudaKernel.ops`.
        module: In `saccade.kernels.cuda`.
        value: What the `CudaKernel` is called there.
    """

    name: str
    ops: tuple[str, ...]
    module: str
    value: str


# fmt: off
CUDA_KERNELS: tuple[CudaListed, ...] = (
    CudaListed(
        "conv2d.implicit_gemm", ("Conv2d",), "conv2d.implicit_gemm", "CONV2D_IMPLICIT_GEMM",
    ),
    CudaListed("conv2d.hopper", ("Conv2d",), "conv2d.hopper", "CONV2D_HOPPER"),
    CudaListed(
        "conv2d.hopper_rows", ("Conv2d",), "conv2d.hopper_rows", "CONV2D_HOPPER_ROWS",
    ),
)
# fmt: on


@cache
def kernels_for(op: str) -> tuple[CudaKernel, ...]:
    """The kernels that may be asked about an operator, by its class's name, in the list's order."""
    return tuple(_load(entry) for entry in CUDA_KERNELS if op in entry.ops)


def kernel_named(name: str) -> CudaKernel:
    """The kernel of this name."""
    return _load(_entries()[name])


@cache
def _entries() -> dict[str, CudaListed]:
    return {entry.name: entry for entry in CUDA_KERNELS}


@cache
def _load(entry: CudaListed) -> CudaKernel:
    with forkless:
        found: CudaKernel = getattr(
            import_module(f"saccade.kernels.cuda.{entry.module}"), entry.value
        )
    return found
