"""Tensors of PyTorch as Saccade's views, and fresh ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from saccade.backends.cpu.runtime.workspace import HUGE_PAGE, advise_huge_pages
from saccade.errors import OperandError
from saccade.ir import DType
from saccade.kernels.base import View

__all__ = [
    "DTYPES",
    "FLOATS",
    "PLAIN",
    "bad_boxes",
    "empty_as",
    "empty_like",
    "fake_like",
    "in_huge_pages",
    "layout_of",
    "memory_format",
    "plain",
    "refuse_others",
    "refuse_type",
    "view_of",
]

DTYPES = {
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.float64: DType.F64,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
    torch.uint16: DType.U16,
    torch.uint32: DType.U32,
    torch.uint64: DType.U64,
}
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
PLAIN = frozenset((Tensor, torch.nn.Parameter))
"""Types whose methods are PyTorch's own: what they say of sizes and strides is true."""

_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # bytes of the machine


def plain(name: str, tensors: Iterable[object]) -> list[Tensor]:
    """The tensors behind those of other types, whose own methods may say anything.

    Raises:
        OperandError: If one is not a tensor.
    """
    found = []
    # Else `as_subclass` itself would go through a subclass's `__torch_function__`.
    with torch._C.DisableTorchFunctionSubclass():
        for number, tensor in enumerate(tensors, 1):
            if not isinstance(tensor, Tensor):
                refuse_type(name, f"operand {number}", tensor)
            own = type(tensor) in PLAIN
            found.append(tensor if own else Tensor.as_subclass(tensor, Tensor))
    return found


def refuse_others(name: str, **operands: object) -> None:
    """Refuse the first that is not a tensor."""
    for operand, given in operands.items():
        if not isinstance(given, Tensor):
            refuse_type(name, operand, given)


def refuse_type(name: str, operand: str, given: object) -> NoReturn:
    """Raise for what is not a tensor."""
    raise OperandError(f"{name}: {operand} is a {type(given).__name__}, not a tensor")


def bad_boxes(name: str, number: int) -> OperandError:
    """The error of an operator that met so many boxes of no image."""
    return OperandError(
        f"{name}: rois batch index must be in [0, batch_size), is not in {number} of them"
    )


def view_of(tensor: Tensor) -> View:
    """How a tensor's elements lie."""
    return View(DTYPES[tensor.dtype], tuple(tensor.shape), tensor.stride())


def memory_format(tensor: Tensor) -> torch.memory_format:
    """Channels-last for images that are stored so and not row-major as well, else contiguous."""
    if tensor.dim() == 4 and _lies(tensor, torch.channels_last):
        plain = _lies(tensor, torch.contiguous_format)
        return torch.contiguous_format if plain else torch.channels_last
    return torch.contiguous_format


def _lies(images: Tensor, layout: torch.memory_format) -> bool:
    """Whether images are dense in a memory format.

    Where their number is a symbol it counts as more than one, without a guard: it may follow from
    what stands in a tensor, as the number of boxes that `nms` keeps.
    """
    if not isinstance(images.shape[0], torch.SymInt):
        return images.is_contiguous(memory_format=layout)
    axes = (1, 3, 2, 0) if layout is torch.channels_last else (3, 2, 1, 0)
    step: int | torch.SymInt = 1
    for axis in axes:
        size = images.shape[axis]
        # As PyTorch has it: without elements, images are dense in every format.
        if axis and size == 0:
            return True
        # Nothing ever steps along an axis of 1, so that its stride may be anything.
        if (not axis or size != 1) and images.stride(axis) != step:
            return False
        step *= size
    return True


def layout_of(channels_last: bool) -> torch.memory_format:
    """The memory format of images, as gradients' operators are told it."""
    return torch.channels_last if channels_last else torch.contiguous_format


def fake_like(
    tensor: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype | None = None,
    layout: torch.memory_format | None = None,
) -> Tensor:
    """A tensor in this tensor's memory format (or another), for shape functions.

    Sizes may be symbols.

    Raises:
        OperandError: If there is no memory for so many elements, or no number of them.
    """
    if layout is None:
        # Channels-last is for rank 4 alone.
        layout = memory_format(tensor) if len(shape) == 4 else torch.contiguous_format
    try:
        return torch.empty(
            tuple(shape), dtype=dtype or tensor.dtype, device=tensor.device, memory_format=layout
        )
    except RuntimeError as error:
        # Errors of a trace are subclasses, or come with symbols: its tracer has to see them so.
        if type(error) is not RuntimeError or any(isinstance(n, torch.SymInt) for n in shape):
            raise
        raise OperandError(f"there is no memory for a result of {list(shape)}: {error}") from error


def empty_like(
    tensor: Tensor,
    shape: Sequence[int],
    dtype: torch.dtype | None = None,
    layout: torch.memory_format | None = None,
) -> Tensor:
    """The same with memory, anything in it; in huge pages where it is large.

    A fresh page costs a fault and its zeros; of small pages that is more than most operators take.
    """
    return in_huge_pages(fake_like(tensor, shape, dtype, layout))


def empty_as(tensor: Tensor) -> Tensor:
    """The same for a result of the same sizes and dtype, its axes in the same order in memory."""
    return in_huge_pages(torch.empty_like(tensor))


def in_huge_pages(fresh: Tensor) -> Tensor:
    """The tensor, which nobody has written yet, in huge pages where it is large.

    Raises:
        OperandError: If the machine does not have the memory, whatever its system promises.
    """
    # From this size on a whole huge page lies in it, wherever it begins.
    if fresh.nbytes >= 2 * HUGE_PAGE and fresh.is_cpu:
        # Under overcommit the allocation succeeds, and the process dies as it writes.
        if fresh.nbytes > _MEMORY:
            raise OperandError(
                f"a result of {list(fresh.shape)} takes {fresh.nbytes} bytes, the machine has "
                f"{_MEMORY}"
            )
        advise_huge_pages(fresh.data_ptr(), fresh.nbytes)
    return fresh
