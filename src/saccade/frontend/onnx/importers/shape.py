"""Shape, Size, ConstantOfShape, Range, and the movement of symbolic contents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce, wraps

import numpy as np

from saccade.frontend.onnx.apart import most_apart
from saccade.frontend.onnx.builder import FOLD_ELEMENTS
from saccade.frontend.onnx.call import Importer, OnnxNode, Operand
from saccade.frontend.onnx.extents import ONE, UP_TO, repeated
from saccade.frontend.onnx.importers._elementwise import cast_to
from saccade.frontend.onnx.listed import Result
from saccade.frontend.onnx.measured import is_given, measured
from saccade.frontend.onnx.moves import broadcast_map, move, reshaped
from saccade.frontend.onnx.open_axes import is_open, reopened, room_of
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import MAX_ELEMENTS, Symbolic, is_static
from saccade.frontend.onnx.symbolic_arithmetic import on_elements, rounded_up, whole
from saccade.ir import Array, Dim, DType, Value
from saccade.ir.dim import Affine, ceildiv, maximum, product, sub
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Pointwise

__all__ = [
    "import_constant",
    "import_constant_of_shape",
    "import_range",
    "import_shape",
    "import_size",
    "with_contents",
]

_INTEGERS = (DType.I32, DType.I64)


def _contents(elements: Sequence[object]) -> Symbolic:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return Symbolic(DType.I64, array)


def import_shape(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Shape 1 to 25."""
    shape = call.shape(0)
    start, end = call.integer("start", 0), call.integer("end", len(shape))
    return [_contents(shape[slice(start, end)])]


