"""What the shape rules share: operand counts, element types, broadcasting over symbolic dims.

An equality that cannot be decided (`N` against `M`) is taken to hold: the plan checks it when sizes
are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from saccade.errors import ModelError
from saccade.ir.dim import Dim, maximum, product, sub
from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.op import Op, TensorType

__all__ = [
    "broadcast",
    "differ",
    "expect",
    "expect_axis",
    "expect_broadcastable",
    "expect_count",
    "expect_epilogue",
    "expect_float",
    "expect_rank",
    "expect_same_dtype",
    "refuse",
    "static_count",
    "tensor_bytes",
    "text",
    "unify",
]


def refuse(op: Op, reason: str) -> NoReturn:
    """Raise the ModelError of `op`."""
    raise ModelError(f"{op.family}: {reason}")


def expect(op: Op, condition: bool, reason: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        refuse(op, reason)


def text(shape: Sequence[Dim]) -> str:
    """A shape as messages spell it."""
    return f"[{', '.join(map(str, shape))}]"


def expect_count(op: Op, inputs: Sequence[TensorType], low: int, high: int | None = None) -> None:
    """Raise unless there are `low` to `high` operands (exactly `low` when `high` is left out)."""
    top = low if high is None else high
    wanted = str(low) if top == low else f"{low} to {top}"
    expect(op, low <= len(inputs) <= top, f"takes {wanted} operands, got {len(inputs)}")


def expect_float(op: Op, operand: TensorType, name: str) -> None:
    """Raise unless the operand is floating point."""
    expect(op, operand.dtype.is_float, f"{name} must be floating point, is {operand.dtype.value}")


def expect_rank(op: Op, operand: TensorType, rank: int, name: str) -> None:
    """Raise unless the operand has `rank` axes."""
    expect(
        op, len(operand.shape) == rank, f"{name} must have {rank} axes, is {text(operand.shape)}"
    )


def expect_axis(op: Op, axis: int, rank: int) -> None:
    """Raise unless `axis` is one of `rank` axes, counted from 0."""
    expect(op, 0 <= axis < rank, f"axis {axis} is not one of {rank} axes")


def expect_same_dtype(op: Op, operands: Sequence[TensorType]) -> None:
    """Raise unless all operands share their element type."""
    names = sorted({t.dtype.value for t in operands})
    expect(op, len(names) <= 1, f"operands of different types: {', '.join(names)}")


def differ(left: Dim, right: Dim) -> bool:
    """Whether the two dims certainly differ."""
    gap = sub(left, right)
    return isinstance(gap, int) and gap != 0


def unify(op: Op, left: Dim, right: Dim, what: str) -> Dim:
    """The one dim that both must be; the static one where one is."""
    if differ(left, right):  # texts of dims are made for errors alone
        refuse(op, f"{what} is {left} on one side and {right} on the other")
    return right if isinstance(right, int) else left


def _broadcast_dim(op: Op, left: Dim, right: Dim) -> Dim:
    """The dim that two broadcast to; `max` where it cannot be known which of them is 1."""
    if right in (left, 1):
        return left
    if left == 1:
        return right
    if isinstance(left, int) or isinstance(right, int):
        expect(op, not differ(left, right), f"dims {left} and {right} do not broadcast")
        return left if isinstance(left, int) else right
    return maximum(left, right)


def broadcast(op: Op, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape that all broadcast to, by NumPy's rules."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for at, dim in enumerate(shape, start=rank - len(shape)):
            result[at] = _broadcast_dim(op, result[at], dim)
    return tuple(result)


def expect_broadcastable(
    op: Op, shape: tuple[Dim, ...], target: tuple[Dim, ...], name: str
) -> None:
    """Raise unless `shape` broadcasts to exactly `target`."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    fits = len(shape) <= len(target) and all(d == 1 or not differ(d, t) for d, t in pairs)
    expect(op, fits, f"{name} {text(shape)} does not broadcast to {text(target)}")


def expect_epilogue(
    op: Op, epilogue: Expr, operands: Sequence[TensorType], result: TensorType
) -> None:
    """Raise unless the epilogue has its operands, of the result's type or BOOL, broadcastable."""
    needed = epilogue.operands - 1
    expect(
        op, needed <= len(operands), f"epilogue {epilogue} lacks operands: {len(operands)} given"
    )
    # In words of the file: users meet this with sizes that do not fit each other.
    name = "an operand of what is fused behind it"
    for operand in operands:
        fits = operand.dtype in (result.dtype, DType.BOOL)
        expect(op, fits, f"{name} is {operand.dtype.value}, the result {result.dtype.value}")
        expect_broadcastable(op, operand.shape, result.shape, name)


def static_count(shape: tuple[Dim, ...]) -> int:
    """Number of elements of a static shape.

    Raises:
        ValueError: If a dim is symbolic.
    """
    count = product(shape)
    if not isinstance(count, int):
        raise ValueError(f"shape {text(shape)} is not static")
    return count


def tensor_bytes(types: Sequence[TensorType]) -> int:
    """Bytes of all tensors together; shapes must be static."""
    return sum(static_count(t.shape) * t.dtype.itemsize for t in types)
