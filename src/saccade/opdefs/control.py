"""Loops and branches whose course data decide; their bodies run as programs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.errors import LoopError, printable
from saccade.ir import Array, BodyOp, Dim, DType, TensorType, Turn, Work
from saccade.ir.dim import sub
from saccade.opdefs._rules import expect, expect_count, static_count, text

__all__ = ["Branch", "Loop"]

_ONE = TensorType(DType.I64, (1,))


@dataclass(frozen=True)
class Loop(BodyOp):
    """A body as often as data say.

    Operands: how many turns at most (int64 [1]), whether to begin (bool [1]), `carried` values,
    whatever else the body reads, constants. The body takes the number of the turn (int64 []),
    whether it was to be made (bool []), the carried values, and what it reads. It gives whether
    there is another turn (bool, one element), the carried values, and values to gather. Results:
    the carried values after the last turn, gathered values [room, …], the number of turns (int64
    [1]). Behind the turns that were made, gathered values are 0.

    Attributes:
        carried: How many values go from turn to turn.
        room: Turns that there is room for in gathered values; None if the body gives none.
        most: Turns that may be made at all.
    """

    carried: int
    room: Dim | None
    most: int

    _dim_fields = frozenset({"room"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        (body,) = self.bodies
        expect_count(self, inputs, 2 + self.carried + self.constants, len(inputs))
        operands = inputs[: len(inputs) - self.constants]
        expect_fit(
            self, body.takes, [*(TensorType(t.dtype, ()) for t in operands[:2]), *operands[2:]]
        )
        gives = body.gives
        expect(self, len(gives) > self.carried, f"its body gives {len(gives)} values")
        kept = body.takes[2 : 2 + self.carried]
        expect_fit(self, kept, gives[1 : 1 + self.carried])
        gathered = gives[1 + self.carried :]
        expect(self, not gathered or self.room is not None, "no room for what it gathers")
        rows = (TensorType(t.dtype, (self.room or 0, *t.shape)) for t in gathered)
        return (*kept, *rows, _ONE)

    @property
    def steady(self) -> bool:
        """Whether turns say all the same of the next one: a constant, or that they were made."""
        (body,) = self.bodies
        again = body.outputs[0]
        return again == 1 or body.inputs <= again < body.inputs + len(body.constants)

    def play(self, turns: Sequence[Turn], operands: Sequence[Array]) -> list[Array]:
        """See the base class."""
        (body,) = self.bodies
        (turn,) = turns
        most, going = int(operands[0].item()), bool(operands[1].item())
        carried, read = list(operands[2 : 2 + self.carried]), operands[2 + self.carried :]
        gathered = [
            np.zeros((static(self.room or 0), *map(static, kind.shape)), kind.dtype.numpy)
            for kind in body.gives[1 + self.carried :]
        ]
        number = 0
        while going and number < most:
            self.check_turn(number, gathers=bool(gathered))
            inputs = (np.asarray(number, np.int64), np.asarray(going), *carried, *read)
            again, *results = turn(inputs)
            carried = results[: self.carried]
            for rows, row in zip(gathered, results[self.carried :], strict=True):
                rows[number] = row
            going = bool(again.item())
            number += 1
        return [*carried, *gathered, np.asarray([number], np.int64)]

    def check_turn(self, number: int, *, gathers: bool) -> None:
        """See that there may be a turn of this number.

        Args:
            number: From 0.
            gathers: Whether it gathers values.

        Raises:
            LoopError: If it is one too many.
        """
        if gathers and isinstance(self.room, int) and number >= self.room:
            raise LoopError(
                f"loop {printable(self.name)!r} gathers results of more than {self.room} turns "
                "(Limits.gathered): the limit has to be as large as the most turns that it makes"
            )
        if number >= self.most:
            raise LoopError(
                f"loop {printable(self.name)!r} is not done after {self.most} turns "
                "(Limits.turns): a model that makes more needs a larger limit"
            )

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        """Of one turn, and of what it gathers."""
        once, gathered = self.once(), outputs[self.carried : -1]
        size = sum(static_count(t.shape) * t.dtype.itemsize for t in gathered)
        return Work(once.flops, once.bytes + size)


@dataclass(frozen=True)
class Branch(BodyOp):
    """The one body or the other.

    Operands: the condition (bool [1]), what either body reads, constants. Bodies: that of a true
    condition and that of a false one; both take all that either reads, and give the same types.
    """

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1 + self.constants, len(inputs))
        yes, no = self.bodies
        read = inputs[1 : len(inputs) - self.constants]
        for body in self.bodies:
            expect_fit(self, body.takes, read)
        expect_fit(self, yes.gives, no.gives)
        return yes.gives

    def play(self, turns: Sequence[Turn], operands: Sequence[Array]) -> list[Array]:
        """See the base class."""
        taken = turns[0 if bool(operands[0].item()) else 1]
        return list(taken(operands[1:]))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        """Of the larger body."""
        return self.once()


def static(dim: Dim) -> int:
    """A dim of an operator that is bound."""
    assert isinstance(dim, int), "bound"
    return dim


def expect_fit(op: BodyOp, wanted: Sequence[TensorType], given: Sequence[TensorType]) -> None:
    """Raise unless types are alike, as far as symbols tell, whatever 16-bit storage they have."""
    expect(op, len(wanted) == len(given), f"{len(given)} values in place of {len(wanted)}")
    for one, other in zip(wanted, given, strict=True):
        gaps = [sub(a, b) for a, b in zip(one.shape, other.shape, strict=False)]
        fits = len(one.shape) == len(other.shape) and not any(
            isinstance(gap, int) and gap != 0 for gap in gaps
        )
        same = one.dtype.arithmetic is other.dtype.arithmetic
        expect(op, fits and same, f"{text(other.shape)} in place of {text(one.shape)}")
