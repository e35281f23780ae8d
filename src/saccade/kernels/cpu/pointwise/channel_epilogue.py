"""Epilogues of kernels whose results are vectors of channels: an expression with operands.

`plan_finish` says whether and how a call's epilogue operands can be read along vectors of
channels; `Finish` emits their loads, the expression, and the conversion to the result's type.
Kernels keep a `Finish` beside their own code:

    finish = Finish(k, config.finish)        # declares a pointer per operand
    finish.declare_integers()                # declares their strides
    value = finish.apply(acc, (n, h, w), channel, mask)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.ir import DType
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.base import In, Operand
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.movement.loop_nest import inner_kind
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS, from_float, to_float

__all__ = ["Finish", "FinishCode", "FinishPlan", "plan_finish"]


@dataclass(frozen=True)
class FinishCode:
    """What the code depends on.

    Attributes:
        expr: The expression.
        kinds: How each operand meets the axis of vectors: `unit` or `zero`.
        elements: Element type of each operand.
        element: Element type of the result.
        axes: How many other axes there are.
    """

    expr: str
    kinds: tuple[str, ...]
    elements: tuple[str, ...]
    element: str
    axes: int


@dataclass(frozen=True, slots=True)
class FinishPlan:
    """How one call is finished: code, pointer operands, integers (strides along the other axes)."""

    code: FinishCode
    operands: dict[str, Operand]
    integers: dict[str, tuple[int, ...]]


def plan_finish(call: CpuCall, vector_axis: int = 1) -> FinishPlan | str:
    """A plan, or the reason why there is none.

    Args:
        call: Of an operator with an `epilogue`, whose `$1…` are all inputs behind the first.
        vector_axis: Axis of the result along which vectors go.
    """
    epilogue, out = call.op.epilogue, call.outputs[0]
    used = [] if epilogue == IDENTITY else call.inputs[1:]
    kinds, integers = [], []
    for view in used:
        if view.dtype not in FLOATS | {DType.BOOL}:
            return f"an epilogue operand of type {view.dtype.value}"
        missing = len(out.shape) - len(view.shape)
        # Stride 0 repeats the one element along an axis, and the operand along axes that it does
        # not have.
        own = [s if n != 1 else 0 for n, s in zip(view.shape, view.strides, strict=True)]
        strides = [0] * missing + own
        kind = inner_kind(strides.pop(vector_axis))
        if kind == "strided":
            return "an epilogue operand that is strided along the vectors"
        kinds.append(kind)
        # Without the axis of the vectors, whose stride is in the kind.
        integers.extend(strides)
    code = FinishCode(
        str(epilogue), tuple(kinds), tuple(v.dtype.value for v in used), out.dtype.value,
        len(out.shape) - 1,
    )  # fmt: skip
    operands: dict[str, Operand] = {f"operand{i}": In(1 + i) for i in range(len(used))}
    return FinishPlan(code, operands, {"operand_strides": tuple(integers)})


class Finish:
    """Emits what a `FinishCode` says."""

    def __init__(self, k: KernelBuilder, code: FinishCode) -> None:
        self.k, self.code, self.expr = k, code, parse(code.expr)
        self.pointers = [k.pointer(f"operand{i}", e) for i, e in enumerate(code.elements)]
        self.strides: list[tuple[Int, ...]] = []

    def declare_integers(self) -> None:
        """Declare `FinishPlan.integers`."""
        axes, count = self.code.axes, len(self.pointers)
        found = self.k.array("operand_strides", axes * count)
        self.strides = [found[i * axes : (i + 1) * axes] for i in range(count)]

    def apply(self, value: Vec, place: Sequence[IntLike], at: IntLike, mask: Mask | None) -> Vec:
        """The finished vector, in the result's element type.

        Args:
            value: `$0`, float32 lanes.
            place: Position along every axis but that of the vectors.
            at: Position of lane 0 along the axis of the vectors.
            mask: Lanes that exist; None for all.
        """
        k, operands = self.k, [value]
        for pointer, strides, kind, element in zip(
            self.pointers, self.strides, self.code.kinds, self.code.elements, strict=True
        ):
            offset: Int = k.int(0)
            for stride, index in zip(strides, place, strict=True):
                offset = offset + stride * index
            if kind == "unit":
                raw = pointer.vec(offset + at, mask, value.lanes)
            else:
                raw = pointer.splat(offset, value.lanes)
            operands.append(to_float(k, raw, element))
        result = emit_expr(k, self.expr, operands, value.lanes, self.code.element)
        return from_float(k, result, self.code.element)
