"""Structured control flow and mutable variables of the kernel language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.codegen.emitter import COUNTERS, REACH, THREAD, WIDTH, Emitter
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Vec, as_int

__all__ = ["Control", "Var"]


class Var:
    """A mutable variable; LLVM keeps it in a register."""

    __slots__ = ("_kind", "_slot", "b")

    def __init__(self, builder: Any, slot: Any, kind: type[Int] | type[Vec]) -> None:  # noqa: ANN401
        self.b, self._slot, self._kind = builder, slot, kind

    def get(self) -> Any:  # noqa: ANN401 - an Int or a Vec, as it was created
        """The current value."""
        return self._kind(self.b, self.b.load(self._slot, typ=self._slot.allocated_type))

    def set(self, value: Any) -> None:  # noqa: ANN401
        """Assign."""
        self.b.store(as_int(self.b, value).value if self._kind is Int else value.value, self._slot)


class Control(Emitter):
    """Loops, conditions, chunks and variables."""

    _entry: Any

    def var(self, initial: Int | Vec | int) -> Var:
        """A mutable variable."""
        value = as_int(self.b, initial) if isinstance(initial, int) else initial
        slot = self._entry.alloca(value.value.type)
        variable = Var(self.b, slot, type(value))
        variable.set(value)
        return variable

    @contextmanager
    def range(self, low: IntLike, high: IntLike, step: IntLike = 1) -> Iterator[Int]:
        """Loop over `low`, `low + step`, … below `high`; step is positive, zero rounds are fine."""
        head, body, end = (self.function.append_basic_block(n) for n in ("head", "loop", "end"))
        before = self.b.block
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.phi(llvm.I64)
        index.add_incoming(as_int(self.b, low).value, before)
        i = Int(self.b, index)
        self.b.cbranch((i < high).value, body, end)
        self.b.position_at_end(body)
        yield i
        following = i + step
        index.add_incoming(following.value, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(end)

    @contextmanager
    def repeat_while(self, condition: Callable[[], Bool]) -> Iterator[None]:
        """Loop as long as what `condition` emits holds; it is asked before every round."""
        head, body, end = (self.function.append_basic_block(n) for n in ("while", "loop", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition().value, body, end)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(end)

    @contextmanager
    def when(self, condition: Bool) -> Iterator[None]:
        """`if condition:`."""
        then, end = (self.function.append_basic_block(n) for n in ("then", "endif"))
        self.b.cbranch(condition.value, then, end)
        self.b.position_at_end(then)
        yield
        self.b.branch(end)
        self.b.position_at_end(end)

    @contextmanager
    def when_else(self, condition: Bool) -> Iterator[tuple[Any, Any]]:
        """`with k.when_else(c) as (then, other): with then: …; with other: …`."""
        blocks = [self.function.append_basic_block(n) for n in ("then", "else", "endif")]
        self.b.cbranch(condition.value, blocks[0], blocks[1])

        @contextmanager
        def side(block: Any) -> Iterator[None]:  # noqa: ANN401
            self.b.position_at_end(block)
            yield
            self.b.branch(blocks[2])

        yield side(blocks[0]), side(blocks[1])
        self.b.position_at_end(blocks[2])

    @contextmanager
    def chunks(self, count: Int) -> Iterator[Int]:
        """Claim chunks `0 … count-1` until none is left; the team runs each exactly once.

        Each thread has a share of neighbouring chunks, the same in every phase, so that what one
        phase leaves in a core's cache is what the next one looks for there; who is done with its
        own share helps the others.
        """
        width, thread, reach = (self._context_int(w) for w in (WIDTH, THREAD, REACH))
        counters = self._context_pointer(COUNTERS)
        with self.range(0, reach) as turn:
            owner = thread + turn
            owner = (owner < width).select(owner, owner - width)
            first, end = count * owner // width, count * (owner + 1) // width
            at = (owner * COUNTER_WORDS).value
            counter = self.b.gep(counters, [at], source_etype=llvm.I64)
            with self._claims(counter, end - first) as number:
                yield first + number

    @contextmanager
    def _claims(self, counter: Any, count: Int) -> Iterator[Int]:  # noqa: ANN401
        """Numbers below `count` that nobody else took from the counter."""
        head, body, end = (self.function.append_basic_block(n) for n in ("claim", "chunk", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        number = Int(self.b, self.b.atomic_rmw("add", counter, self._one(), "monotonic"))
        self.b.cbranch((number < count).value, body, end)
        self.b.position_at_end(body)
        yield number
        self.b.branch(head)
        self.b.position_at_end(end)

    def _context_int(self, index: int) -> Int:
        return Int(self.b, self._word(self._context, index))

    def _one(self) -> Any:  # noqa: ANN401
        return as_int(self.b, 1).value