def import_size(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Size 1 to 25."""
    array = np.empty((), dtype=object)
    array[()] = product(call.shape(0))
    return [Symbolic(DType.I64, array)]


def import_constant(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Constant 1 to 25, all kinds of numeric values."""
    return [call.build.constant(_constant(call), call.name)]


def _constant(call: OnnxNode) -> Array:
    tensor = call.tensor("value")
    if tensor is not None:
        return tensor
    # By presence: the default for a missing one could be a value as well.
    if "value_int" in call.node.attributes:
        return np.asarray(call.integer("value_int", 0), np.int64)
    if "value_float" in call.node.attributes:
        return np.asarray(call.number("value_float", 0.0), np.float32)
    integers = call.integers("value_ints")
    if integers is not None:
        return np.asarray(integers, np.int64)
    numbers = call.numbers("value_floats")
    if numbers is not None:
        return np.asarray(numbers, np.float32)
    raise Refusal("a constant of strings or of a sparse tensor")


def import_constant_of_shape(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ConstantOfShape 9 to 25: one element, repeated."""
    shape = measured(call, 0, "the shape of a constant")
    if len(shape) > 64 or any(isinstance(d, int) and d < 0 for d in shape):
        raise call.broken(f"shape {list(shape)}")
    given = call.tensor("value")
    element = np.zeros((), np.float32) if given is None else given
    if element.size != 1:
        raise call.broken(f"a value of {element.size} elements")
    # A broadcast and no array: the shape may be symbolic, or large.
    scalar = call.build.constant(element.reshape(()), call.name)
    return [move(call, scalar, broadcast_map((), shape))]


def import_range(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Range 11, of known numbers, of sizes by a known step, or as long as a found size."""
    found = _counted_range(call)
    if found is not None:
        return [found]
    contents = [call.content(index) for index in range(3)]
    known = [content for content in contents if content is not None]
    # Longer ranges are no contents, nor is what a run computes.
    if len(known) < len(contents):
        return [_range_by_data(call)]
    if any(math.prod(content.shape) != 1 for content in known):
        raise call.broken("a bound that is not one number")
    first, last, step = (content.elements()[0] for content in known)
    if not is_static(step):
        raise Refusal("a step of a range that depends on sizes")
    if is_static(first) and is_static(last):
        return [_numbers(call, first, last, step)]
    return [_sizes_apart(call, known, step)]


def _range_by_data(call: OnnxNode) -> Value:
    """A range by a known whole step up, between numbers that data decide."""
    build, dtype = call.build, call.operand(0).dtype
    step = call.integers_of(2, "the step of a range") if dtype in _INTEGERS else ()
    # What inputs alone decide is known for each value, and no longer than it is then.
    given = all(is_given(build, call.value(index)) for index in range(2))
    if given or len(step) != 1 or step[0] <= 0:
        raise Refusal("a bound of a range depends on data")
    first, last = (reshaped(call, cast_to(call, call.value(i), DType.I64), (1,)) for i in range(2))
    high = most_apart(build, last, first)
    if high > FOLD_ELEMENTS * step[0]:
        raise Refusal("a bound of a range depends on data")
    most = max(-(-int(high) // step[0]), 0)
    if not most:
        return build.constant(np.zeros(0, dtype.numpy), call.name)
    # ceil((last - first) / step), in integers.
    span = apply("add", apply("sub", arg(0), arg(1)), const(step[0] - 1))
    length = apply("clip", apply("div", span, const(step[0])), const(0), const(most))
    count = call.emit(Pointwise(length, DType.I64), last, first)
    rows = build.symbol("range")
    build.counted(rows, most, count)
    steps = build.constant(np.arange(most, dtype=np.int64) * step[0], "steps")
    numbers = call.emit(Pointwise(apply("add", arg(0), arg(1)), dtype), steps, first)
    return reopened(call, numbers, 0, rows)


def _numbers(call: OnnxNode, first: float, last: float, step: float) -> Value:
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        raise call.broken(f"a range from {first} to {last} by {step}")
    # The standard's formula for the length.
    count = max(0, math.ceil((last - first) / step))
    if count > FOLD_ELEMENTS:
        raise Refusal(f"a range of {count} numbers")
    # Not `np.arange(first, last, step)`, which may have one more by its rounding.
    values = first + step * np.arange(count)
    start = call.value(0)
    return call.build.known(values.astype(start.dtype.arithmetic.numpy), start.dtype, call.name)


def _sizes_apart(call: OnnxNode, bounds: Sequence[Symbolic], step: float) -> Value:
    """A range between sizes: running sums of ones, times the step."""
    dtype = bounds[0].dtype
    first, last = (content.elements()[0] for content in bounds[:2])
    # From a fraction by whole steps up to a size there are as many numbers as from what is whole of
    # it: middles of pixels.
    rest = 0.0
    upwards = isinstance(last, Affine) and step > 0
    if upwards and isinstance(first, float) and math.isfinite(first):
        rest = first - math.floor(first)
        first = math.floor(first)
    stride, start = whole(step), whole(first)
    # From a whole number by whole steps up, a fraction ends where the next whole number does.
    end = whole(rounded_up(last)) if step > 0 else whole(last)
    if not isinstance(stride, int) or stride == 0 or start is None or end is None:
        raise Refusal("a range of fractions between sizes")
    span = sub(end, start) if stride > 0 else sub(start, end)
    # Up to a size: the same size then, where a maximum would be another one. Plans refuse less
    # than none.
    count = ceildiv(span, abs(stride))
    count = count if start == 0 else maximum(count, 0)
    one = call.build.constant(ONE, "one")
    places = call.emit(UP_TO, call.emit(repeated(count), one))
    # In integers, all of which float32 does not have.
    scaled = apply("add", apply("mul", arg(0), const(stride)), arg(1))
    offset = call.build.sized(start, call.name)
    numbers = cast_to(call, call.emit(Pointwise(scaled, DType.I64), places, offset), dtype)
    if rest:
        return call.emit(Pointwise(apply("add", arg(0), const(rest)), dtype), numbers)
    return numbers


def _counted_range(call: OnnxNode) -> Value | None:
    """The first numbers of the longest range that there could be; None if its length is known."""
    contents = [call.content(index) for index in range(3)]
    bounds = [b.elements()[0] for b in contents if b is not None and len(b.elements()) == 1]
    if len(bounds) < len(contents):
        return None
    first, last, step = bounds
    if not isinstance(first, int) or not isinstance(last, Affine) or not isinstance(step, int):
        return None
    if step <= 0 or not is_open(call, last):
        return None
    size = maximum(ceildiv(sub(last, first), step), 0)
    room = room_of(call, size)
    if room > FOLD_ELEMENTS:
        raise Refusal(f"a range of {room} numbers")
    operand = call.operand(0)
    values = first + step * np.arange(room)
    known = call.build.known(values.astype(operand.dtype.numpy), operand.dtype, call.name)
    return reopened(call, known, 0, size)


# -- movement of symbolic contents: plain NumPy ----------------------------------------------------


def _contents_of(call: OnnxNode, index: int) -> Symbolic:
    content = call.content(index)
    if content is None:
        raise Refusal("mixes symbolic sizes with data")
    return content


def _move(
    change: Callable[[OnnxNode, np.ndarray[tuple[int, ...], np.dtype[np.object_]]], object],
) -> Importer:
    def importer(call: OnnxNode) -> Sequence[Operand]:
        content = _contents_of(call, 0)
        return [Symbolic(content.dtype, np.asarray(change(call, content.array), dtype=object))]

    return importer


def _concat(call: OnnxNode) -> Sequence[Operand]:
    parts = [_contents_of(call, index) for index in range(len(call.operands))]
    axis = call.axis(call.integer("axis", 0), len(parts[0].shape))
    return [Symbolic(parts[0].dtype, np.concatenate([p.array for p in parts], axis=axis))]


def _reshape(call: OnnxNode, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> object:
    target = _target(call, array.size)
    if not call.flag("allowzero", default=False):
        if any(d == 0 for d in target[array.ndim :]):
            raise call.broken(f"reshapes rank {array.ndim} to {list(target)}")
        target = tuple(d or array.shape[axis] for axis, d in enumerate(target))
    return array.reshape(target)


def _target(call: OnnxNode, size: int) -> tuple[int, ...]:
    target = call.integers_of(1, "the target of a reshape")
    if any(abs(d) > MAX_ELEMENTS for d in target) or (size == 0 and -1 in target):
        raise call.broken(f"reshapes {size} elements to {list(target)}")
    return target


def _axes(call: OnnxNode) -> tuple[int, ...]:
    given = call.integers_of(1, "the axes") if call.has(1) else call.integers("axes")
    return tuple(given or ())


def _squeeze(call: OnnxNode, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> object:
    axes = _axes(call)
    return array.squeeze(axes or None)


def _split(call: OnnxNode) -> Sequence[Operand]:
    content = _contents_of(call, 0)
    axis = call.axis(call.integer("axis", 0), len(content.shape))
    count = len(call.node.outputs)
    sizes = call.integers_of(1, "the sizes") if call.has(1) else call.integers("split")
    if sizes is None:
        # Rounded up: the last part is the smaller one.
        each = -(-content.shape[axis] // count)
        sizes = (each,) * (count - 1) + (content.shape[axis] - each * (count - 1),)
    if len(sizes) != count or min(sizes) < 0 or sum(sizes) != content.shape[axis]:
        raise call.broken(f"splits {content.shape[axis]} into {list(sizes)}")
    parts = np.split(content.array, np.cumsum(sizes)[:-1], axis=axis)
    return [Symbolic(content.dtype, part) for part in parts]


def _reduced(call: OnnxNode, kind: str, start: Dim) -> Sequence[Operand]:
    """The elements of one axis combined by an operator of two operands."""
    content = _contents_of(call, 0)
    if len(content.shape) != 1:
        raise Refusal("reduces symbolic sizes of rank other than 1")
    if call.flag("noop_with_empty_axes", default=False) and not _axes(call):
        return [content]
    sizes = content.elements()
    combine = on_elements(kind, content.dtype)
    assert combine is not None, "those of the table below"
    if not sizes and call.node.op_type != "ReduceProd":
        raise call.broken("an extreme of nothing")
    result = np.empty((1,) if call.flag("keepdims", default=True) else (), dtype=object)
    result[...] = reduce(combine, sizes) if sizes else start
    return [Symbolic(content.dtype, result)]


def _expand(call: OnnxNode, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> object:
    target = _target(call, array.size)
    if math.prod(target) > MAX_ELEMENTS:
        raise Refusal("repeats symbolic sizes too often")
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, target))


def _transpose(call: OnnxNode, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> object:
    order = call.integers("perm")
    if order is not None and sorted(order) != list(range(array.ndim)):
        raise call.broken(f"perm {list(order)} of {array.ndim} axes")
    return array.transpose(order)


_MOVES_OF_CONTENTS: dict[str, Importer] = {
    "Concat": _concat,
    "Expand": _move(_expand),
    "ReduceMax": partial(_reduced, kind="Max", start=0),
    "ReduceMin": partial(_reduced, kind="Min", start=0),
    "ReduceProd": partial(_reduced, kind="Mul", start=1),
    "Reshape": _move(_reshape),
    "Split": _split,
    "Squeeze": _move(_squeeze),
    "Transpose": _move(_transpose),
    "Unsqueeze": _move(lambda call, a: np.expand_dims(a, _axes(call))),
}


def with_contents(name: str, importer: Importer) -> Importer:
    """An importer that also works on symbolic contents of its first operand (of Concat: any)."""
    symbolic = _MOVES_OF_CONTENTS[name]

    @wraps(importer)
    def wrapped(call: OnnxNode) -> Sequence[Result | None]:
        operands = call.operands if name == "Concat" else call.operands[:1]
        if any(isinstance(operand, Symbolic) for operand in operands):
            data = name == "Concat" and None in map(call.content, range(len(operands)))
            # Beside data, sizes that steps find out are data, too.
            if not data:
                return symbolic(call)
        return importer(call)

    return wrapped
