"""What a call costs beside its work: small calls, timed beside operators that do nothing.

The empty operator has the schema of the one that is timed, and is registered as that is: with a
gradient where it has one. What is more than its time is ours: checks, results, kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from saccade import ops
from saccade.cli._operator_cases import Bout, OperatorCase
from saccade.ops._register import Gradient, define

__all__ = ["call_cases"]

_AIM = 15.0  # microseconds
_BOXES, _CHANNELS, _SIDE = 16, 8, 32
_COUNTS = range(_BOXES - 8, _BOXES + 9)  # one after the other

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Small:
    """A small call.

    Attributes:
        public: Of the operands.
        raw: Its arguments as the operator has them.
        operands: For a number of boxes.
        counted: Whether there are boxes.
    """

    public: Callable[..., Any]
    raw: Callable[..., Arguments]
    operands: Callable[[int, torch.dtype, str], Arguments]
    counted: bool = True


def call_cases() -> Iterator[OperatorCase]:
    """The same number of boxes in every call, and another one."""
    for name, small in _smalls().items():
        same, other = f"{_BOXES} boxes", f"{_COUNTS[0]} to {_COUNTS[-1]}, another number each time"
        if not small.counted:
            same = "8x8 pixels"
        yield OperatorCase(name, same, "empty", _AIM, _bout(name, small, (_BOXES,)))
        if small.counted:
            yield OperatorCase(name, other, "empty", _AIM, _bout(name, small, _COUNTS))


def _smalls() -> dict[str, _Small]:
    align = _Small(
        lambda x, b: ops.roi_align(x, b, 7, 1.0, 2, True),
        lambda x, b: (x, b, 1.0, 7, 7, 2, True),
        _regions,
    )
    pool = _Small(lambda x, b: ops.roi_pool(x, b, 7, 1.0), lambda x, b: (x, b, 1.0, 7, 7), _regions)
    ps_align = _Small(
        lambda x, b: ops.ps_roi_align(x, b, 2, 1.0, 2), lambda x, b: (x, b, 1.0, 2, 2, 2), _regions
    )
    nms = _Small(
        lambda b, s, _: ops.nms(b, s, 0.5), lambda b, s, _: (b, s, 0.5), _suppressed
    )  # fmt: skip
    batched = _Small(
        lambda b, s, c: ops.batched_nms(b, s, c, 0.5), lambda *given: (*given, 0.5), _suppressed
    )
    ones = ([1, 1], [1, 1], [1, 1], 1, 1)
    deform = _Small(
        lambda x, o, w, m: ops.deform_conv2d(x, o, w, padding=1, mask=m),
        lambda x, o, w, m: (x, w, o, None, m, *ones),
        _deformed,
        counted=False,
    )
    return {
        "roi_align": align,
        "roi_pool": pool,
        "ps_roi_align": ps_align,
        "nms": nms,
        "batched_nms": batched,
        "deform_conv2d": deform,
    }


def _bout(
    name: str, small: _Small, counts: tuple[int, ...] | range
) -> Callable[[torch.dtype, str], Bout]:
    def make(dtype: torch.dtype, device: str) -> Bout:
        given = [small.operands(count, dtype, device) for count in counts]
        ours, theirs = cycle(given), cycle([small.raw(*operands) for operands in given])
        empty = _empty(name)
        return Bout(lambda: small.public(*next(ours)), lambda: empty(*next(theirs)), compared=False)

    return make


@cache
def _empty(name: str) -> Callable[..., Any]:
    """An operator with the schema of another one that does nothing."""
    schema = str(getattr(torch.ops.saccade, name).default._schema)
    own = schema.removeprefix(f"saccade::{name}")
    results = own.partition("->")[2].count("Tensor")

    def nothing(x: Tensor, *_: object) -> Any:  # noqa: ANN401 - one tensor or several
        fresh = tuple(x.new_empty(0) for _ in range(results))
        return fresh if results > 1 else fresh[0]

    def keep(*_: object) -> None:
        pass

    gradient = None if name.endswith("nms") else Gradient(keep, nothing)
    define(f"_empty_{name}{own}", nothing, nothing, gradient=gradient)
    # Not what `define` gives, which goes past PyTorch's dispatcher.
    found: Callable[..., Any] = getattr(torch.ops.saccade, f"_empty_{name}").default
    return found


def _boxes(count: int) -> Tensor:
    """[count, 4] within the image."""
    random = torch.Generator().manual_seed(count)
    corner = _SIDE / 2 * torch.rand(count, 2, generator=random)
    return torch.cat([corner, corner + _SIDE / 2 * torch.rand(count, 2, generator=random)], 1)


def _regions(count: int, dtype: torch.dtype, device: str) -> Arguments:
    boxes = torch.cat([torch.zeros(count, 1), _boxes(count)], 1)
    return _image(dtype, device), boxes.to(device)


@cache
def _image(dtype: torch.dtype, device: str) -> Tensor:
    """The same for all numbers of boxes."""
    return torch.randn(1, _CHANNELS, _SIDE, _SIDE).to(device, dtype)


def _suppressed(count: int, dtype: torch.dtype, device: str) -> Arguments:
    scores, kinds = torch.rand(count).to(device, dtype), (torch.arange(count) % 3).to(device)
    return _boxes(count).to(device, dtype), scores, kinds


def _deformed(_: int, dtype: torch.dtype, device: str) -> Arguments:
    shapes = ((1, _CHANNELS, 8, 8), (1, 18, 8, 8), (_CHANNELS, _CHANNELS, 3, 3), (1, 9, 8, 8))
    return tuple(torch.randn(shape).to(device, dtype) for shape in shapes)
