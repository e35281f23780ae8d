"""Tensors on a GPU in parts that its kernels can count: they count elements with 32 bits."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

__all__ = ["countable", "parts"]

_MOST = (1 << 31) - 1


def countable(tensor: Tensor) -> bool:
    """Whether kernels can count its elements; those of the CPU count any number.

    What is no tensor the operator refuses.
    """
    return not isinstance(tensor, Tensor) or tensor.is_cpu or tensor.numel() <= _MOST


def parts(*given: tuple[Tensor, int | None]) -> Iterator[list[Tensor]]:
    """Parts of tensors along an axis of each, as few as can be counted; one where all can.

    Args:
        given: Tensors, each with the axis along which it is cut, of one length; None for one that
            is the same for all parts.
    """
    cut = [(tensor, axis) for tensor, axis in given if axis is not None]
    length = cut[0][0].shape[cut[0][1]]
    if all(countable(tensor) for tensor, _ in cut):
        yield [tensor for tensor, _ in given]
        return
    share = max(1, length * _MOST // max(tensor.numel() for tensor, _ in cut))
    for first in range(0, length, share):
        count = min(share, length - first)
        yield [
            tensor if axis is None else tensor.narrow(axis, first, count) for tensor, axis in given
        ]
