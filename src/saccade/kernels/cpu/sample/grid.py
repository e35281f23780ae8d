"""`GridSample`: each place's pixels and their shares as numbers, then all channels in vectors.

A chunk is some rows of places. Where channels are neighbours in memory they are the vectors; else
they are walked one by one. Pixels outside are not read where they count as zeros, and are those at
the border or behind the mirror otherwise: an index never leaves the image, whatever the grid holds.
One to three spatial axes; float32 and halves, sums in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.kernels.cpu.sample.grid_code import Grid
from saccade.opdefs.grid_sample import GridSample

__all__ = ["GRID", "GridConfig"]

_AXES = 3  # spatial ones, at most: a volume's
_ELEMENTS = 4096  # of a chunk's result, at least


@dataclass(frozen=True)
class GridConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of the grid, of the result.
        mode, padding, aligned: Of the operator.
        axes: Spatial ones.
        vectors: Whether channels are neighbours in operand and result.
    """

    elements: tuple[str, str, str]
    mode: str
    padding: str
    aligned: bool
    axes: int
    vectors: bool


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    views = (*call.inputs, *call.outputs)
    if len(call.inputs[0].shape) > 2 + _AXES:
        return f"more than {_AXES} spatial axes"
    refused = refuse_types(views, {DType.F32, DType.F16, DType.BF16})
    return refused or refuse_repeats(call.outputs[0])


def _in_vectors(call: CpuCall) -> bool:
    x, y = call.inputs[0], call.outputs[0]
    return x.strides[1] == 1 and y.strides[1] == 1 and x.shape[1] > 1


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    op, (x, grid), y = call.op, call.inputs, call.outputs[0]
    elements = (x.dtype.value, grid.dtype.value, y.dtype.value)
    axes = len(x.shape) - 2
    config = GridConfig(elements, op.mode, op.padding, op.aligned, axes, _in_vectors(call))
    rows = prod((y.shape[0], *y.shape[2:-1]))
    each = max(1, y.shape[1] * y.shape[-1])
    share = max(1, -(-_ELEMENTS // each))
    integers: dict[str, int | tuple[int, ...]] = {
        "channels": x.shape[1], "rows": rows, "share": share, "sizes": x.shape[2:],
        "places": y.shape[2:], "x_strides": x.strides, "grid_strides": grid.strides,
        "y_strides": y.strides,
    }  # fmt: skip
    operands: dict[str, Operand] = {"x": In(0), "grid": In(1), "y": Out(0)}
    return (Launch(config, operands, integers, -(-rows // share) if y.size else 0),)


def emit(k: KernelBuilder, config: GridConfig) -> None:
    """The code of one configuration."""
    Grid(k, config).emit()


def cost(call: CpuCall) -> float:
    """Microseconds: a place's arithmetic, and its pixels in vectors or one by one."""
    x, y = call.inputs[0], call.outputs[0]
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[call.op.mode] ** (len(x.shape) - 2)
    points = y.size // max(1, y.shape[1])
    each = 4.0 if _in_vectors(call) else 2.0 * call.target.lanes
    flops = 100.0 * points * call.target.lanes + each * taps * y.size
    nbytes = y.nbytes + min(x.nbytes, taps * y.nbytes)
    return machine(call.target).roofline(flops, nbytes, call.threads, 0.5)


GRID = CpuKernel(
    "sample.grid", (GridSample,), GridConfig, supports, single_variant(launch, cost), emit
)
