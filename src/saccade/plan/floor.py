"""What a plan cannot be faster than, by the speeds of the machine that it was made for."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from saccade.backends.cpu.fusions import ExpandDepthwise, SeparableConv2d
from saccade.ir import DType
from saccade.ir.dim import evaluate
from saccade.kernels.base import View
from saccade.kernels.cpu.conv2d.lattice_forms import lengths
from saccade.kernels.cpu.conv2d.lattice_points import LONGEST, POINTS
from saccade.kernels.cpu.conv2d.winograd_points import Tile, bases
from saccade.kernels.machine import Machine
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul
from saccade.plan.types import Plan, Port, Step

__all__ = ["Floor", "floor", "peak"]


@dataclass(frozen=True, slots=True)
class Floor:
    """Microseconds that a run takes at least.

    Attributes:
        arithmetic: The operators' own operations (valid taps only) at the peak of every core; for
            convolutions that Winograd's algorithm or short lattices may take, their multiplications
            where they are fewer, without transforms.
        memory: Inputs, outputs and weights as they are packed, each moved once; values in between
            may stay in cache.
        barriers: Phases that do nothing.
    """

    arithmetic: float
    memory: float
    barriers: float

    @property
    def total(self) -> float:
        """The larger of arithmetic and memory, and the barriers."""
        return max(self.arithmetic, self.memory) + self.barriers


def floor(plan: Plan, speeds: Machine | None = None) -> Floor:
    """The floor of a plan at given speeds, else at those of the machine that it was made for."""
    speeds = speeds or plan.speeds
    moved = sum(map(_port_bytes, (*plan.inputs, *plan.outputs)))
    read = zip(plan.constants, plan.constants_read, strict=True)
    moved += sum(constant.nbytes for constant, used in read if used)
    phases = sum(len(step.phases) for step in plan.steps)
    arithmetic = sum(_arithmetic(step, speeds, plan.exact) for step in plan.steps)
    return Floor(arithmetic / plan.threads, moved / speeds.bandwidth, phases * speeds.step)


def peak(step: Step, speeds: Machine) -> float:
    """Operations per microsecond that one core reaches at most: more for pairs of bfloat16."""
    sums = isinstance(step.op, (Conv2d, ConvTranspose2d, ExpandDepthwise, MatMul, SeparableConv2d))
    ends = (step.inputs[0].view.dtype, step.outputs[0].view.dtype)
    return speeds.pair_flops if sums and DType.BF16 in ends else speeds.flops


def _arithmetic(step: Step, speeds: Machine, exact: bool) -> float:
    """Microseconds of one core for a step at least."""
    least = step.work.flops / peak(step, speeds)
    if isinstance(step.op, Conv2d) and not exact:  # products of spectra are float32
        products = _winograd(step.op, *(slot.view for slot in step.inputs[:2]))
        least = min(least, products / speeds.flops)
    return least


def _winograd(op: Conv2d, x: View, w: View) -> float:
    """Operations of the products of transforms; infinite where they cannot be used.

    With taps apart, the results of every lattice are a picture of their own.
    """
    plain = w.shape[2:] == (3, 3) and op.groups == 1
    forms = (((1, 1), op.dilation), ((2, 2), (1, 1)))  # strides with the distances that they allow
    if not plain or (op.stride, op.dilation) not in forms or x.dtype not in (DType.F32, DType.BF16):
        return inf
    n, k, *size = (evaluate(d, {}) for d in op.sum_shape(x.shape, w.shape))
    axes = [lengths(extent, apart) for extent, apart in zip(size, op.dilation, strict=True)]
    stride = op.stride[0]
    tiles = prod(_products(axis, stride) for axis in axes)
    if (
        stride == 1
        and op.padding == op.dilation * 2
        and all(axis[0][0] <= LONGEST for axis in axes)
    ):
        between_zeros = (sum(POINTS[pixels] * many for pixels, many in axis) for axis in axes)
        tiles = min(tiles, prod(between_zeros))
    return 2.0 * n * k * x.shape[1] * tiles


def _products(axis: tuple[tuple[int, int], ...], stride: int) -> int:
    """Of an axis of lattices: the longest tiles, what is left over by a shorter one."""
    base = max(bases(stride))
    found = 0
    for pixels, many in axis:
        tiles, rest = divmod(pixels, base)
        found += many * (tiles * Tile(base, base, stride).count)
        found += many * (Tile(base, rest, stride).count if rest else 0)
    return found


def _port_bytes(port: Port) -> int:
    return prod(port.shape) * DType(port.dtype).itemsize
