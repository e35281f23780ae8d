"""What flows back to x from a norm of rows that lie one behind the other in memory.

Element by element as in `norm.gradient`, but in groups of neighbours that begin at multiples of 16
bytes, wherever rows do: of rows of 250 halves, accesses along each would be of 4 bytes. A group
lies in two rows at most. Norms go along rows, or across them: then each element of a group has a
factor of its own, which float32 alone is wide enough for (16-bit elements take more loads of
factors than they have time for). Its floor is the bytes of x and of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import isinf

from saccade.kernels.base import In, Launch, Operand, Out, Variant, View, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import stream_micros
from saccade.kernels.cuda.norm.gradient import counts_ties, gradient_walk
from saccade.kernels.cuda.reduce.axis_loops import common_step
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import VectorNormGrad

__all__ = ["NORM_GRADIENT_FLAT", "CudaFlatNormGradientConfig"]

_INTEGERS = (
    "rows", "length", "count", "g_step", "n_step", "t_step", "g_next", "n_next", "t_next",
)  # fmt: skip
_GROUP = 16  # bytes of a group
# Groups of a program, warps (one H200, 75 000 rows of 250 in halves: 22.9, 23.0, 23.7 µs; one of
# 2048 groups 27.9).
_PROGRAMS = ((256, 4), (128, 2), (512, 8))
_FEWER = 0.01  # what each after the first is expected to take longer
_MOST = (1 << 31) - 1  # elements that are counted through


@dataclass(frozen=True)
class CudaFlatNormGradientConfig:
    """What the code depends on.

    Attributes:
        elements: Of grad, x, norm and y.
        power: The norm's p, 0 for the largest and the smallest magnitude.
        across: Whether norms go across rows.
        step: The number of elements is a multiple of so many.
        each: Elements of a group.
        groups: Of a program.
        warps: Of a program.
    """

    elements: tuple[str, str, str, str]
    power: float
    across: bool
    step: int
    each: int
    groups: int
    warps: int


def _supports(call: CudaCall) -> str | None:
    views = (*call.inputs[:3], *call.outputs)
    if not {view.dtype for view in views} <= {*FLOATS}:
        return "element types"
    if counts_ties(call):
        return "ties are counted row by row"
    x = call.inputs[1]
    if _rows(call) is None:
        return "rows do not lie one behind the other, or have less than 16 bytes"
    if x.size + _each(x) * max(groups for groups, _ in _PROGRAMS) > _MOST:
        return "more elements than 32 bits count"
    return refuse_places(call)


def _each(x: View) -> int:
    return _GROUP // x.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _FlatRows:
    """Rows one behind the other.

    Attributes:
        across: Whether norms go across them.
        rows: How many there are; across them, how many share their norms.
        length: Elements of each.
        steps: Of grad, norm and ties, if there are any: from a row's to the next, and 0; across
            rows from those of some to those of the next, and from a column's to the next.
    """

    across: bool
    rows: int
    length: int
    steps: tuple[tuple[int, int], ...]


@per_call
def _rows(call: CudaCall) -> _FlatRows | None:
    """How all of x and y are rows, if they are."""
    walk, each = gradient_walk(call), _each(call.inputs[1])
    kept, reduced = walk.kept, walk.reduced
    if not (kept.fits and reduced.fits and reduced.axes == 1):
        return None
    (length,), of = reduced.sizes[-1:], kept.strides[2:]
    ours = {(reduced.strides[view][-1], *kept.strides[view]) for view in range(2)}
    if kept.axes == 1 and ours <= {(1, 0, 0, length), (1, 0, 0, 0)} and length >= each:
        dense = kept.count == 1 or (1, 0, 0, 0) not in ours
        steps = tuple((strides[-1], 0) for strides in of)
        return _FlatRows(False, kept.count, length, steps) if dense else None
    columns, blocks = kept.sizes[2], kept.sizes[1]
    whole = {(columns, 0, length * columns if blocks > 1 else 0, 1)}
    if kept.axes <= 2 and ours == whole and each == 4 and columns >= each:
        return _FlatRows(True, length, columns, tuple((outer, step) for _, outer, step in of))
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    for i, program in enumerate(_PROGRAMS):
        micros = stream_micros(call) * (1 + _FEWER * i)
        yield Variant(micros, partial(_launches, call, *program))


def _launches(call: CudaCall, groups: int, warps: int) -> tuple[Launch, ...]:
    (grad, x, norm), y, rows = call.inputs[:3], call.outputs[0], _rows(call)
    assert rows is not None
    ties = len(call.inputs) - 1  # without any nobody reads them
    of_grad, of_norm, of_ties = rows.steps[0], rows.steps[1], rows.steps[ties - 1]
    config = CudaFlatNormGradientConfig(
        (element_of(grad), element_of(x), element_of(norm), element_of(y)),
        0.0 if isinf(call.op.p) else call.op.p, rows.across, common_step((x.size,), (x, y)),
        _each(x), groups, warps,
    )  # fmt: skip
    integers = {
        "rows": rows.rows, "length": rows.length, "count": x.size,
        "g_step": of_grad[0], "n_step": of_norm[0], "t_step": of_ties[0],
        "g_next": of_grad[1], "n_next": of_norm[1], "t_next": of_ties[1],
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "grad": In(0), "x": In(1), "norm": In(2), "y": Out(0), "ties": In(ties),
    }  # fmt: skip
    return (Launch(config, operands, integers, -(-x.size // (groups * _each(x)))),)


def _entry(config: CudaFlatNormGradientConfig) -> Entry:
    grad, x, norm, y = config.elements
    return Entry(
        "norm.gradient_flat_code:gradient_flat",
        (("grad", grad), ("x", x), ("norm", norm), ("y", y), ("ties", "i32")),
        _INTEGERS,
        {
            "P": config.power, "EXTREME": config.power == 0, "ACROSS": config.across,
            "WIDE": "fp32", "STEP": config.step, "GROUPS": config.groups, "EACH": config.each,
        },
        warps=config.warps,
    )  # fmt: skip


NORM_GRADIENT_FLAT = CudaKernel(
    "norm.gradient_flat",
    (VectorNormGrad,),
    CudaFlatNormGradientConfig,
    _supports,
    _variants,
    _entry,
)
