"""Two convolutions as one operator: how the operands divide, what both compute and cost.

Operands: x, the weights of the first, those of the second, then the `n` epilogue operands of the
first, then those of the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir.expr import IDENTITY
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, tensor_bytes
from saccade.opdefs.conv import Conv2d

__all__ = ["pair_reference", "pair_types", "pair_work"]


def pair_types(
    op: Op, first: Conv2d, second: Conv2d, n: int, inputs: Sequence[TensorType]
) -> tuple[TensorType, ...]:
    """Both shape rules, one after the other.

    Raises:
        ModelError: About `op`, if operands are missing, or one has groups or a prologue.
    """
    least = 3 + n
    expect(op, len(inputs) >= least, f"takes {least} operands or more, got {len(inputs)}")
    for one, which in ((first, "first"), (second, "second")):
        plain = one.groups == 1 and one.prologue == IDENTITY
        expect(op, plain, f"the {which} convolution has groups or a prologue")
    (middle,) = first.infer([*inputs[:2], *inputs[3:least]])
    return second.infer([middle, inputs[2], *inputs[least:]])


def pair_reference(
    first: Conv2d, second: Conv2d, n: int, inputs: Sequence[Array]
) -> tuple[Array, ...]:
    """Both references, one after the other."""
    end = 3 + n
    (between,) = first.reference(*inputs[:2], *inputs[3:end])
    return second.reference(between, inputs[2], *inputs[end:])


def pair_work(
    first: Conv2d,
    second: Conv2d,
    n: int,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
) -> Work:
    """The operations of both; what is between them moves no bytes."""
    # Some may be stored in bfloat16; all are computed in the same type.
    plain, end = [TensorType(one.dtype.arithmetic, one.shape) for one in inputs], 3 + n
    given = [*plain[:2], *plain[3:end]]
    between = first.infer(given)
    flops = first.work(given, between).flops
    flops += second.work([*between, plain[2], *plain[end:]], outputs).flops
    return Work(flops, tensor_bytes((*inputs, *outputs)))
