"""The gradient of a p-norm over any axes of any storage: x is read once, dx written once.

    factors   one factor for each result (see `gradient_formula`), into a temporary of
              the results' size
    apply     dx = shape(x) · factor, in the order of dx's memory; the factor is one number for a
              row, or a vector beside it, and never repeated in memory

For p = 1 the factor is the gradient itself. For p = ±∞ it needs the number of ties, for which x
is read before (`gradient_infinity`): where what one result or a row of them look at fits half of
the L2 cache, `rows` counts and applies in one phase, and the second read comes from there
(`gradient_blocks` does the same for a few vectors of results side by side). Longer rows, or too few
to share, are counted in parts by `gradient_ties`, and x is read from memory twice. What the caches
do not hold is written past them.

Refuses integers, float64 beside 16-bit elements, x or norms of another type than their gradients,
and ties that are given.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import Launch
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.norm.gradient_blocks import CountedBlocks
from saccade.kernels.cpu.norm.gradient_code import GradientPhase, NormGradConfig
from saccade.kernels.cpu.norm.gradient_elementwise import Apply, Factors, Mark, Sums
from saccade.kernels.cpu.norm.gradient_formula import rule_of
from saccade.kernels.cpu.norm.gradient_infinity import ExtremePlan
from saccade.kernels.cpu.norm.gradient_launch import GradientPlan
from saccade.kernels.cpu.norm.gradient_ties import CountedRows, Paint, Ties
from saccade.kernels.cpu.refusals import refuse_repeats
from saccade.opdefs.norm import VectorNormGrad

__all__ = ["NORM_GRAD"]

_PHASES: dict[str, type[GradientPhase]] = {
    "factors": Factors, "apply": Apply, "rows": CountedRows, "blocks": CountedBlocks, "ties": Ties,
    "sums": Sums, "mark": Mark, "paint": Paint,
}  # fmt: skip


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    views = (*call.inputs, *call.outputs)
    types = {view.dtype for view in views}
    # No instruction rounds float64 to 16 bits at once.
    if not types <= FLOATS or (DType.F64 in types and types & {DType.F16, DType.BF16}):
        return f"elements of types {', '.join(sorted(t.value for t in types))}"
    out = call.outputs[0]
    if out.dtype is not call.inputs[1].dtype:
        return "x and its gradient differ in type"
    grad, _, norm, *ties = call.inputs
    if ties:
        return "ties that are given"
    if grad.dtype is not norm.dtype:
        return "the norm and its gradient differ in type"
    return refuse_repeats(out)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One to three phases."""
    extreme = rule_of(call.op.p) == "extreme"
    return (ExtremePlan if extreme else GradientPlan)(call).launches()


def emit(k: KernelBuilder, config: NormGradConfig) -> None:
    """The code of one phase."""
    _PHASES[config.stage](k, config).emit()


def cost(call: CpuCall) -> float:
    """Microseconds: x is read and dx written."""
    x = call.inputs[1]
    flops = 60.0 if rule_of(call.op.p) in ("above", "below") else 4.0
    return machine(call.target).roofline(flops * x.size, 2 * x.nbytes, call.threads, 0.5)


NORM_GRAD = CpuKernel(
    "norm.gradient", (VectorNormGrad,), NormGradConfig, supports, single_variant(launch, cost), emit
)
