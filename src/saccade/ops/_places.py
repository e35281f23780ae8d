"""Where an operator's tensors are, and which library runs it there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.ir import Op
from saccade.kernels.base import View
from saccade.ops._library import library

if TYPE_CHECKING:
    from saccade.backends.trace import SymbolicTrace
    from saccade.ops._cuda_library import CudaLibrary, OfflineLibrary

__all__ = [
    "OperatorLibrary", "ReadyOperation", "compiling_for", "library_at", "offline", "place_of",
]  # fmt: skip


class ReadyOperation(Protocol):
    """A call that only waits for its operands."""

    def fits(self, count: int) -> bool:
        """Whether it can run for a count."""

    def run(self, count: int, pointers: Sequence[int]) -> int:
        """Do it with operands, then results, at these addresses; boxes of no image, if known."""


class OperatorLibrary(Protocol):
    """What makes operations for one device."""

    def make(
        self,
        op: Op,
        inputs: tuple[View, ...],
        outputs: tuple[View, ...],
        threads: int,
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
    ) -> ReadyOperation:
        """The operation of a new call: see `_library.Library.make`."""


_opened: dict[tuple[int, bool], CudaLibrary] = {}
_offline: ContextVar[OfflineLibrary | None] = ContextVar("offline", default=None)


def place_of(tensors: Sequence[Tensor], *, products: bool) -> CudaLibrary | OfflineLibrary:
    """The library for tensors that are not on the CPU; raises what a GPU has reported so far.

    Args:
        tensors: On one device.
        products: Whether the operator multiplies matrices.

    Raises:
        OperandError: If there were boxes of images that are not there.
        DeviceError: If the GPU cannot be used.
    """
    first = tensors[0]
    if first.is_meta:
        ahead = _offline.get()
        if ahead is None:
            raise OperandError("tensors on meta have no contents")
        return ahead
    if not first.is_cuda:
        raise OperandError(f"operands must be on the CPU or on a GPU of NVIDIA: {first.device}")
    tf32 = products and first.dtype is torch.float32 and _rounds_to_tf32()
    found = _opened.get((first.device.index, tf32))
    if found is None:
        # Only where there is a GPU.
        from saccade.ops._cuda_library import cuda_library  # noqa: PLC0415

        found = _opened[first.device.index, tf32] = cuda_library(first.device.index, tf32)
    found.reports.check()
    return found


def _rounds_to_tf32() -> bool:
    """Whether PyTorch's own products of float32 matrices may."""
    if _precision is not None:  # since 2.9, where the older flag may refuse
        return bool(_precision("cuda", "matmul") == "tf32")
    return bool(torch.backends.cuda.matmul.allow_tf32)


# What `torch.backends.cuda.matmul.fp32_precision` asks in six times the time.
_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


def library_at(place: object) -> OperatorLibrary:
    """The library of a place, which for the CPU is a number of threads."""
    return library() if isinstance(place, int) else place  # type: ignore[return-value]


def offline() -> OfflineLibrary | None:
    """Where calls on meta are compiled for, if anywhere."""
    return _offline.get()


@contextmanager
def compiling_for(ahead: OfflineLibrary) -> Iterator[None]:
    """Within the block, calls on meta compile what they would run."""
    token = _offline.set(ahead)
    try:
        yield
    finally:
        _offline.reset(token)
