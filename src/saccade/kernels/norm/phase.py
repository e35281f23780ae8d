"""What the phases of a norm's gradient share: what their code depends on, vectors of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.codegen.bfloat16 import BFLOAT16
from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.floats import lanes_of
from saccade.kernels.movement.strided import Nest
from saccade.kernels.pointwise.elements import load, store

__all__ = ["NormGradConfig", "Phase", "narrowed"]

_UNROLL = 4


@dataclass(frozen=True)
class NormGradConfig:
    """What the code depends on.

    Attributes:
        stage: `factors`, `apply`, `rows`, `blocks`, `ties` or `sums` (see `gradient`).
        rule: See `rules`.
        elements: Types of the operands of the nest, the result's first.
        kinds: How each of these meets the innermost axis.
        rank: Axes of the nest.
        wide: Element that is computed in.
        gone: Number of axes that go (of stages that count).
        along: Whether vectors go along the last of these, rather than along neighbouring results.
        vectors: Of `blocks`: how many are swept side by side.
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


class Phase:
    """Pointers, the nest, and vectors of its rows."""

    def __init__(self, k: Kernel, config: NormGradConfig) -> None:
        self.k, self.config = k, config
        self.pointers = [k.pointer(f"p{i}", e) for i, e in enumerate(config.elements)]
        counted = config.stage in ("rows", "ties")
        self.scratch = k.scratch("counts", config.wide) if counted else None
        self.nest = Nest(k, config.rank, len(self.pointers))
        self.lanes = lanes_of(k, config.wide)

    def emit(self) -> None:
        """All chunks."""
        raise NotImplementedError

    def exponent(self) -> Vec | None:
        """The power, where the rule has one."""
        return self.k.real("exponent") if self.config.rule in ("above", "below") else None

    def read(self, p: int, offset: Int, i: Int, lanes: int, mask: Mask | None) -> Vec:
        """Elements of operand `p` along the innermost axis."""
        k, kind = self.k, self.config.kinds[p]
        stride = self.nest.strides[p][-1]
        raw = load(k, self.pointers[p], kind, offset, i, stride, mask, lanes)
        return k.convert(raw, self.config.wide)

    def write(self, offset: Int, i: Int, value: Vec, mask: Mask | None) -> None:
        """Elements of operand 0 along the innermost axis."""
        k, to = self.k, self.pointers[0]
        kind, stride = self.config.kinds[0], self.nest.strides[0][-1]
        store(k, to, kind, offset, i, stride, mask, narrowed(k, value, to))

    def vectors(
        self, low: Int, high: Int, strided: bool, visit: Callable[[Int, int, Mask | None], None]
    ) -> None:
        """All elements of a range: position, lanes, mask."""
        k, lanes = self.k, self.lanes
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


def narrowed(k: Kernel, value: Vec, to: Ptr) -> Vec:
    """Wide lanes as a buffer stores them."""
    return value if to.element == BFLOAT16 else k.convert(value, to.element)
