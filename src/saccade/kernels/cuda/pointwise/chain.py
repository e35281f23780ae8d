"""A whole expression in one pass over operands of any strides, with NumPy's broadcasting.

Axes are collapsed over all operands together and walked as `movement.walk_plan` says: short
vectors of the innermost axis in the result's memory order, or rectangles where an operand has its
neighbours along another axis. Arithmetic is in float32 for what is stored in float32, float16 and
bfloat16, in float64 or in the integers' own type otherwise.

Floor: the bytes of all operands and the result; expressions of up to about 20 operations hide
behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from saccade.backends.cuda.codegen.expressions import TritonLines, missing_operator
from saccade.ir import DType
from saccade.ir.expr import Expr, arg, parse, substitute, subtrees
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, collapsed, refuse_walk
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    general_walk,
    walk_variants,
    walks,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.kernels.cuda.refusals import refuse_narrow
from saccade.opdefs import Pointwise

__all__ = [
    "POINTWISE_CHAIN", "CudaChainConfig", "element_name", "number_type", "result_of",
    "used_operands", "value_type",
]  # fmt: skip


@dataclass(frozen=True)
class CudaChainConfig:
    """What the code depends on.

    Attributes:
        expr: The expression, over the used operands renumbered from 0.
        elements: Element type of the result, then of each operand.
        number: The type of arithmetic, as Triton calls it.
        result: What the value is cast to before it is stored, as Triton calls it.
        walk: How elements are found.
    """

    expr: str
    elements: tuple[str, ...]
    number: str
    result: str
    walk: WalkCode


@lru_cache(maxsize=4096)
def used_operands(expr: Expr) -> tuple[tuple[int, ...], str]:
    """The operands that occur, and the expression with these renumbered from 0."""
    used = tuple(sorted({part.index for part in subtrees(expr) if part.op == "arg"}))
    return used, str(substitute(expr, {old: arg(new) for new, old in enumerate(used)}))


def number_type(views: Iterable[View], result: DType) -> str:
    """The type of arithmetic: the operands' one; the result's where all of them are bool."""
    kind = next((view.dtype for view in views if view.dtype is not DType.BOOL), result)
    return "float32" if kind in FLOATS or kind is DType.BOOL else kind.value


def _supports(call: CudaCall) -> str | None:
    narrow = refuse_narrow((*call.inputs, *call.outputs))
    if narrow is not None:
        return narrow
    missing = missing_operator(call.op.expr, number_type(call.inputs, call.op.dtype))
    if missing is not None:
        return f"{missing} of {number_type(call.inputs, call.op.dtype)}"
    return refuse_walk(call.outputs[0], call.inputs)


def _views(call: CudaCall) -> list[View]:
    """The result and the operands that occur."""
    return [call.outputs[0], *(call.inputs[i] for i in used_operands(call.op.expr)[0])]


def _axes(call: CudaCall, *, ones: bool = False) -> LoopAxes:
    """The result's and the operands' axes; with those of one element, or without."""
    shape = call.outputs[0].shape
    strides = []
    for view in _views(call):
        missing = len(shape) - len(view.shape)
        # Along an axis of one element any stride will do: its own may merge.
        steps = (
            0 if n == 1 and whole != 1 else s
            for n, s, whole in zip(view.shape, view.strides, shape[missing:], strict=True)
        )
        strides.append([*(0,) * missing, *steps])
    return collapsed(shape, strides, ones=ones)[0]


def _ways(call: CudaCall) -> tuple[Walk, ...]:
    itemsizes = [view.dtype.itemsize for view in _views(call)]
    return (*walks(_axes(call), itemsizes), general_walk(_axes(call, ones=True), itemsizes))


def _variants(call: CudaCall) -> Iterator[Variant]:
    size = call.outputs[0].size
    nbytes = sum(min(view.size, size) * view.dtype.itemsize for view in _views(call))
    return walk_variants(call, _ways(call), nbytes, _launch)


def _generic_configs(call: CudaCall) -> tuple[CudaChainConfig, ...]:
    return (cast("CudaChainConfig", _launch(call, _ways(call)[-1]).config),)


def _launch(call: CudaCall, way: Walk) -> Launch:
    used, text = used_operands(call.op.expr)
    elements, result = tuple(map(element_name, _views(call))), value_type(call.op.dtype)
    number = number_type(call.inputs, call.op.dtype)
    config = CudaChainConfig(text, elements, number, result, way.code)
    operands: dict[str, Operand] = {"p0": Out(0)}
    operands |= {f"p{p}": In(i) for p, i in enumerate(used, 1)}
    return Launch(config, operands, {**way.integers, **way.sizes}, way.programs)


def element_name(view: View) -> str:
    """What a config calls a view's elements: bools are bytes, but no numbers."""
    return "bool" if view.dtype is DType.BOOL else ELEMENTS[view.dtype]


def value_type(dtype: DType) -> str:
    """What a value is cast to before it is stored, as Triton calls it."""
    return "float32" if dtype in FLOATS else dtype.value


def _entry(config: CudaChainConfig) -> Entry:
    truths = [p - 1 for p, element in enumerate(config.elements) if p and element == "bool"]
    lines = TritonLines({}, config.number, truths)
    elements = [element.replace("bool", "u8") for element in config.elements]
    text = WalkText(config.walk, elements, lines)
    for p in range(1, len(elements)):
        loaded = text.load(p, text.base(p))
        truth = p - 1 in truths
        lines.names[p - 1] = f"v{p}"
        lines.add(f"v{p} = {loaded}" + (" != 0" if truth else f".to(tl.{config.number})"))
    text.store(result_of(lines, parse(config.expr), config.number, config.result))
    return text.entry()


def result_of(lines: TritonLines, expr: Expr, number: str, result: str) -> str:
    """What is stored, computed in `number` and cast to `result`, which "bool" may be."""
    if result == "bool":
        return f"{lines.truth(expr)}.to(tl.uint8)"
    name = lines.expression(expr)
    value = f"tl.full((1, 1), {name}, tl.{number})" if expr.op == "const" else name
    return f"{value}.to(tl.{result})"


def _aliases(call: CudaCall) -> tuple[tuple[int, int], ...]:
    """Every operand may be overwritten: one program reads an element and then writes it."""
    return tuple((i, 0) for i in range(len(call.inputs)))


POINTWISE_CHAIN = CudaKernel(
    "pointwise.chain",
    (Pointwise,),
    CudaChainConfig,
    _supports,
    _variants,
    _entry,
    _aliases,
    _generic_configs,
)
