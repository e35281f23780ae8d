"""What flows back to x from a norm of rows that lie one behind the other in memory.

Element by element as in `norm.gradient`, but in groups of neighbours that begin at multiples of 16
bytes, wherever rows do: of rows of 250 halves, accesses along each would be of 4 bytes. A group
lies in two rows at most. Its floor is the bytes of x and of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import isinf

from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import stream_micros
from saccade.kernels.cuda.norm.gradient import counts_ties, gradient_walk
from saccade.kernels.cuda.reduce.axis_loops import common_step
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import VectorNormGrad

__all__ = ["NORM_GRADIENT_FLAT", "CudaFlatNormGradientConfig"]

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
        step: The number of elements is a multiple of so many.
        each: Elements of a group.
        groups: Of a program.
        warps: Of a program.
    """

    elements: tuple[str, str, str, str]
    power: float
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
    walk, x = gradient_walk(call), call.inputs[1]
    kept, reduced = walk.kept, walk.reduced
    alone = kept.axes == 1 and reduced.axes == 1 and kept.fits and reduced.fits
    if not alone or reduced.count < _each(x):
        return "rows of x are not one axis of 16 bytes or more"
    apart = {kept.strides[view][-1] for view in range(2)} if kept.count > 1 else set()
    if not (reduced.unit(0) and reduced.unit(1) and apart <= {reduced.count}):
        return "rows do not lie one behind the other"
    if x.size + _each(x) * max(groups for groups, _ in _PROGRAMS) > _MOST:
        return "more elements than 32 bits count"
    return refuse_places(call)


def _each(x: View) -> int:
    return _GROUP // x.dtype.itemsize


def _variants(call: CudaCall) -> Iterator[Variant]:
    for i, program in enumerate(_PROGRAMS):
        micros = stream_micros(call) * (1 + _FEWER * i)
        yield Variant(micros, partial(_launches, call, *program))


def _launches(call: CudaCall, groups: int, warps: int) -> tuple[Launch, ...]:
    (grad, x, norm), y, walk = call.inputs[:3], call.outputs[0], gradient_walk(call)
    ties = len(call.inputs) - 1  # without any nobody reads them
    config = CudaFlatNormGradientConfig(
        (element_of(grad), element_of(x), element_of(norm), element_of(y)),
        0.0 if isinf(call.op.p) else call.op.p, common_step((x.size,), (x, y)), _each(x), groups,
        warps,
    )  # fmt: skip
    integers = {
        "rows": walk.kept.count, "reduced": walk.reduced.count, "count": x.size,
        "g_step": walk.kept.strides[2][-1], "n_step": walk.kept.strides[3][-1],
        "t_step": walk.kept.strides[ties + 1][-1],
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
        ("rows", "reduced", "count", "g_step", "n_step", "t_step"),
        {
            "P": config.power, "EXTREME": config.power == 0, "WIDE": "fp32", "STEP": config.step,
            "GROUPS": config.groups, "EACH": config.each,
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
