"""Elements by rank or by value; how many there are may be found out while a plan runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.open_axes import close, close_all, highest, lowest
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.ir.dim import product
from saccade.opdefs import Gather, NonZero, TopK, Unique

__all__ = ["import_compress", "import_non_zero", "import_top_k", "import_unique"]


def import_top_k(call: OnnxNode) -> Sequence[Operand]:
    """ONNX TopK 1 to 24, of a number that does not depend on data; always sorted."""
    x = call.value(0)
    axis = call.axis(call.integer("axis", -1), x.rank)
    if call.opset < 10:
        k: Dim = call.integer("k", 0)
    else:
        count = call.dims(1, "the number of elements")
        if len(count) != 1:
            raise call.broken(f"k {list(count)}")
        k = count[0]
    op = TopK(k, axis, call.flag("largest", default=True))
    # What is there stands before what fills the room, and wins where they are equal.
    least = lowest(x.dtype)
    most = np.nan if x.dtype.is_float else highest(x.dtype)
    return call.build.emit(op, [close(call, x, axis, least if op.largest else most)], call.name)


def _found(call: OnnxNode, label: str, bound: Dim) -> Dim:
    """A symbol for the size of the node's first result."""
    shape = call.node.outputs[0].shape
    names = [getattr(d, "value", None) for d in shape] if shape is not None else []
    named = next((n for n in names if isinstance(n, str)), label)
    if bound == 0:
        raise Refusal("looks for elements where there are none")
    return call.build.symbol(named)


def _non_zero(call: OnnxNode, x: Value, label: str) -> Value:
    """Places [rank, rows] of an operand's elements that are not zero."""
    # Exporters look again for each list that is indexed by one mask; lists that are computed with
    # each other have to be of one size.
    if x in call.build.places:
        return call.build.places[x]
    mask = reshaped(call, x, (1,)) if x.rank == 0 else x
    array = call.build.array(mask)
    if array is not None:
        return call.build.constant(np.array(np.nonzero(array), np.int64), call.name)
    mask = close_all(call, mask, 0)
    bound = product(mask.shape)
    rows = _found(call, label, bound)
    places, count = call.build.emit(NonZero(rows), [mask], call.name)
    call.build.counted(rows, bound, count)
    call.build.places[x] = places
    return places


def import_non_zero(call: OnnxNode) -> Sequence[Operand]:
    """ONNX NonZero 9 and 13."""
    return [_non_zero(call, call.value(0), "nonzero")]


def import_compress(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Compress 9 and 11."""
    x, condition = call.value(0), call.value(1)
    if condition.rank != 1:
        raise call.broken(f"a condition of {condition.rank} axes")
    if "axis" in call.node.attributes:
        axis = call.axis(call.integer("axis", 0), x.rank)
    else:
        x, axis = reshaped(call, x, (product(x.shape),)), 0
    x = close(call, x, axis)
    size, length = x.shape[axis], condition.shape[0]
    if isinstance(size, int) and isinstance(length, int) and length > size:
        raise call.broken(f"{length} conditions for {size} elements")
    places = _non_zero(call, condition, "compressed")
    return [call.emit(Gather(axis=axis), x, reshaped(call, places, (places.shape[1],)))]


def import_unique(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Unique 11."""
    x = call.value(0)
    if "axis" in call.node.attributes:
        axis = call.axis(call.integer("axis", 0), x.rank)
    else:
        x, axis = reshaped(call, x, (product(x.shape),)), 0
    bound = x.shape[axis]
    rows = _found(call, "unique", bound)
    op = Unique(rows, axis, call.flag("sorted", default=True))
    *results, count = call.build.emit(op, [x], call.name)
    call.build.counted(rows, bound, count)
    return results
