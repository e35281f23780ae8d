"""ONNX's sequences and optional values: lists of values while importing, and nothing after that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import ONNX_DTYPES
from saccade.frontend.onnx.listed import Item, Result, Rows, TensorList
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.open_axes import concatenated, is_open
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic
from saccade.ir import Dim, DType, Value
from saccade.ir.dim import add, mul
from saccade.opdefs import Concat

__all__ = ["SEQUENCES", "stacked"]

_MOST = 4096
"""Tensors that an axis is split into; each is a value of the graph."""


def _construct(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceConstruct 11."""
    items = tuple(call.operand(index) for index in range(len(call.given)))
    if not items or len({item.dtype for item in items}) > 1:
        raise call.broken(f"{len(items)} tensors of several types")
    return [TensorList(items, items[0].dtype)]


def _empty(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceEmpty 11."""
    dtype = ONNX_DTYPES.get(call.integer("dtype", 1))
    if dtype is None:
        raise Refusal("a sequence of an element type that Saccade does not have")
    return [TensorList((), dtype)]


def _position(call: OnnxNode, index: int) -> int:
    """A position in a sequence, which has to be known."""
    found = call.integers_of(index, "a position in a sequence")
    if len(found) != 1:
        raise call.broken(f"{len(found)} positions")
    return found[0]


def _at(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceAt 11."""
    sequence = call.listed(0)
    found = sequence.items[sequence.place(_position(call, 1))]
    if isinstance(found, Rows):
        raise Refusal("takes from a sequence what a loop put there")
    return [found]


def _insert(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceInsert 11."""
    sequence, item = call.listed(0), call.operand(1)
    items = list[Item](sequence.items)
    at = sequence.place(_position(call, 2), past=1) if call.has(2) else len(items)
    items.insert(at, item)
    return [TensorList(tuple(items), item.dtype)]


def _erase(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceErase 11."""
    sequence = call.listed(0)
    items = list(sequence.items)
    gone = items.pop(sequence.place(_position(call, 1) if call.has(1) else -1))
    if isinstance(gone, Rows):
        raise Refusal("takes from a sequence what a loop put there")
    return [sequence.with_items(items)]


def _length(call: OnnxNode) -> Sequence[Result]:
    """ONNX SequenceLength 11: of what a loop put there, the number of its turns."""
    total: Dim = 0
    for item in call.listed(0).items:
        if isinstance(item, Rows) and item.value is None:
            raise Refusal("asks, in a loop, how long a sequence is that it makes")
        rows = item.value if isinstance(item, Rows) else None
        total = add(total, 1 if rows is None else rows.shape[0])
    if isinstance(total, int):
        return [call.build.constant(np.asarray(total, np.int64), "length")]
    array = np.empty((), object)
    array[()] = total
    return [Symbolic(DType.I64, array)]


def _split(call: OnnxNode) -> Sequence[Result]:
    """ONNX SplitToSequence 11 to 24."""
    x = call.value(0)
    axis = call.axis(call.integer("axis", 0), x.rank)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Refusal("splits an axis that varies into a sequence")
    sizes, drop = _sizes(call, size), not call.has(1) and not call.flag("keepdims", default=True)
    if len(sizes) > _MOST:
        raise Refusal(f"splits an axis into {len(sizes)} tensors")
    parts = list[Item]()
    start = 0
    for each in sizes:
        part = move(call, x, slice_map(x.shape, {axis: (start, each, 1)}))
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        parts.append(reshaped(call, part, shape) if drop else part)
        start += each
    return [TensorList(tuple(parts), x.dtype)]


def _sizes(call: OnnxNode, size: int) -> Sequence[int]:
    if not call.has(1):
        return (1,) * size
    given = call.integers_of(1, "the sizes of a split")
    if call.shape(1):
        if min(given, default=0) < 0 or sum(given) != size:
            raise call.broken(f"splits {size} into {list(given)}")
        return given
    each = given[0]
    if each < 1:
        raise call.broken(f"splits {size} into parts of {each}")
    return [min(each, size - start) for start in range(0, size, each)]


def _concat(call: OnnxNode) -> Sequence[Result]:
    """ONNX ConcatFromSequence 11."""
    sequence, new = call.listed(0), call.flag("new_axis")
    if not sequence.items:
        raise Refusal("concatenates nothing")
    axis, parts = call.integer("axis", 0), []
    for item in sequence.items:
        if isinstance(item, Rows):
            parts.append(_rows(call, item, axis, new=new))
        else:
            value = call.as_value(item)
            at = call.axis(axis, value.rank + new)
            shape = (*value.shape[:at], 1, *value.shape[at:]) if new else value.shape
            parts.append(reshaped(call, value, shape))
    return [_joined(call, parts, call.axis(axis, parts[0].rank))]


def _rows(call: OnnxNode, rows: Rows, axis: int, *, new: bool) -> Value:
    """What a loop put into a sequence, side by side along an axis, or along a new one."""
    if rows.value is None:
        raise Refusal("concatenates, in a loop, a sequence that it makes")
    x = rows.value
    at = call.axis(axis, x.rank - (not new))
    order = [*range(1, at + 1), 0, *range(at + 1, x.rank)]
    x = move(call, x, transpose_map(x.shape, order))
    if new:
        return x
    merged = mul(x.shape[at], x.shape[at + 1])
    return reshaped(call, x, (*x.shape[:at], merged, *x.shape[at + 2 :]))


def _joined(call: OnnxNode, parts: Sequence[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    if any(part.rank != parts[0].rank for part in parts):
        raise call.broken("tensors of different ranks")
    if is_open(call, *(part.shape[axis] for part in parts)):
        return concatenated(call, parts, axis)
    return call.emit(Concat(axis=axis), *parts)


def stacked(call: OnnxNode, values: Sequence[Operand], axis: int) -> Value:
    """Values side by side along a new axis."""
    parts = []
    for operand in values:
        if operand in call.build.held:
            raise Refusal("gathers what no memory holds")
        value = call.as_value(operand)
        at = call.axis(axis, value.rank + 1)
        parts.append(reshaped(call, value, (*value.shape[:at], 1, *value.shape[at:])))
    return _joined(call, parts, call.axis(axis, parts[0].rank))


def _optional(call: OnnxNode) -> Sequence[Result | None]:
    """ONNX Optional 15: what is there is as it is."""
    return [call.given[0] if call.given else None]


def _has_element(call: OnnxNode) -> Sequence[Result]:
    """ONNX OptionalHasElement 15 and 18."""
    there = bool(call.given) and call.given[0] is not None
    return [call.build.constant(np.asarray(there), "there")]


def _get_element(call: OnnxNode) -> Sequence[Result]:
    """ONNX OptionalGetElement 15 and 18."""
    found = call.given[0] if call.given else None
    if found is None:
        raise Refusal("takes a value that is not there")
    return [found]


SEQUENCES = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
"""Importers of what takes or gives sequences and optional values."""
