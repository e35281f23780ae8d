"""What a plan cannot be faster than, by the machine's nominal speeds."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from saccade.codegen.target import Target
from saccade.ir import DType
from saccade.kernels.machine import Machine, machine
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul
from saccade.plan.types import Plan, Port, Step

__all__ = ["Floor", "floor", "peak"]

_VECTOR_BITS = {"avx512": 512, "avx2": 256, "neon": 128}


@dataclass(frozen=True, slots=True)
class Floor:
    """Microseconds that a run takes at least.

    Algorithms that save arithmetic (Winograd's) go below `arithmetic`.

    Attributes:
        arithmetic: The operators' own operations (valid taps only) at the peak of every core.
        memory: Inputs, outputs and weights, each moved once; values in between may stay in cache.
        barriers: Phases that do nothing.
    """

    arithmetic: float
    memory: float
    barriers: float

    @property
    def total(self) -> float:
        """The larger of arithmetic and memory, and the barriers."""
        return max(self.arithmetic, self.memory) + self.barriers


def floor(plan: Plan) -> Floor:
    """The floor of a plan, on any machine of the plan's instruction set."""
    # A plan may be read where its instruction set does not exist, so the host is not asked.
    pairs = plan.isa == "avx512"
    speeds = machine(Target(plan.isa, _VECTOR_BITS[plan.isa], 32, "", "", "", bf16=pairs))
    moved = sum(map(_port_bytes, (*plan.inputs, *plan.outputs)))
    read = zip(plan.constants, plan.constants_read, strict=True)
    moved += sum(constant.nbytes for constant, used in read if used)
    phases = sum(len(step.phases) for step in plan.steps)
    arithmetic = sum(step.work.flops / peak(step, speeds) for step in plan.steps)
    return Floor(arithmetic / plan.threads, moved / speeds.bandwidth, phases * speeds.step)


def peak(step: Step, speeds: Machine) -> float:
    """Operations per microsecond that one core reaches at most: more for pairs of bfloat16."""
    sums = isinstance(step.op, (Conv2d, ConvTranspose2d, MatMul))
    paired = sums and step.inputs[0].view.dtype is DType.BF16
    return speeds.pair_flops if paired else speeds.flops


def _port_bytes(port: Port) -> int:
    return prod(port.shape) * DType(port.dtype).itemsize
