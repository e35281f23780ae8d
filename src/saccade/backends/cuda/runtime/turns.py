"""Loops and branches between launches: their bodies are programs, whose turns the host counts.

What says whether there is another turn is read back, which waits for the GPU, where it is not the
same at every turn; all other values stay on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.ir import DType

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.ir import Array
    from saccade.opdefs import Loop
    from saccade.plan import Slot, Step

__all__ = ["TURN_BYTES", "StepTurns", "Turning"]

Turning = Callable[[Sequence[DeviceArray], int], Sequence[DeviceArray]]
"""A turn of a body: its outputs for its inputs, on a stream."""

_BLOCK = 4096
"""Numbers of turns that are brought to the GPU at once."""
TURN_BYTES = 16
"""From one to the next: kernels are compiled for operands at multiples of so many."""


class StepTurns:
    """A step with bodies.

    Args:
        device: The GPU.
        step: A loop or a branch; its operands and results lie without gaps, row by row.
        bodies: Their turns.
        beside: How many turns of a loop its body makes at once, which then takes their numbers
            `TURN_BYTES` apart and gives each result for each of them; 1 where it makes one.
        first_constant: From which entry of the table of bases on there are constants.
        held: Where the keys of constants that are held go.

    Raises:
        OutOfMemoryError: If the GPU has no room for what counts turns.
    """

    def __init__(
        self,
        device: DeviceContext,
        step: Step,
        bodies: Sequence[Turning],
        beside: int,
        first_constant: int,
        held: list[tuple[str, str]],
    ) -> None:
        self._device, self._bodies = device, bodies
        self._first_constant, self._held = first_constant, held
        self._step, self._beside = step, beside
        self._again: bool | None = None
        self._known: dict[int, Array] = {}
        self._shared: dict[str, int] = {}

    def run(self, bases: Array, stream: int) -> None:
        """Compute the step.

        Args:
            bases: The table of bases.
            stream: Where everything before it is.

        Raises:
            LoopError: If a loop takes more turns than it may.
            OutOfMemoryError: If the GPU has not what a turn needs.
        """
        operands = [self._at(slot, bases, stream) for slot in self._step.read]
        results = [self._at(slot, bases, stream) for slot in self._step.outputs]
        if len(self._bodies) == 1:
            self._loop(operands, results, stream)
            return
        chosen = self._bodies[0 if bool(self._read(operands, 0).item()) else 1]
        for found, place in zip(chosen(operands[1:], stream), results, strict=True):
            self._copy(found, place.address, stream)

    def _loop(
        self, operands: Sequence[DeviceArray], results: Sequence[DeviceArray], stream: int
    ) -> None:
        op = cast("Loop", self._step.op)
        most, going = int(self._read(operands, 0).item()), bool(self._read(operands, 1).item())
        asked, gathered = most if going else 0, results[op.carried : -1]
        play = self._by_turns if self._beside == 1 else self._side_by_side
        made = play(op, asked, operands[2:], results, stream)
        for rows in gathered:
            done = made * (rows.nbytes // max(1, rows.shape[0]))
            if rows.nbytes > done:
                self._device.driver.fill(rows.address + done, 0, rows.nbytes - done, stream)
        self._copy(self._number(made, stream), results[-1].address, stream)

    def _by_turns(
        self,
        op: Loop,
        asked: int,
        operands: Sequence[DeviceArray],
        results: Sequence[DeviceArray],
        stream: int,
    ) -> int:
        """One turn after the other; how many were made of those that were asked for."""
        (turn,), gathered = self._bodies, results[op.carried : -1]
        carried, read = operands[: op.carried], operands[op.carried :]
        number, going = 0, True
        while going and number < asked:
            op.check_turn(number, gathers=bool(gathered))
            told = (self._number(number, stream), self._going(stream))
            more, *found = turn((*told, *carried, *read), stream)
            carried = found[: op.carried]
            for rows, row in zip(gathered, found[op.carried :], strict=True):
                self._copy(row, rows.address + number * row.nbytes, stream)
            if number == 0 or not op.steady:
                going = bool(more.numpy().item())
            number += 1
        for value, place in zip(carried, results, strict=False):
            self._copy(value, place.address, stream)
        return number

    def _side_by_side(
        self,
        op: Loop,
        asked: int,
        operands: Sequence[DeviceArray],
        results: Sequence[DeviceArray],
        stream: int,
    ) -> int:
        """The same where turns do not wait for each other, so many at a time."""
        (turn,), gathered = self._bodies, results[:-1]
        count, first = max(0, asked), 0
        if count and not self._goes_on(op, operands, stream):
            count = 1
        for last in (op.most, op.room):
            # As the first turn too many would.
            if isinstance(last, int) and count > last:
                op.check_turn(last, gathers=bool(gathered))
        while first < count:
            # The last ones begin earlier where they are fewer: their turns give the same again.
            begin = max(0, min(first, count - self._beside))
            told = (self._numbers_from(begin, count, stream), self._going(stream))
            _, *found = turn((*told, *operands), stream)
            made = min(self._beside, count - begin)
            for rows, fresh in zip(gathered, found, strict=True):
                row = fresh.nbytes // self._beside
                if row:
                    self._device.driver.copy(
                        rows.address + begin * row, fresh.address, made * row, stream
                    )
            first = begin + made
        return count

    def _goes_on(self, op: Loop, operands: Sequence[DeviceArray], stream: int) -> bool:
        """Whether each turn says that there is another one, which all say alike."""
        (turn,), (body,) = self._bodies, op.bodies
        if body.outputs[0] == 1:
            return True
        # A constant, which is on the GPU alone: turns of the first run are made once more for it.
        if self._again is None:
            told = (self._numbers_from(0, 1, stream), self._going(stream))
            more, *_ = turn((*told, *operands), stream)
            self._again = bool(more.numpy().flat[0])
        return self._again

    def _at(self, slot: Slot, bases: Array, stream: int) -> DeviceArray:
        """What lies there."""
        address = int(bases[slot.ref.base]) + slot.ref.offset
        return DeviceArray(self._device, address, slot.view.shape, slot.view.dtype, stream, None)

    def _read(self, operands: Sequence[DeviceArray], which: int) -> Array:
        """An operand on the host; constants are read once."""
        if which in self._known:
            return self._known[which]
        found = operands[which].numpy()
        if self._step.read[which].ref.base >= self._first_constant:
            self._known[which] = found
        return found

    def _copy(self, source: DeviceArray, target: int, stream: int) -> None:
        if source.nbytes and source.address != target:
            self._device.driver.copy(target, source.address, source.nbytes, stream)

    def _number(self, number: int, stream: int) -> DeviceArray:
        """The number of a turn."""
        block, place = divmod(number, _BLOCK)
        address = self._constant(f"turns {block}", partial(_numbers, block)) + place * TURN_BYTES
        return DeviceArray(self._device, address, (), DType.I64, stream, None)

    def _numbers_from(self, first: int, count: int, stream: int) -> DeviceArray:
        """The numbers of turns side by side, of which there are `count`: the last stands again."""
        if first + self._beside <= count and first % _BLOCK + self._beside <= _BLOCK:
            address = self._number(first, stream).address
        else:
            numbers = np.minimum(first + np.arange(self._beside), count - 1)
            address = self._constant(f"turns {numbers}", partial(_spread, numbers))
        shape = (self._beside, TURN_BYTES // 8)
        return DeviceArray(self._device, address, shape, DType.I64, stream, None)

    def _going(self, stream: int) -> DeviceArray:
        """That a turn is to be made."""
        address = self._constant("a turn", partial(np.ones, TURN_BYTES, np.bool_))
        return DeviceArray(self._device, address, (), DType.BOOL, stream, None)

    def _constant(self, name: str, make: Callable[[], Array]) -> int:
        """The address of what every program shares that counts turns."""
        if name not in self._shared:
            key = ("", name)
            self._shared[name] = self._device.constants.hold(key, make)
            self._held.append(key)  # as often as it is held, by whatever threads
        return self._shared[name]


def _numbers(block: int) -> Array:
    return _spread(np.arange(block * _BLOCK, (block + 1) * _BLOCK))


def _spread(numbers: Array) -> Array:
    table = np.zeros((len(numbers), TURN_BYTES // 8), np.int64)
    table[:, 0] = numbers
    return table
