"""Emitting expressions over operands, and the same operators on symbolic contents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps

import numpy as np

from saccade.frontend.onnx.call import Importer, OnnxNode
from saccade.frontend.onnx.listed import Result
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic, check_count
from saccade.frontend.onnx.symbolic_arithmetic import on_elements
from saccade.ir import DType, Expr, Value
from saccade.ir.expr import IDENTITY, apply, arg, const
from saccade.opdefs import Pointwise

__all__ = [
    "EXACT_SHORT", "LARGEST", "NAMED_DTYPES", "ONNX_DTYPES", "cast_to", "common", "pointwise",
    "saturated", "with_symbols",
]  # fmt: skip

ONNX_DTYPES = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32,
    7: DType.I64, 9: DType.BOOL, 10: DType.F16, 11: DType.F64, 12: DType.U32, 13: DType.U64,
    16: DType.BF16, 17: DType.F8E4M3FN, 18: DType.F8E4M3FNUZ, 19: DType.F8E5M2,
    20: DType.F8E5M2FNUZ, 21: DType.U4, 22: DType.I4, 23: DType.F4E2M1, 24: DType.F8E8M0,
    25: DType.U2, 26: DType.I2,
}  # fmt: skip
"""`onnx.TensorProto` element types."""
NAMED_DTYPES = {
    "FLOAT": DType.F32, "UINT8": DType.U8, "INT8": DType.I8, "UINT16": DType.U16,
    "INT16": DType.I16, "INT32": DType.I32, "INT64": DType.I64, "BOOL": DType.BOOL,
    "FLOAT16": DType.F16, "DOUBLE": DType.F64, "UINT32": DType.U32, "UINT64": DType.U64,
}  # fmt: skip
"""The same by the names that casts had up to version 5."""
LARGEST = {
    DType.F8E4M3FN: 448.0, DType.F8E4M3FNUZ: 240.0, DType.F8E5M2: 57344.0,
    DType.F8E5M2FNUZ: 57344.0,
}  # fmt: skip
"""The largest numbers of the types that casts may saturate at, with fractions."""
EXACT_SHORT = frozenset((DType.BOOL, DType.U8, DType.I8, DType.U16, DType.I16))
"""Element types all of whose numbers float32 has."""
# Literals are float64, which holds every integer up to here.
_EXACT = 2**53
_COMPARISONS = frozenset(
    {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Not", "And", "Or"}
)


def pointwise(
    call: OnnxNode,
    make: Callable[..., Expr],
    operands: Sequence[Value],
    dtype: DType | None = None,
) -> Value:
    """Emit `make($0, $1, …)`; constants of one element become literals of the expression.

    Args:
        call: The node.
        make: Builds the expression from those of the operands.
        operands: Broadcast as in NumPy.
        dtype: Element type of the result; that of the first operand if None, or float16 if any is.
    """
    literals = [_literal(call, value) for value in operands]
    rank = max(
        (v.rank for v, lit in zip(operands, literals, strict=True) if lit is None), default=-1
    )
    live: list[Value] = []
    parts: list[Expr] = []
    for value, literal in zip(operands, literals, strict=True):
        # A literal has no axes: one of more axes than the rest would take some from the result.
        if literal is not None and value.rank <= rank:
            parts.append(const(literal))
            continue
        # An operand that comes twice is loaded once.
        if value not in live:
            live.append(value)
        parts.append(arg(live.index(value)))
    result = common(operands) if dtype is None else dtype
    return call.emit(Pointwise(expr=make(*parts), dtype=result), *live)


def common(operands: Sequence[Value]) -> DType:
    """The element type of a result: the operands', some of which may be known in float32."""
    half = any(value.dtype is DType.F16 for value in operands)
    return DType.F16 if half else operands[0].dtype


def _literal(call: OnnxNode, value: Value) -> float | None:
    if any(d != 1 for d in value.shape):
        return None
    array = call.build.array(value)
    if array is None:
        return None
    number = array.item()
    return float(number) if value.dtype.is_float or abs(number) <= _EXACT else None


def cast_to(call: OnnxNode, value: Value, dtype: DType) -> Value:
    """The value in another element type."""
    if value.dtype is dtype:
        return value
    return call.emit(Pointwise(expr=IDENTITY, dtype=dtype), value)


def saturated(x: Expr, dtype: DType) -> Expr:
    """A number within what a type of `LARGEST` has: what is no number stays none."""
    return apply("clip", x, const(-LARGEST[dtype]), const(LARGEST[dtype]))


def with_symbols(importer: Importer) -> Importer:
    """An importer that computes on symbolic contents where no operand is more than that."""

    @wraps(importer)
    def wrapped(call: OnnxNode) -> Sequence[Result | None]:
        if any(isinstance(operand, Symbolic) for operand in call.operands):
            given = [index for index in range(len(call.operands)) if call.has(index)]
            known = {index: found for index in given if (found := call.content(index)) is not None}
            if len(known) == len(given):
                try:
                    return [_clipped(call, known) or _on_symbols(call, list(known.values()))]
                # What cannot be told of sizes may be computed with them while the plan runs.
                except Refusal as refusal:
                    call.build.untold = call.build.untold or str(refusal)
        return importer(call)

    return wrapped


def _clipped(call: OnnxNode, known: Mapping[int, Symbolic]) -> Symbolic | None:
    """What a Clip, either of whose bounds may be absent, makes of symbolic contents."""
    # Bounds were attributes up to version 10.
    if call.node.op_type != "Clip" or call.opset < 11:
        return None
    result = known[0].array
    for index, kind in ((1, "Max"), (2, "Min")):
        function = on_elements(kind, known[0].dtype)
        if index in known and function is not None:
            bound = known[index].array.reshape(())
            result = np.asarray(np.frompyfunc(function, 2, 1)(result, bound), dtype=object)
    return Symbolic(known[0].dtype, result)


def _on_symbols(call: OnnxNode, known: Sequence[Symbolic]) -> Symbolic:
    kind = call.node.op_type
    dtype = known[1].dtype if kind == "Where" else known[0].dtype
    if kind == "Div" and dtype.is_float:
        kind = "TrueDiv"
    if kind == "Mod" and call.flag("fmod"):
        raise Refusal("fmod of symbolic sizes")
    function = on_elements(kind, known[0].dtype)
    if function is None:
        raise Refusal("computes with symbolic sizes as data")
    arrays = [content.array for content in known]
    # Before arrays are made: two small operands may broadcast to a large result.
    check_count(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
    # These take any number of operands, and their functions take two.
    if kind in ("Min", "Max"):
        result = arrays[0]
        for array in arrays[1:]:
            result = np.asarray(np.frompyfunc(function, 2, 1)(result, array), dtype=object)
    else:
        result = np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)
    return Symbolic(DType.BOOL if kind in _COMPARISONS else dtype, result)
