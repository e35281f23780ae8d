"""What each kind of reduction does to its elements, how results so far are combined, and the end.

    kind          before         combine   after
    sum, mean     x              +         / count (mean)
    l1            |x|            +
    l2            x²             +         √
    l3            |x|³           +         ^(1/3)
    power         |x|^p          +         ^(1/p)
    nonzero       1 where x ≠ 0  +
    sum_square    x²             +
    log_sum       x              +         log
    max, min      x              larger, smaller; NaN stays
    largest       |x|            larger; NaN stays
    smallest      |x|            smaller; NaN stays
    prod          x              ·

`log_sum_exp` takes two sweeps, which its walk knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen import llvm, math, powers
from saccade.backends.cpu.codegen.language import KernelBuilder, Var
from saccade.backends.cpu.codegen.values import Int, Vec, vector_of

__all__ = ["Arithmetic"]

_INF = float("inf")
_COMBINED = {"max": "max", "largest": "max", "min": "min", "smallest": "min", "prod": "prod"}
# No magnitude is below 0.
_START = {"max": -_INF, "largest": 0.0, "min": _INF, "smallest": _INF, "prod": 1.0}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One kind of reduction.

    Attributes:
        k: Builder.
        kind: See the module.
        stage: `whole`, `partial` (nothing is finished) or `final` (elements are partial results).
        wide: Element of the lanes.
        count: Elements behind one result.
        p, root: Of kind `power`: p and 1/p, float64.
    """

    k: KernelBuilder
    kind: str
    stage: str
    wide: str
    count: Int
    p: Vec | None = None
    root: Vec | None = None

    @property
    def start(self) -> float:
        """The neutral element."""
        return _START.get(self.kind, 0.0)

    @property
    def combination(self) -> str:
        """How results so far are combined: `add`, `max`, `min` or `prod`."""
        return _COMBINED.get(self.kind, "add")

    def combine(self, how: str, a: Vec, b: Vec) -> Vec:
        """Two results so far as one."""
        if how == "add":
            return a + b
        if how == "prod":
            return a * b
        if self.kind == "largest":
            return self._larger_bits(a, b)
        # These keep the NaN of their first operand only.
        pick = self.k.maximum if how == "max" else self.k.minimum
        return math.is_nan(b).select(b, pick(a, b))

    def _larger_bits(self, a: Vec, b: Vec) -> Vec:
        """The larger of numbers without a sign, by their bits as integers: NaN is the largest."""
        bits = llvm.I64 if self.wide == "float64" else llvm.I32
        left, right = (self.k.b.bitcast(v.value, vector_of(bits, v.lanes)) for v in (a, b))
        larger = self.k.b.icmp_signed(">", left, right)
        return Vec(self.k.b, self.k.b.select(larger, a.value, b.value))

    def merge(self, how: str, sums: list[Var]) -> Vec:
        """Several results so far as one, in pairs."""
        values: list[Vec] = [s.get() for s in sums]
        while len(values) > 1:
            values = [
                self.combine(how, values[i], values[i + 1]) if i + 1 < len(values) else values[i]
                for i in range(0, len(values), 2)
            ]
        return values[0]

    def fold_lanes(self, how: str, vector: Vec) -> Vec:
        """All lanes as one, by halves."""
        k = self.k
        while vector.lanes > 1:
            half = vector.lanes // 2
            if half == 1:
                return self.combine(how, k.extract(vector, 0), k.extract(vector, 1))
            low = k.shuffle(vector, vector, range(half))
            high = k.shuffle(vector, vector, range(half, 2 * half))
            vector = self.combine(how, low, high)
        return vector

    def before(self, v: Vec) -> Vec:
        """What is combined, of an element."""
        if self.stage == "final":
            return v
        return _BEFORE.get(self.kind, _same)(self, v)

    def after(self, v: Vec) -> Vec:
        """The result, of all that was combined."""
        if self.stage == "partial":
            return v
        return _AFTER.get(self.kind, _same)(self, v)


_Function = Callable[[Arithmetic, Vec], Vec]


def _same(_: Arithmetic, v: Vec) -> Vec:
    return v


def _magnitude(a: Arithmetic, v: Vec) -> Vec:
    return math.absolute(a.k, v)


def _square(_: Arithmetic, v: Vec) -> Vec:
    return v * v


def _cube(a: Arithmetic, v: Vec) -> Vec:
    return math.absolute(a.k, v) * (v * v)


def _power(a: Arithmetic, v: Vec) -> Vec:
    assert a.p is not None
    return powers.power(a.k, math.absolute(a.k, v), a.p)


def _nonzero(_: Arithmetic, v: Vec) -> Vec:
    # NaN counts: `!=` is the one comparison that holds for it.
    return v.compare("!=", 0.0).select(v.like(1.0), v.like(0.0))


def _mean(a: Arithmetic, v: Vec) -> Vec:
    return v / a.k.broadcast(a.k.to_real(a.count, a.wide), v.lanes)


def _root(a: Arithmetic, v: Vec) -> Vec:
    assert a.root is not None
    return powers.power(a.k, v, a.root)


_BEFORE: dict[str, _Function] = {
    "l1": _magnitude,
    "l2": _square,
    "l3": _cube,
    "power": _power,
    "nonzero": _nonzero,
    "sum_square": _square,
    "largest": _magnitude,
    "smallest": _magnitude,
}
_AFTER: dict[str, _Function] = {
    "mean": _mean,
    "l2": lambda a, v: math.sqrt(a.k, v),
    "l3": lambda a, v: powers.power(a.k, v, a.k.number(1 / 3, 1, "float64")),
    "power": _root,
    "log_sum": lambda a, v: powers.log(a.k, v),
}
