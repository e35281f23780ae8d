"""Recurrent networks: LSTM, GRU and plain ones, over what their inputs' products are (ONNX)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_float,
    expect_same_dtype,
    static_count,
    tensor_bytes,
    unify,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import evaluate

__all__ = ["Recurrent"]

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True)
class Recurrent(Op):
    """A layer that walks through time, in one direction or both.

    Operands: `inputs` [T, B, D, G·H], the products of each step's input with the input weights and
    all biases that are added to them; `weights` [D, G·H, H] of the hidden state; then, as
    the flags say: `hidden` [D, B, H], the first state, and `cell` [D, B, H] of an lstm, which are
    zeros otherwise; `bias` [D, H] of a gru whose `linear` is set; `peepholes` [D, 3·H] of an lstm,
    for its input, output and forget gates; `lengths` [B], int64, how many steps each sequence has.

    Results: states of all steps [T, D, B, H]; the last one [D, B, H]; of an lstm its last cell,
    too. Steps behind a sequence's end give zeros and leave its state as it is.

    Gates lie in ONNX's order, each for all H units: input, output, forget, cell of an lstm; update,
    reset, hidden of a gru. G is their number. D = 2 is forwards, then backwards.

    Attributes:
        kind: "rnn", "gru" or "lstm".
        activations: Of gates (input, output, forget; update, reset), of the cell's or hidden input,
            of an lstm's state; of `$0`. An rnn has the second alone.
        backwards: Whether the only direction runs from the end.
        linear: Of a gru, whether the reset gate is applied to the product with the state.
        coupled: Of an lstm, whether the forget gate is one less the input gate.
        clip: Largest magnitude of what an activation is applied to; 0 for no bound.
        started: Whether there are first states.
        peephole, varying: Whether there are `peepholes` and `lengths`.
    """

    kind: str
    activations: tuple[Expr, Expr, Expr]
    backwards: bool = False
    linear: bool = False
    coupled: bool = False
    clip: float = 0.0
    started: bool = False
    peephole: bool = False
    varying: bool = False

    @property
    def gates(self) -> int:
        """G."""
        return _GATES[self.kind]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, self.kind in _GATES, f"kind {self.kind!r}")
        lstm, gru = self.kind == "lstm", self.kind == "gru"
        states = (1 + lstm) if self.started else 0
        count = 2 + states + (gru and self.linear) + self.peephole + self.varying
        expect(self, len(inputs) == count, f"takes {count} operands, got {len(inputs)}")
        x, weights = inputs[:2]
        expect_float(self, x, "inputs")
        expect_same_dtype(self, inputs[: len(inputs) - self.varying])
        ranks = tuple(len(t.shape) for t in inputs[: 2 + states])
        expect(self, ranks == (4, 3, 3, 3)[: len(ranks)], f"operands of {ranks} axes")
        steps, batch, directions, _ = x.shape
        expect(self, directions in (1, 2), f"{directions} directions")
        size = weights.shape[2]
        expect(self, isinstance(size, int), f"states of {size} units")
        assert isinstance(size, int)
        unify(self, x.shape[3], self.gates * size, "gates of the inputs")
        unify(self, weights.shape[1], self.gates * size, "gates of the weights")
        unify(self, weights.shape[0], directions, "directions of the weights")
        state = TensorType(x.dtype, (directions, batch, size))
        for operand in inputs[2 : 2 + states]:
            for have, want in zip(operand.shape, state.shape, strict=True):
                unify(self, have, want, "a size of a first state")
        if self.varying:
            lengths = inputs[-1]
            whole = lengths.dtype is DType.I64 and len(lengths.shape) == 1
            expect(self, whole, f"lengths {lengths.dtype.value} {list(lengths.shape)}")
        result = TensorType(x.dtype, (steps, directions, batch, size))
        return (result, state, state) if lstm else (result, state)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, weights, *more = inputs
        lstm = self.kind == "lstm"
        steps, batch, directions, _ = x.shape
        nothing = np.zeros((directions, batch, weights.shape[2]), x.dtype)
        hidden = more.pop(0) if self.started else nothing
        cells = more.pop(0) if self.started and lstm else nothing
        bias = more.pop(0) if self.kind == "gru" and self.linear else None
        peepholes = more.pop(0) if self.peephole else None
        lengths = more.pop(0) if self.varying else np.full(batch, steps)
        states = np.zeros((steps, *hidden.shape), x.dtype)
        last, last_cells = hidden.copy(), cells.copy()
        for direction in range(directions):
            order = range(steps)
            back = direction == 1 or self.backwards
            h, c = last[direction], last_cells[direction]
            for step in reversed(order) if back else order:
                own = (bias[direction] if bias is not None else None,
                       peepholes[direction] if peepholes is not None else None)  # fmt: skip
                new, cell = self._step(x[step, :, direction], weights[direction].T, h, c, own)
                there = (step < lengths)[:, None]
                h, c = np.where(there, new, h), np.where(there, cell, c)
                states[step, direction] = np.where(there, new, 0)
            last[direction], last_cells[direction] = h, c
        return (states, last, last_cells) if lstm else (states, last)

    def _step(
        self, x: Array, weights: Array, h: Array, c: Array, own: tuple[Array | None, Array | None]
    ) -> tuple[Array, Array]:
        """The next state, and the next cell of an lstm."""
        size, (bias, peepholes) = h.shape[1], own
        gate, inner, outer = (self._activation(e) for e in self.activations)
        if self.kind == "rnn":
            return inner(x + h @ weights), c
        if self.kind == "gru":
            z, r = (
                gate(x[:, part] + h @ weights[:, part])
                for part in (slice(0, size), slice(size, 2 * size))
            )
            rest = slice(2 * size, None)
            if bias is None:
                new = inner(x[:, rest] + (r * h) @ weights[:, rest])
            else:
                new = inner(x[:, rest] + r * (h @ weights[:, rest] + bias))
            return (1 - z) * new + z * h, c
        sums = x + h @ weights
        i, o, f, cell = (sums[:, n * size : (n + 1) * size] for n in range(4))
        p = np.zeros(3 * size, x.dtype) if peepholes is None else peepholes
        i = gate(i + p[:size] * c)
        f = 1 - i if self.coupled else gate(f + p[2 * size :] * c)
        new_cell = f * c + i * inner(cell)
        o = gate(o + p[size : 2 * size] * new_cell)
        return o * outer(new_cell), new_cell

    def _activation(self, e: Expr) -> Callable[[Array], Array]:
        def apply(x: Array) -> Array:
            bounded = np.clip(x, -self.clip, self.clip) if self.clip else x
            return evaluate(e, [bounded])

        return apply

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        units = static_count(outputs[0].shape)
        size = static_count(inputs[1].shape[2:])
        flops = sum(map(expr_flops, self.activations)) + 2 * self.gates * size + 4 * self.gates
        return Work(units * flops, tensor_bytes((*inputs, *outputs)))
