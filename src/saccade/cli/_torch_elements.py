"""ONNX's operators over elements, and those that pick some, as functions of PyTorch tensors.

As `_torch_operators` has them: inputs by position, attributes by ONNX's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from saccade.errors import OptionError

__all__ = ["ELEMENTS", "PICKED", "REDUCED"]

Tensor = Any


def _reducing(kind: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(
        x: Tensor, given: Sequence[int] | None = None, *, axes: Sequence[int] = (),
        keepdims: int = 1, noop_with_empty_axes: int = 0,
    ) -> Tensor:  # fmt: skip
        """Over axes that are an input or an attribute, else over all."""
        over = tuple(given or axes)
        if not over and noop_with_empty_axes:
            return x
        return kind(x, over or tuple(range(x.dim())), keepdim=bool(keepdims))

    return reduced


def _of_all(kind: Callable[..., Any]) -> Callable[..., Any]:
    def over(*parts: Tensor) -> Tensor:
        """Of one operand or more."""
        return reduce(kind, parts)

    return over


def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: bytes = b"linear",
    padding_mode: bytes = b"zeros",
) -> Tensor:  # fmt: skip
    """Samples of images at the places of a grid."""
    names = {b"linear": "bilinear", b"cubic": "bicubic"}
    how = names.get(mode, mode.decode())
    return F.grid_sample(x, grid, how, padding_mode.decode(), bool(align_corners))


def top_k(
    x: Tensor, k: Sequence[int], *, axis: int = -1, largest: int = 1, sorted: int = 1,  # noqa: A002
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest or smallest elements along an axis, and where they are."""
    values, places = torch.topk(x, k[0], axis, bool(largest), bool(sorted))
    return values, places


def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """An element for each index; negative ones count from the end."""
    return torch.gather(x, axis, torch.where(indices < 0, indices + x.shape[axis], indices))


def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Where the largest element along an axis is."""
    if select_last_index:
        raise OptionError("an ArgMax of last indices is not known")
    return torch.argmax(x, axis, bool(keepdims))


def instance_normalization(
    x: Tensor, scale: Tensor, shift: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """Each channel of each image by its own mean and deviation."""
    return F.instance_norm(x, weight=scale, bias=shift, eps=epsilon)


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Repeats along each axis."""
    return x.repeat(*repeats)


REDUCED: Mapping[str, Callable[..., Any]] = {
    "ReduceMax": _reducing(torch.amax),
    "ReduceMean": _reducing(torch.mean),
    "ReduceMin": _reducing(torch.amin),
    "ReduceSum": _reducing(torch.sum),
}
"""Their second input is axes."""

PICKED: Mapping[str, Callable[..., Any]] = {"TopK": top_k, "Tile": tile}
"""Their second input is a count."""

ELEMENTS: Mapping[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "And": torch.logical_and,
    "ArgMax": arg_max,
    "Cos": torch.cos,
    "Equal": torch.eq,
    "Floor": torch.floor,
    "GatherElements": gather_elements,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "GridSample": grid_sample,
    "InstanceNormalization": instance_normalization,
    "IsNaN": torch.isnan,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Log": torch.log,
    "Max": _of_all(torch.maximum),
    "Min": _of_all(torch.minimum),
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Reciprocal": torch.reciprocal,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Where": torch.where,
}
"""All inputs are tensors."""
