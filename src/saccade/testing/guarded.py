"""One call's operands, results and workspaces in one block of memory, guard bands between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from saccade.errors import OutOfBoundsError
from saccade.ir import Array
from saccade.kernels.base import Call, In, Launch, Out, Packing, Temp, View
from saccade.kernels.bind import Binder, Phase, Ref

__all__ = ["GuardedBuffer", "GuardedMemory", "strided"]

_GUARD = 256  # bytes on either side of a buffer
_PATTERN = 0xA5
_FRESH = 0xFF  # NaN in every float type
_LINE = 64  # bytes that buffers begin at multiples of


def strided(memory: Array, offset: int, view: View) -> Array:
    """The elements of a view whose first one lies `offset` bytes into the memory."""
    size = view.dtype.itemsize
    # As plain integers first: NumPy has no name for some of the types of `ml_dtypes` there.
    base = memory[offset : offset + max(view.extent, 1) * size].view(f"u{size}")
    steps = tuple(s * size for s in view.strides)
    return np.lib.stride_tricks.as_strided(base, view.shape, steps).view(view.dtype.numpy)


def room_of(view: View) -> tuple[int, View]:
    """What is behind the channels of a view's pixels: elements before its first one, and it."""
    n, c, h, w = view.shape
    return c, View(view.dtype, (n, view.room, h, w), view.strides)


@dataclass(frozen=True)
class GuardedBuffer:
    """One buffer between its guards.

    Attributes:
        offset: Bytes from the beginning of the memory.
        nbytes: Its size.
        content: What is in it before the call, as bytes; None for results and workspaces.
    """

    offset: int
    nbytes: int
    content: Array | None


@dataclass
class GuardedMemory:
    """`saccade.kernels.bind.Places` for one call; results and workspaces start as NaN.

    Attributes:
        call: The call.
        arrays: Its operands, in logical order.
        packing: Functions that make packed constants, by name.
        threads: How many logical threads there is scratch for.
    """

    call: Call
    arrays: Sequence[Array]
    packing: Mapping[str, Callable[..., Array]]
    threads: int = 1
    _size: int = _GUARD
    _fills: list[tuple[int, Array]] = field(default_factory=list)
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _where: dict[object, tuple[int, int]] = field(default_factory=dict)

    def phases(self, launches: Sequence[Launch]) -> list[Phase]:
        """The phases, bound to places in the memory that `filled` gives."""
        bound = [Binder(self.threads, alignment=_LINE).phase(launch, self) for launch in launches]
        # A result that no phase writes has a place all the same.
        for i in range(len(self.call.outputs)):
            self.output(i)
        return bound

    def buffers(self) -> tuple[GuardedBuffer, ...]:
        """All buffers of the phases that were bound, in the order of their places."""
        contents = dict(self._fills)
        return tuple(
            GuardedBuffer(offset, nbytes, contents.get(offset)) for offset, nbytes in self._spans
        )

    def filled(self, pattern: int = _PATTERN) -> tuple[Array, Array]:
        """The memory, and for each byte of it whether it is a guard's or an operand's.

        Args:
            pattern: Every byte of the guards.
        """
        memory = np.full(self._size + _LINE, pattern, np.uint8)
        start = -memory.ctypes.data % _LINE
        memory = memory[start : start + self._size]
        guards = np.ones(self._size, bool)
        for buffer in self.buffers():
            here = slice(buffer.offset, buffer.offset + buffer.nbytes)
            memory[here] = _FRESH if buffer.content is None else buffer.content
            guards[here] = buffer.content is not None  # operands may not be written either
        for i, view in enumerate(self.call.outputs):
            offset, nbytes = self._where[Out(i)]
            guards[offset : offset + nbytes] = ~_written(view)[:nbytes]
        return memory, guards

    def result(self, memory: Array, index: int) -> Array:
        """A result in logical order, copied."""
        return strided(memory, self.output(index).offset, self.call.outputs[index]).copy()

    def check(self, before: Array, memory: Array, guards: Array, name: str) -> None:
        """Compare guards with what they were, and what has to be zeros with zeros.

        Guards are also what lies between the elements of a result.

        Raises:
            OutOfBoundsError: If one was written to, or if there is something else than zeros.
        """
        if not np.array_equal(before, memory[guards]):
            raise OutOfBoundsError(f"{name} wrote into a guard band or an operand")
        for i, view in enumerate(self.call.outputs):
            if view.zeros and view.room and view.size:
                at, room = room_of(view)
                begin = self.output(i).offset + at * view.dtype.itemsize
                if strided(memory, begin, room).any():
                    raise OutOfBoundsError(f"{name} left something behind the channels of a pixel")

    def output(self, index: int) -> Ref:
        """A result."""
        view = self.call.outputs[index]
        return Ref(0, *self._span(Out(index), view.extent * view.dtype.itemsize))

    def temp(self, operand: Temp) -> Ref:
        """A temporary."""
        return Ref(0, *self._span(operand, operand.nbytes))

    def scratch(self, before: int, nbytes: int) -> Ref:
        """Scratch of all logical threads."""
        offset, _ = self._span(("scratch", before, nbytes), nbytes * self.threads)
        return Ref(0, offset, nbytes)

    def input(self, index: int) -> Ref:
        """An operand, filled with its array."""
        view, array = self.call.inputs[index], self.arrays[index]
        nbytes = view.extent * view.dtype.itemsize
        fresh = In(index) not in self._where
        span = self._span(In(index), nbytes)
        if fresh and nbytes:
            # NaN between the elements, which shows where a kernel reads them.
            content = np.full(nbytes, 0xFF, np.uint8)
            strided(content, 0, view)[...] = array
            if view.zeros and view.room:
                at, room = room_of(view)
                strided(content, at * view.dtype.itemsize, room)[...] = 0
            self._fills.append((span[0], content))
        return Ref(0, *span)

    def packed(self, packing: Packing) -> Ref:
        """A packed constant, as NumPy packs it."""
        function = self.packing[packing.function]
        array = function(*(self.arrays[i] for i in packing.inputs), *packing.parameters)
        assert array.nbytes == packing.nbytes, (packing, array.nbytes)
        fresh = packing not in self._where
        span = self._span(packing, array.nbytes)
        if fresh:
            self._fills.append((span[0], np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
        return Ref(0, *span)

    def _span(self, key: object, nbytes: int) -> tuple[int, int]:
        if key not in self._where:
            self._where[key] = (self._size, nbytes)
            self._spans.append((self._size, nbytes))
            self._size += -(-nbytes // _LINE) * _LINE + _GUARD
        return self._where[key]


def _written(view: View) -> Array:
    """For each byte from a result's first to its last, whether a kernel may write it."""
    flags = np.zeros(max(view.extent, 1), bool)
    np.lib.stride_tricks.as_strided(flags, view.shape, view.strides)[...] = True
    if view.zeros and view.room and view.size:
        at, room = room_of(view)
        np.lib.stride_tricks.as_strided(flags[at:], room.shape, room.strides)[...] = True
    return np.repeat(flags, view.dtype.itemsize)
