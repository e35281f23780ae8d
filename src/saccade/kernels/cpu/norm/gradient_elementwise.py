"""Phases without a sweep: factors, the gradient from them, factors from counts of parts."""

from __future__ import annotations

from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.cpu.movement.loop_nest import Row
from saccade.kernels.cpu.norm import gradient_formula
from saccade.kernels.cpu.norm.gradient_code import GradientPhase
from saccade.kernels.cpu.norm.gradient_integers import Bits, Marks

__all__ = ["Apply", "Factors", "Mark", "Sums"]


class _Powers(GradientPhase):
    """Phases that may have an exponent."""

    def begin(self) -> None:
        # Launches name it for these rules only.
        powers = self.config.rule in ("above", "below")
        self.exponent = self.k.real("exponent") if powers else None


class Factors(_Powers):
    """`factor[result]` from gradient and norm."""

    def row(self, row: Row) -> None:
        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            grad, norm = (self.read(p, row.offsets[p], i, lanes, mask) for p in (1, 2))
            value = gradient_formula.factor(self.k, self.config.rule, grad, norm, self.exponent)
            self.write(row.offsets[0], i, value, mask)

        self.vectors(row.low, row.high, visit, strided=self.strided)


class _ElementwiseRows(GradientPhase):
    """Phases that write dx in the order of its memory; what is one for a row is read once."""

    first: int
    """The first operand of the results' shape; all behind it are."""

    def operands(self, row: Row, wide: bool) -> list[Vec | None]:
        """Those that are the same for the whole row."""
        read = self.read if wide else self.raw
        return [
            read(p, row.offsets[p], row.low, self.lanes, None) if kind == "zero" else None
            for p, kind in enumerate(self.config.kinds)
            if p >= self.first
        ]


class Apply(_Powers, _ElementwiseRows):
    """Dx from x and factors."""

    first = 2

    def row(self, row: Row) -> None:
        (same,) = self.operands(row, wide=True)

        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            x = self.read(1, row.offsets[1], i, lanes, mask)
            if same is None:
                factor = self.read(2, row.offsets[2], i, lanes, mask)
            else:
                # The end of a strided row goes element by element.
                factor = same if lanes > 1 else self.k.extract(same, 0)
            value = gradient_formula.shape(self.k, self.config.rule, x, self.exponent) * factor
            self.write(row.offsets[0], i, value, mask)

        self.vectors(row.low, row.high, visit, offset=row.offsets[0], strided=self.strided)


class Mark(_ElementwiseRows):
    """Dx of ±∞ from x and marks; all in bits of elements."""

    first = 2

    def begin(self) -> None:
        self.bits = Bits(self.k, self.config.elements[0], self.config.wide)
        self.pointers[:2] = [p.viewed(self.bits.name) for p in self.pointers[:2]]

    def row(self, row: Row) -> None:
        same = self.operands(row, wide=False)

        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            x = self.raw(1, row.offsets[1], i, lanes, mask)
            marks = [
                self.raw(p, row.offsets[p], i, lanes, mask)
                if one is None
                else one if lanes > 1 else self.k.extract(one, 0)
                for p, one in enumerate(same, self.first)
            ]  # fmt: skip
            self.put(row.offsets[0], i, self.bits.marked(x, Marks(*marks)), mask)

        self.vectors(row.low, row.high, visit, offset=row.offsets[0], strided=self.strided)


class Sums(GradientPhase):
    """Marks from norms, gradient and the counts of all parts; operand 0 has all three, in turn."""

    def begin(self) -> None:
        self.bits = Bits(self.k, self.config.element, self.config.wide)
        self.parts, self.step, self.plane = self.k.integers("parts part_step plane")

    def row(self, row: Row) -> None:
        k, bits = self.k, self.bits

        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            total = k.var(k.zero(lanes, self.config.wide))
            with k.range(0, self.parts) as part:
                counts = self.read(1, row.offsets[1] + part * self.step, i, lanes, mask)
                total.set(total.get() + counts)
            grad, norm = (self.read(p, row.offsets[p], i, lanes, mask) for p in (2, 3))
            # Nothing ties with a norm of NaN: over 1, so that others get 0 and not 0 times
            # infinity.
            marks = bits.marks(bits.of_norm(norm), grad / k.maximum(total.get(), 1.0))
            for plane, value in enumerate((marks.norm, marks.tied, marks.other)):
                self.put(row.offsets[0] + self.plane * plane, i, value, mask)

        self.vectors(row.low, row.high, visit, strided=self.strided)
