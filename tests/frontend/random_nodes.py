"""Recipes: for each family of operators, nodes of it that are valid, and often strange."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import helper
from random_graphs import FLOATS, INTEGERS, KINDS, Drawing, Nothing
from random_moves import MOVEMENTS

__all__ = ["RECIPES"]

NUMBERS = (*FLOATS, *INTEGERS)
SIGNED = (*FLOATS, "int64", "int32", "int8")
SMOOTH = (
    "Exp", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "Sin", "Cos", "Elu", "Selu",
    "HardSigmoid", "HardSwish", "Atan", "Asinh", "Sinh", "Cosh",
)  # fmt: skip
STEPS = ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink")


def smooth(d: Drawing) -> None:
    op = d.one_of(SMOOTH)
    if op == "Mish" and d.opset < 18:
        raise Nothing
    d.emit(op, [d.pick(FLOATS)])


def steps(d: Drawing) -> None:
    d.emit(d.one_of(STEPS), [d.pick(FLOATS, exact=True)], exact=True)


def simple(d: Drawing) -> None:
    op = d.one_of(("Relu", "Neg", "Abs", "LeakyRelu", "Identity"))
    kinds = {"Relu": FLOATS, "LeakyRelu": FLOATS, "Neg": SIGNED, "Abs": NUMBERS}.get(op, KINDS)
    more = {"alpha": 0.5} if op == "LeakyRelu" else {}
    d.emit(op, [d.pick(kinds)], exact=True, **more)


def roots(d: Drawing) -> None:
    x = d.pick(FLOATS, lambda a: bool((a > 0).all()))
    d.emit(d.one_of(("Sqrt", "Log", "Reciprocal")), [x])


def other(d: Drawing, name: str) -> str:
    """A value that broadcasts with this one: itself, another one, or a new one."""
    array = d.values[name]
    if d.flag():
        return d.pick((array.dtype.name,), lambda a: _broadcasts(a.shape, array.shape))
    shape = [n if d.flag() else 1 for n in array.shape][d.integer(0, array.ndim) :]
    return d.constant(d.array(array.dtype.name, shape))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def pair(d: Drawing, kinds: tuple[str, ...], *, exact: bool = False) -> list[str]:
    x = d.pick(kinds, exact=exact)
    y = other(d, x)
    if exact and not d.is_exact(y):
        raise Nothing
    return [x, y] if d.flag() else [y, x]


def arithmetic(d: Drawing) -> None:
    op = d.one_of(("Add", "Sub", "Mul", "Min", "Max", "Mean", "Sum"))
    floats = op in ("Mean", "Sum")
    d.emit(op, pair(d, FLOATS if floats else NUMBERS), exact=op != "Mean")


def several(d: Drawing) -> None:
    x = d.pick(FLOATS)
    d.emit(d.one_of(("Sum", "Max", "Min")), [x, other(d, x), x][d.integer(0, 2) :], exact=True)


def quotients(d: Drawing) -> None:
    x = d.pick(NUMBERS)
    divisor = d.array(d.values[x].dtype.name, d.values[x].shape[d.integer(0, d.values[x].ndim) :])
    divisor[divisor == 0] = 3
    floats = d.values[x].dtype.kind == "f"
    if not floats and d.flag():
        d.emit("Mod", [x, d.constant(divisor)], exact=True, fmod=int(d.flag()))
    else:
        d.emit("Div", [x, d.constant(divisor)], exact=not floats)


def comparisons(d: Drawing) -> None:
    op = d.one_of(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    d.emit(op, pair(d, (*NUMBERS, "bool") if op == "Equal" else NUMBERS, exact=True), exact=True)


def logic(d: Drawing) -> None:
    if d.flag():
        d.emit("Not", [d.pick(("bool",))], exact=True)
    else:
        d.emit(d.one_of(("And", "Or", "Xor")), pair(d, ("bool",)), exact=True)


def bits(d: Drawing) -> None:
    if d.opset < 18:
        raise Nothing
    d.emit(d.one_of(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), pair(d, INTEGERS), exact=True)


def choices(d: Drawing) -> None:
    x = d.pick()
    y = other(d, x)
    shape = np.broadcast_shapes(d.values[x].shape, d.values[y].shape)
    condition = [n if d.flag() else 1 for n in shape][d.integer(0, len(shape)) :]
    d.emit("Where", [d.constant(d.array("bool", condition)), x, y], exact=True)


def bounds(d: Drawing) -> None:
    x = d.pick(NUMBERS)
    kind = d.values[x].dtype.name
    ends = [d.constant(d.array(kind, ())) if d.flag() else "" for _ in range(2)]
    while ends and not ends[-1]:
        ends.pop()
    d.emit("Clip", [x, *ends], exact=True)


def casts(d: Drawing) -> None:
    x, to = d.pick(exact=True), d.one_of(KINDS)
    if to.startswith("u") and (d.values[x] < 0).any():
        raise Nothing  # which is undefined of floats
    if (np.abs(d.values[x].astype(float)) > 100).any():
        raise Nothing
    d.emit("Cast", [x], exact=True, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def reductions(d: Drawing) -> None:
    op = d.one_of(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"))
    kinds = FLOATS if op in ("L2", "LogSumExp", "Mean") else (*FLOATS, "int64")
    x = d.pick(kinds)
    a = d.values[x]
    axes = d.axes(a.ndim)
    gone = {i % a.ndim for i in axes} or set(range(a.ndim))
    if op in ("Max", "Min", "Mean", "LogSumExp") and any(a.shape[i] == 0 for i in gone):
        raise Nothing
    more = {"keepdims": int(d.flag())}
    exact = op in ("Sum", "Max", "Min", "L1", "SumSquare")
    as_operand = d.opset >= 18 or op == "Sum"
    if as_operand and d.flag():
        more["noop_with_empty_axes"] = int(d.flag())
    if as_operand:
        operands = [x, d.integers(*axes)] if axes or d.flag() else [x]
        d.emit(f"Reduce{op}", operands, exact=exact, **more)
    else:
        d.emit(f"Reduce{op}", [x], exact=exact, **(more | ({"axes": axes} if axes else {})))


def places(d: Drawing) -> None:
    x = d.pick(NUMBERS, exact=True)
    a = d.values[x]
    axis = d.axis(a.ndim)
    if a.shape[axis] == 0:
        raise Nothing
    more = {"keepdims": int(d.flag()), "select_last_index": int(d.flag())}
    d.emit(d.one_of(("ArgMax", "ArgMin")), [x], exact=True, axis=axis, **more)


def largest(d: Drawing) -> None:
    x = d.pick((*FLOATS, "int64", "int32"), exact=True)
    a = d.values[x]
    axis = d.axis(a.ndim)
    ways = {"axis": axis, "largest": int(d.flag())}
    d.emit("TopK", [x, d.integers(d.integer(0, a.shape[axis]))], outputs=2, exact=True, **ways)


def running(d: Drawing) -> None:
    if d.opset < 14:
        raise Nothing
    x = d.pick((*FLOATS, "int64", "int32"))
    axis = d.constant(np.array(d.axis(d.values[x].ndim)))
    ways = {"exclusive": int(d.flag()), "reverse": int(d.flag())}
    d.emit("CumSum", [x, axis], exact=True, **ways)


def softmaxes(d: Drawing) -> None:
    x = d.pick(FLOATS, lambda a: a.size > 0)
    op = d.one_of(("Softmax", "LogSoftmax", "LpNormalization"))
    if op == "LpNormalization" and not (np.abs(d.values[x]) > 0).all():
        raise Nothing
    d.emit(op, [x], axis=d.axis(d.values[x].ndim))


def products(d: Drawing) -> None:
    x = d.pick(FLOATS, lambda a: a.ndim >= 1)
    a = d.values[x]
    batch = [n if d.flag() else 1 for n in a.shape[:-2]][d.integer(0, max(a.ndim - 2, 0)) :]
    columns = [] if d.flag() and not batch else [d.integer(0, 4)]
    y = d.constant(d.array(a.dtype.name, [*batch, a.shape[-1], *columns]))
    d.emit("MatMul", [x, y], exact=True)


def sizes(d: Drawing) -> None:
    x = d.pick()
    rank = d.values[x].ndim
    way = d.integer(0, 3)
    if way == 0:
        d.emit("Size", [x], exact=True)
        return
    more = {"start": d.integer(-rank, rank)} if d.opset >= 15 and d.flag() else {}
    (shape,) = d.emit("Shape", [x], exact=True, **more)
    if way == 2:
        d.emit("ConstantOfShape", [shape], exact=True)
    elif way == 3:
        (total,) = d.emit("ReduceProd", [shape], exact=True, keepdims=0)
        zero, one = (d.constant(np.array(n, np.int64)) for n in (0, 1))
        d.emit("Range", [zero, total, one], exact=True)


def convolutions(d: Drawing) -> None:
    kind, axes = d.one_of(FLOATS[:1]), d.integer(1, 2)
    group, each = d.one_of((1, 1, 2)), d.integer(1, 3)
    x = d.pick((kind,), lambda a: a.ndim == 2 + axes and a.shape[1] % group == 0 and a.size > 0)
    channels = d.values[x].shape[1] // group
    taps = [d.integer(1, 3) for _ in range(axes)]
    w = d.constant(d.array(kind, (group * each, channels, *taps)))
    bias = [d.constant(d.array(kind, (group * each,)))] if d.flag() else []
    more = {
        "pads": [d.integer(0, 2) for _ in range(2 * axes)], "group": group,
        "strides": [d.integer(1, 2) for _ in range(axes)],
        "dilations": [d.integer(1, 2) for _ in range(axes)],
    }  # fmt: skip
    spans = zip(d.values[x].shape[2:], taps, more["dilations"], strict=True)
    if any(n < (t - 1) * dilation + 1 for n, t, dilation in spans):
        raise Nothing
    d.emit("Conv", [x, w, *bias], exact=True, **more)


def pools(d: Drawing) -> None:
    x = d.pick(("float32",), lambda a: a.ndim == 4 and a.size > 0)
    way = d.integer(0, 2)
    if way == 0:
        d.emit("GlobalMaxPool", [x], exact=True)
        return
    if way == 1:
        d.emit("GlobalAveragePool", [x])
        return
    taps = [d.integer(1, 2) for _ in range(2)]
    if any(n < t for n, t in zip(d.values[x].shape[2:], taps, strict=True)):
        raise Nothing
    d.emit("MaxPool", [x], exact=True, kernel_shape=taps, strides=[d.integer(1, 2)] * 2)


def one_hot(d: Drawing) -> None:
    x = d.pick(("int64", "int32"), lambda a: a.ndim < 4)
    values = d.constant(d.array("float32", (2,)))
    rank = d.values[x].ndim
    d.emit(
        "OneHot", [x, d.constant(np.array(3)), values], exact=True, axis=d.integer(-rank - 1, rank)
    )


RECIPES: tuple[Callable[[Drawing], None], ...] = (
    smooth, steps, simple, roots, arithmetic, several, quotients, comparisons, logic, bits, choices,
    bounds, casts, reductions, places, largest, running, softmaxes, products, sizes, convolutions,
    pools, one_hot, *MOVEMENTS,
)  # fmt: skip
