"""Reductions over any axes of any storage: sums, means, extrema, products, norms, log-sum-exp.

    y = epilogue(finish(combine over the axes of before(x)))

accumulated in float32 with several partial sums, of float64 in float64. Refuses integers. See
`direct_launch` for the ways to walk and `direct_arithmetic` for the kinds. Reading bound: a mean
over channels-last images streams its operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.expressions import DOUBLE
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp, View, numbered
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import wide
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, Partition, inner_kind, partition
from saccade.kernels.cpu.pointwise.chain_operators import operators
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS
from saccade.kernels.cpu.reduce.direct_code import ReduceConfig, emit_reduce
from saccade.kernels.cpu.reduce.direct_launch import Cache, ReductionLoops, cut_parts, plan_walk
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.opdefs.norm import VectorNorm
from saccade.opdefs.reduce import Reduce

__all__ = ["NORM", "REDUCE"]

_MOST_GONE = 3  # reduced axes that do not merge: loops that there is code for
_CHUNK = 1 << 14  # elements of the operand that a chunk reads


_NORMS = {
    0.0: "nonzero", 1.0: "l1", 2.0: "l2", 3.0: "l3", float("inf"): "largest",
    float("-inf"): "smallest",
}  # fmt: skip


_SLOW_ENDS = ("l3", "power")
_LONG = 1 << 12  # elements behind one result that hide what its end takes


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked for: kind, element of sums, the kind's numbers as integers of a launch."""

    kind: str
    wide: str
    reals: Mapping[str, int] = field(default_factory=dict)

    @property
    def itemsize(self) -> int:
        return DType(self.wide).itemsize

    def lanes(self, call: CpuCall) -> int:
        return call.target.lanes * 4 // self.itemsize


def _task(call: CpuCall) -> _Task:
    op = call.op
    if isinstance(op, Reduce):
        return _Task(op.kind, wide(call.inputs[0].dtype.value))
    kind = _NORMS.get(op.p, "power")
    power = kind == "power"
    reals = {"p": real_word(op.p), "root": real_word(1 / op.p)} if power else {}
    return _Task(kind, wide(call.inputs[0].dtype.value, call.outputs[0].dtype.value), reals)


def _epilogue(call: CpuCall) -> str:
    return str(call.op.epilogue if isinstance(call.op, Reduce) else IDENTITY)


def _operands(call: CpuCall) -> Sequence[View]:
    return () if _epilogue(call) == str(IDENTITY) else call.inputs[1:]


