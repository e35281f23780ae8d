"""Phases without a sweep: factors, the gradient from them, factors from counts of parts."""

from __future__ import annotations

from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.norm import rules
from saccade.kernels.norm.phase import Phase

__all__ = ["Apply", "Factors", "Sums"]


class Factors(Phase):
    """`factor[result]` from gradient and norm."""

    def emit(self) -> None:
        exponent = self.exponent()
        with self.nest.walk() as row:

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                grad, norm = (self.read(p, row.offsets[p], i, lanes, mask) for p in (1, 2))
                value = rules.factor(self.k, self.config.rule, grad, norm, exponent)
                self.write(row.offsets[0], i, value, mask)

            self.vectors(row.low, row.high, "strided" in self.config.kinds, visit)


class Apply(Phase):
    """Dx from x, factors and, of ties, the norm."""

    def emit(self) -> None:
        k, kinds = self.k, self.config.kinds
        exponent = self.exponent()
        with self.nest.walk() as row:
            # What is the same for a whole row is read once.
            same = {
                p: self.read(p, row.offsets[p], row.low, self.lanes, None)
                for p in range(2, len(kinds))
                if kinds[p] == "zero"
            }

            def operand(p: int, i: Int, lanes: int, mask: Mask | None) -> Vec:
                if p in same:
                    return same[p] if lanes > 1 else k.extract(same[p], 0)
                return self.read(p, row.offsets[p], i, lanes, mask)

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                x, factor, *norm = (operand(p, i, lanes, mask) for p in range(1, len(kinds)))
                shape = rules.shape(k, self.config.rule, x, exponent, norm[0] if norm else None)
                self.write(row.offsets[0], i, shape * factor, mask)

            self.vectors(row.low, row.high, "strided" in kinds, visit)


class Sums(Phase):
    """Factors from the counts of all parts."""

    def emit(self) -> None:
        k = self.k
        parts, step = k.integers("parts step")
        with self.nest.walk() as row:

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                total = k.var(k.zero(lanes, self.config.wide))
                with k.range(0, parts) as part:
                    counts = self.read(1, row.offsets[1] + part * step, i, lanes, mask)
                    total.set(total.get() + counts)
                grad = self.read(2, row.offsets[2], i, lanes, mask)
                self.write(row.offsets[0], i, grad / k.maximum(total.get(), 1.0), mask)

            self.vectors(row.low, row.high, "strided" in self.config.kinds, visit)
