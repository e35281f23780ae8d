"""Recurrent layers: odd sizes, both directions, rows that end early, every gate's form."""

from __future__ import annotations

from saccade.ir.expr import IDENTITY, Expr, apply, arg
from saccade.kernels.cases.base import I64, Case, Given, Normal, Operand
from saccade.opdefs import Recurrent

__all__ = ["CASES"]

_SIGMOID, _TANH, _RELU = (apply(name, arg(0)) for name in ("sigmoid", "tanh", "relu"))
_USUAL = (_SIGMOID, _TANH, _TANH)
_SMALL = Normal(0.3)


def _case(
    name: str,
    kind: str,
    steps: int,
    batch: int,
    size: int,
    directions: int = 1,
    *,
    activations: tuple[Expr, Expr, Expr] = _USUAL,
    lengths: tuple[int, ...] = (),
    backwards: bool = False,
    linear: bool = False,
    coupled: bool = False,
    peephole: bool = False,
    clip: float = 0.0,
    constant: bool = True,
    started: bool = True,
) -> Case:
    op = Recurrent(
        kind, activations, backwards, linear, coupled, clip, started, peephole, bool(lengths)
    )
    width = op.gates * size
    state = Operand((directions, batch, size))
    operands = [
        Operand((steps, batch, directions, width)),
        Operand((directions, width, size), constant=constant, values=_SMALL),
    ]
    operands += [state] * ((1 + (kind == "lstm")) if started else 0)
    if kind == "gru" and linear:
        operands.append(Operand((directions, size)))
    if peephole:
        operands.append(Operand((directions, 3 * size)))
    if lengths:
        operands.append(Operand((batch,), I64, values=Given(tuple(map(float, lengths)))))
    return Case(name, op, tuple(operands), terms=40 * size * max(steps, 1))


CASES = (
    _case("lstm", "lstm", 3, 2, 19),
    _case("lstm-both-ways", "lstm", 4, 5, 33, 2),
    _case("lstm-one-unit", "lstm", 2, 1, 1),
    _case("lstm-peepholes", "lstm", 3, 3, 8, 2, peephole=True, coupled=True),
    _case("lstm-lengths", "lstm", 5, 4, 17, 2, lengths=(5, 1, 0, 3)),
    _case("lstm-clipped", "lstm", 3, 2, 16, clip=0.5, activations=(_SIGMOID, _RELU, _TANH)),
    _case("lstm-computed-weights", "lstm", 2, 3, 9, 2, constant=False),
    _case("gru-computed-weights", "gru", 2, 1, 35, 2, constant=False),
    _case("lstm-no-steps", "lstm", 0, 2, 7),
    _case("lstm-from-nothing", "lstm", 3, 2, 12, started=False),
    _case("gru", "gru", 3, 2, 19, backwards=True),
    _case("gru-both-ways", "gru", 4, 7, 35, 2),
    _case("gru-linear", "gru", 3, 3, 21, 2, linear=True),
    _case("gru-lengths", "gru", 4, 3, 5, linear=True, lengths=(2, 4, 1)),
    _case("rnn", "rnn", 5, 3, 18, activations=(IDENTITY, _TANH, IDENTITY)),
    _case("rnn-from-nothing", "rnn", 2, 3, 5, 2, started=False),
    _case("rnn-relu", "rnn", 2, 9, 40, 2, activations=(IDENTITY, _RELU, IDENTITY), clip=1.0),
)
