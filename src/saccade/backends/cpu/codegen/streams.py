"""Results that are written past the caches.

A store reads its line into a cache first, and what the caches do not hold long enough for the next
reader is then written back: three times the traffic of a result's bytes with what was read for it.
Stores past the caches write whole lines to memory and read none. They are as fast as a vector fills
a line, and only there: parts of lines would be read by memory after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.control import Control
from saccade.backends.cpu.codegen.values import Int, Vec, literal

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.memory import Ptr

__all__ = ["LINE", "Streams"]

LINE = 64
"""Bytes of a line of cache."""


class Streams(Control):
    """Stores past the caches, where addresses allow them."""

    def store_past(self, address: Any, value: Vec) -> None:  # noqa: ANN401
        """Store whole lines, from the first byte of a line on."""
        store = self.b.store(value.value, address, align=LINE)
        store.set_metadata("nontemporal", self.module.add_metadata([literal(llvm.I32, 1)]))

    @contextmanager
    def streams(
        self, result: Ptr, operands: Sequence[Ptr], wanted: bool = True
    ) -> Iterator[Iterator[Ptr]]:
        """Emit code twice: for a result that goes past the caches, and where it cannot.

            with k.streams(y, [x], config.streamed) as ways:
                for to in ways:
                    ...  # with stores to `to`

        Once only where that is not wanted.

        It cannot where it begins inside a line, which is only known when the code runs, nor pays
        where it overwrites an operand, whose lines are in the caches anyway. The caller sees to it
        that every unmasked store of whole lines begins a whole number of lines from the result.
        What was stored is there for other threads once the code is left.
        """
        if not wanted:
            yield iter((result,))
            return
        b = self.b
        place = Int(b, b.ptrtoint(result.base, llvm.I64))
        free = (place & (LINE - 1)).equals(0)
        for operand in operands:
            free = free & place.differs(Int(b, b.ptrtoint(operand.base, llvm.I64)))

        def ways(then: Any, otherwise: Any) -> Iterator[Ptr]:  # noqa: ANN401
            with then:
                yield replace(result, streamed=True)
                b.call(self._intrinsic("llvm.x86.sse.sfence", llvm.ir.VoidType(), []), [])
            with otherwise:
                yield result

        with self.when_else(free) as (then, otherwise):
            yield ways(then, otherwise)
