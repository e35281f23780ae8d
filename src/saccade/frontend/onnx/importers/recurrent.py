"""LSTM, GRU and RNN: products with the inputs of all steps at once, then a walk through time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._activations import activation
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.moves import (
    move,
    reshaped,
    slice_map,
    transpose_map,
)
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import IDENTITY, apply, arg, const
from saccade.opdefs import Concat, MatMul, Recurrent

__all__ = ["import_gru", "import_lstm", "import_rnn"]

_ADD = apply("add", arg(0), arg(1))


def import_rnn(call: OnnxNode) -> Sequence[Operand]:
    """ONNX RNN 7 to 22; directions have the same activations."""
    return _layer(call, "rnn")


def import_gru(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GRU 7 to 22; directions have the same activations."""
    return _layer(call, "gru")


def import_lstm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LSTM 7 to 22; directions have the same activations."""
    return _layer(call, "lstm")


def _layer(call: OnnxNode, kind: str) -> Sequence[Operand]:
    x, w, r = call.value(0), call.value(1), call.value(2)
    batch_first = call.flag("layout")
    if not x.rank == w.rank == r.rank == 3:
        raise call.broken(f"operands of {x.rank}, {w.rank} and {r.rank} axes")
    x = _swapped(call, x) if batch_first else x
    size, directions = r.shape[2], w.shape[0]
    if not isinstance(size, int) or not isinstance(directions, int):
        raise Refusal("a number of units that varies")
    if call.integer("hidden_size", size) != size:
        raise call.broken(f"hidden_size for weights {list(r.shape)}")
    op = Recurrent(
        kind,
        _activations(call, kind, directions),
        backwards=_backwards(call, directions),
        linear=kind == "gru" and call.flag("linear_before_reset"),
        coupled=kind == "lstm" and call.flag("input_forget"),
        clip=call.finite("clip", 0.0),
        started=call.has(5) or call.has(6),
        peephole=kind == "lstm" and call.has(7),
        varying=call.has(4),
    )
    added, own = _biases(call, op, size, directions)
    operands = [_products(call, x, w, added), r]
    if op.started:
        operands += _first_states(call, (5, 6)[: 1 + (kind == "lstm")], batch_first=batch_first)
    operands += own
    if op.peephole:
        operands.append(call.value(7))
    if op.varying:
        operands.append(cast_to(call, call.value(4), DType.I64))
    states, *last = call.build.emit(op, operands, call.name)
    if batch_first:
        order = (2, 0, 1, 3)
        states = move(call, states, transpose_map(states.shape, order))
        last = [_swapped(call, value) for value in last]
    return [states, *last]


def _swapped(call: OnnxNode, x: Value) -> Value:
    """The first two of three axes exchanged."""
    return move(call, x, transpose_map(x.shape, (1, 0, 2)))


def _products(call: OnnxNode, x: Value, w: Value, added: Value | None) -> Value:
    """[T, B, D, G·H]: every step's input times the weights of all gates and directions."""
    steps, batch, features = x.shape
    directions, rows, _ = w.shape
    flat = reshaped(call, x, (product((steps, batch)), features))
    weights = reshaped(call, w, (product((directions, rows)), features))
    if added is None:
        sums = call.emit(MatMul(transpose_b=True), flat, weights)
    else:
        sums = call.emit(MatMul(transpose_b=True, epilogue=_ADD), flat, weights, added)
    return reshaped(call, sums, (steps, batch, directions, rows))


def _biases(
    call: OnnxNode, op: Recurrent, size: int, directions: int
) -> tuple[Value | None, list[Value]]:
    """What is added to products with inputs, and what only to those with the hidden state."""
    if not call.has(3):
        if op.kind == "gru" and op.linear:
            # As a gate of its own, which is multiplied before it is added.
            dtype = call.value(0).dtype
            return None, [call.build.constant(np.zeros((directions, size), dtype.numpy))]
        return None, []
    both, width = call.value(3), op.gates * size
    if both.shape != (directions, 2 * width):
        raise call.broken(f"biases {list(both.shape)}")

    def part(start: int, count: int) -> Value:
        return move(call, both, slice_map(both.shape, {1: (start, count, 1)}))

    if op.kind != "gru" or not op.linear:
        sides = [part(0, width), part(width, width)]
        total = pointwise(call, lambda u, v: apply("add", u, v), sides)
        return reshaped(call, total, (1, directions * width)), []
    gates = pointwise(
        call, lambda u, v: apply("add", u, v), [part(0, 2 * size), part(width, 2 * size)]
    )
    total = call.emit(Concat(axis=1), gates, part(2 * size, size))
    return reshaped(call, total, (1, directions * width)), [part(width + 2 * size, size)]


def _first_states(call: OnnxNode, indices: Sequence[int], *, batch_first: bool) -> Sequence[Value]:
    """First states, of which one at least is given: the other one is zeros."""
    given = {i: call.value(i) for i in indices if call.has(i)}
    (like, *_) = given.values()
    found = []
    for index in indices:
        value = given.get(index)
        if value is None:
            # Whatever the elements are, none is less than itself.
            value = pointwise(
                call, lambda e: apply("where", apply("less", e, e), e, const(0)), [like]
            )
        found.append(_swapped(call, value) if batch_first else value)
    return found


def _backwards(call: OnnxNode, directions: int) -> bool:
    name = call.text("direction", "forward")
    if name not in ("forward", "reverse", "bidirectional"):
        raise call.broken(f"direction {name!r}")
    if directions != 1 + (name == "bidirectional"):
        raise call.broken(f"direction {name!r} with weights of {directions}")
    return name == "reverse"


_DEFAULTS = {
    "rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh"),
}  # fmt: skip
_PARAMETERS = {
    "affine": (1.0, 0.0), "relu": (), "leakyrelu": (0.01,), "thresholdedrelu": (1.0,), "tanh": (),
    "scaledtanh": (1.0, 1.0), "sigmoid": (), "hardsigmoid": (0.2, 0.5), "elu": (1.0,),
    "softsign": (), "softplus": (),
}  # fmt: skip
"""Activations by their lower-case names, and the defaults of alpha and beta."""


def _activations(call: OnnxNode, kind: str, directions: int) -> tuple[Expr, Expr, Expr]:
    """Those of gates, of the inner and of the outer tanh."""
    names = _texts(call) or _DEFAULTS[kind] * directions
    count = len(_DEFAULTS[kind])
    if len(names) != count * directions:
        raise call.broken(f"{len(names)} activations for {directions} directions")
    alphas = list(call.numbers("activation_alpha") or ())
    betas = list(call.numbers("activation_beta") or ())
    found = []
    for name in names:
        usual = _PARAMETERS.get(name.lower())
        if usual is None:
            raise call.broken(f"activation {name!r}")
        # Numbers are listed for those activations alone that have some.
        given = [
            (numbers.pop(0) if numbers else default)
            for numbers, default in zip((alphas, betas), usual, strict=False)
        ]
        found.append(activation(name.lower(), given))
    if found[count:] not in ([], found[:count]):
        raise Refusal("directions with different activations")
    if kind == "rnn":
        return IDENTITY, found[0], IDENTITY
    return found[0], found[1], found[2] if kind == "lstm" else IDENTITY


def _texts(call: OnnxNode) -> tuple[str, ...]:
    attribute = call.node.attributes.get("activations")
    return () if attribute is None else tuple(map(str, attribute.as_strings()))