def _walk(call: CpuCall) -> ReductionLoops:
    op, task = call.op, _task(call)
    x, out, target = call.inputs[0], call.outputs[0], call.target
    cache = Cache(target.l2 * 7 // 8, task.lanes(call))
    # Two sweeps, of which the second needs what the whole first one finds: neither streamed nor
    # cut.
    several = task.kind == "log_sum_exp"
    return plan_walk(x, op.axes, op.keepdims, out, _operands(call), None if several else cache)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    views = (*call.inputs, *call.outputs)
    if call.inputs[0].dtype is not DType.F64:
        return refuse_types(views, FLOATS) or _refuse_places(call)
    missing = sorted(operators(call.op.epilogue).keys() - DOUBLE)
    refused = f"{missing[0]} of float64" if missing else refuse_types(views, {DType.F64})
    return refused or _refuse_places(call)


def supports_norm(call: CpuCall) -> str | None:
    """Why this kernel cannot take the norm."""
    types = {call.inputs[0].dtype, call.outputs[0].dtype}
    if not (types <= FLOATS or types <= {DType.F32, DType.F64}):
        return f"elements of types {', '.join(sorted(t.value for t in types))}"
    return _refuse_places(call)


def _refuse_places(call: CpuCall) -> str | None:
    refused = refuse_repeats(call.outputs[0])
    if refused is None and len(_walk(call).gone) > _MOST_GONE:
        return f"more than {_MOST_GONE} separate reduced axes"
    return refused


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase, or two where the reduction is cut or its end is better done in vectors."""
    walk, task = _walk(call), _task(call)
    if task.kind != "log_sum_exp":
        walk = cut_parts(walk, task.lanes(call))
    # Results of rows are scalars: roots that take a hundred instructions wait for a second phase.
    apart = task.kind in _SLOW_ENDS and walk.way == "along" and walk.count < _LONG
    # A single part, for the sake of the phase behind it.
    if apart and walk.parts == 1:
        walk = replace(walk, per_part=walk.gone[0][0])
    operands = tuple(In(1 + i) for i in range(len(_operands(call))))
    elements = tuple(v.dtype.value for v in _operands(call))
    text = _epilogue(call)
    source, result = call.inputs[0].dtype.value, call.outputs[0].dtype.value
    if walk.parts == 1 and not apart:
        every = (source, result, *elements)
        return (_phase(call, "whole", walk, every, text, (In(0), Out(0), *operands)),)
    results = walk.kept.rows * walk.kept.sizes[-1]
    temp = Temp(0, task.itemsize * results * walk.parts)
    dense = _dense(walk.kept.sizes)
    # The part is one more kept axis, the outermost; partial results lie part by part.
    sizes = (walk.parts, *walk.kept.sizes)
    first = Loops(
        sizes,
        ((walk.per_part * walk.gone[0][1], *walk.kept.strides[0]), (results, *dense)),
    )
    partial = ReductionLoops(walk.way, first, walk.gone, walk.parts, walk.per_part)
    last = ReductionLoops(
        "across", Loops(walk.kept.sizes, (dense, *walk.kept.strides[1:])), ((walk.parts, results),)
    )
    return (
        _phase(call, "partial", partial, (source, task.wide), "$0", (In(0), temp)),
        _phase(
            call, "final", last, (task.wide, result, *elements), text,
            (temp, Out(0), *operands), walk.count,
        ),
    )  # fmt: skip


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _work(walk: ReductionLoops) -> int:
    """Elements behind one result of a phase."""
    per_result = min(walk.per_part, walk.gone[0][0]) * (walk.count // max(1, walk.gone[0][0]))
    return per_result if walk.parts > 1 else walk.count


def _phase(
    call: CpuCall,
    stage: str,
    walk: ReductionLoops,
    elements: tuple[str, ...],
    epilogue: str,
    operands: tuple[Operand, ...],
    count: int | None = None,
) -> Launch:
    kept, task, given = walk.kept, _task(call), numbered(operands)
    kinds = tuple(inner_kind(s[-1]) for s in kept.strides)
    config = ReduceConfig(
        task.kind, stage, walk.way, elements, kinds, kept.rank, len(walk.gone),
        walk.gone[-1][1] == 1, epilogue, task.wide,
    )  # fmt: skip
    # A row of results is in one thread's scratch: it is not cut.
    if walk.way == "stream":
        block = 2 * task.lanes(call)
        row = kept.sizes[-1]
        given["results"] = Scratch(task.itemsize * -(-row // block) * block)
        cut = Partition(1, row, 1, kept.rows)
    else:
        cut = partition(kept, max(1, _CHUNK // max(1, _work(walk))))
    gone_sizes, gone_strides = zip(*walk.gone, strict=True)
    integers = {
        **Nest.integers(kept, cut),
        "gone_sizes": gone_sizes,
        "gone_strides": gone_strides,
        "per_part": walk.per_part,
        "count": walk.count if count is None else count,
        **task.reals,
    }
    return Launch(config, given, integers, cut.chunks)


def emit(k: KernelBuilder, config: ReduceConfig) -> None:
    """The code of one configuration."""
    emit_reduce(k, config)


def cost(call: CpuCall) -> float:
    """Microseconds: the operand is read once."""
    x, walk = call.inputs[0], _walk(call)
    slow = 8.0 if walk.kept.strides[0][-1] != 1 and walk.way == "across" else 1.0
    return machine(call.target).roofline(4.0 * slow * x.size, x.nbytes, call.threads, 0.5)


REDUCE = CpuKernel(
    "reduce.direct", (Reduce,), ReduceConfig, supports, single_variant(launch, cost), emit
)
NORM = CpuKernel(
    "reduce.norm", (VectorNorm,), ReduceConfig, supports_norm, single_variant(launch, cost), emit
)
