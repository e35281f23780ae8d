"""What the phases of a norm's gradient share: what their code depends on, vectors of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.ir import DType
from saccade.kernels.cpu.floats import lanes_of
from saccade.kernels.cpu.movement.loop_nest import Nest, Row
from saccade.kernels.cpu.pointwise.vector_elements import load, store

__all__ = ["GradientPhase", "NormGradConfig", "narrowed"]

_UNROLL = 4


@dataclass(frozen=True)
class NormGradConfig:
    """What the code depends on.

    Attributes:
        stage: One of those that `gradient` lists.
        rule: See `gradient_formula`.
        elements: Types of the operands of the nest, the result's first.
        kinds: How each of these meets the innermost axis.
        rank: Axes of the nest.
        wide: Element that is computed in.
        gone: Number of reduced axes (of stages that count).
        along: Whether vectors go along the last of these, rather than along neighbouring results.
        vectors: Of `gradient_blocks`: how many are swept side by side.
        beside: How many rows share what is read for their results.
        counts: The integer that counts ties, of stages that do.
        element: Type of x, of stages that do not have it.
        streamed: Whether dx is written past the caches.
    """

    stage: str
    rule: str
    elements: tuple[str, ...]
    kinds: tuple[str, ...]
    rank: int
    wide: str
    gone: int = 0
    along: bool = False
    vectors: int = 0
    beside: int = 1
    counts: str = ""
    element: str = ""
    streamed: bool = False


class GradientPhase:
    """Pointers, the nest, and vectors of its rows."""

    def __init__(self, k: KernelBuilder, config: NormGradConfig) -> None:
        self.k, self.config = k, config
        self.pointers = [k.pointer(f"p{i}", e) for i, e in enumerate(config.elements)]
        # Every buffer is declared before the first integer.
        self.declare()
        self.nest = Nest(k, config.rank, len(self.pointers))
        self.lanes = lanes_of(k, config.wide)
        if config.streamed:
            # Only vectors of a line's length go past the caches.
            self.lanes = LINE // DType(config.elements[0]).itemsize

    def declare(self) -> None:
        """Scratch, which comes behind the operands of the nest."""

    def begin(self) -> None:
        """Integer parameters behind the nest's."""

    def emit(self) -> None:
        """All chunks."""
        self.begin()
        result, *operands = self.pointers
        with self.k.streams(result, operands[:1], self.config.streamed) as ways:
            for to in ways:
                # Emitted once for each way; all that stores finds the result here.
                self.pointers[0] = to
                self.chunks()

    def chunks(self) -> None:
        """All rows of the chunks."""
        with self.nest.walk() as row:
            self.row(row)

    def row(self, row: Row) -> None:
        """One row."""
        raise NotImplementedError

    def read(self, p: int, offset: Int, i: Int, lanes: int, mask: Mask | None) -> Vec:
        """Elements of operand `p` along the innermost axis, as wide ones."""
        return self.k.convert(self.raw(p, offset, i, lanes, mask), self.config.wide)

    def raw(self, p: int, offset: Int, i: Int, lanes: int, mask: Mask | None) -> Vec:
        """Elements of operand `p` along the innermost axis."""
        kind, stride = self.config.kinds[p], self.nest.strides[p][-1]
        return load(self.k, self.pointers[p], kind, offset, i, stride, mask, lanes)

    def write(self, offset: Int, i: Int, value: Vec, mask: Mask | None) -> None:
        """Wide elements of operand 0 along the innermost axis."""
        self.put(offset, i, narrowed(self.k, value, self.pointers[0]), mask)

    def put(self, offset: Int, i: Int, value: Vec, mask: Mask | None) -> None:
        """Elements of operand 0 along the innermost axis."""
        kind, stride = self.config.kinds[0], self.nest.strides[0][-1]
        store(self.k, self.pointers[0], kind, offset, i, stride, mask, value)

    def vectors(
        self,
        low: Int,
        high: Int,
        visit: Callable[[Int, int, Mask | None], None],
        *,
        offset: Int | None = None,
        strided: bool = False,
    ) -> None:
        """All elements of a range: position, lanes, mask.

        Args:
            low: The first.
            high: One past the last.
            visit: Emits the code.
            offset: Of the row in operand 0, where `visit` writes that: past the caches only whole
                lines, so that what stands before the first of them is a vector of its own.
            strided: Whether what is left of whole vectors goes element by element.
        """
        k, lanes = self.k, self.lanes
        # The buffer begins at a line, so the offset says where in one the row begins.
        if offset is not None and self.pointers[0].streamed:
            line = -(offset + low) & (lanes - 1)
            first = k.minimum_int(low + line, high)
            with k.when(low < first):
                visit(low, lanes, k.first(first - low, lanes))
            low = first
        step = _UNROLL * lanes
        whole = low + (high - low) // step * step
        with k.range(low, whole, step) as i:
            for u in range(_UNROLL):
                visit(i + u * lanes, lanes, None)
        last = whole + (high - whole) // lanes * lanes
        with k.range(whole, last, lanes) as i:
            visit(i, lanes, None)
        if strided:
            with k.range(last, high) as i:
                visit(i, 1, None)
        else:
            with k.when(last < high):
                visit(last, lanes, k.first(high - last, lanes))

    @property
    def strided(self) -> bool:
        """Whether any operand has its neighbours apart."""
        return "strided" in self.config.kinds


def narrowed(k: KernelBuilder, value: Vec, to: Ptr) -> Vec:
    """Wide lanes as a buffer stores them."""
    return value if to.element == BFLOAT16 else k.convert(value, to.element)
