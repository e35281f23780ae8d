"""A whole expression in one pass over operands of any strides, with NumPy's broadcasting.

Axes are collapsed over all operands together (`movement.loop_nest`), and the innermost in the
result's memory order is vectorised: channels of a channels-last image, columns of a planar one.
An operand meets that axis with neighbours (`unit`), with one element for the whole row (`zero`,
loaded once) or at a stride: as part of rectangles that are transposed in registers where it has
neighbours along another axis (`chain_transposed`), else element by element (`strided`).

Floating-point operands are computed with in float32, integers in int64; float16, bfloat16 and the
types of 8 bits and less that NumPy does not have convert at loads and stores. Float64 is computed
with as it is. Refuses functions such as `exp` on integers and on float64. Bandwidth-bound:
activations of dense tensors run at a copy's speed up to about 20 operations per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from saccade.backends.cpu.codegen.expressions import DOUBLE
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.fusions import GatheredPointwise, counted_axes
from saccade.ir import DType
from saccade.ir.expr import BIT_OPERATORS, Expr, arg, fold, substitute
from saccade.kernels.base import In, Launch, Out, View, numbered
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import beyond_caches, machine
from saccade.kernels.cpu.movement.copy_transposed import (
    MICROS,
    Transposed,
    TransposedPlan,
    transposed_operands,
    transposed_plan,
)
from saccade.kernels.cpu.movement.loop_nest import (
    MAX_RANK,
    Loops,
    Nest,
    collapse,
    in_lines,
    inner_kind,
    partition,
)
from saccade.kernels.cpu.pointwise.chain_integers import INTEGER_OPERATORS
from saccade.kernels.cpu.pointwise.chain_operators import operators
from saccade.kernels.cpu.pointwise.chain_rows import emit_rows
from saccade.kernels.cpu.pointwise.chain_transposed import emit_transposed
from saccade.kernels.cpu.refusals import refuse_repeats
from saccade.opdefs.pointwise import Pointwise

__all__ = ["CHAIN", "ChainConfig"]


@dataclass(frozen=True)
class ChainConfig:
    """What the code depends on.

    Attributes:
        expr: The expression, over the used operands renumbered from 0.
        elements: Element type of the result, then of each operand.
        kinds: How each of these meets the innermost axis.
        rank: Axes after collapsing.
        arithmetic: What is computed in: `float32`, `int64` or `float64`.
        tile: The rectangles, if any operand is transposed (`movement.copy_transposed`).
        streamed: Whether results go past the caches.
        counted: Axes after collapsing that operands say the length of, in their order.
    """

    expr: str
    elements: tuple[str, ...]
    kinds: tuple[str, ...]
    rank: int
    arithmetic: str
    tile: tuple[int, int] = (0, 0)
    streamed: bool = False
    counted: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def _used(expr: Expr) -> tuple[tuple[int, ...], str]:
    """The operands that occur, and the expression with these renumbered from 0."""
    found: set[int] = set()
    fold(expr, found.add, lambda _: None, lambda _op, _args: None)
    used = tuple(sorted(found))
    return used, str(substitute(expr, {old: arg(new) for new, old in enumerate(used)}))


def _operands(call: CpuCall) -> tuple[View, ...]:
    """Those of the expression: numbers come behind them."""
    op = call.op
    return call.inputs[: len(op.picks)] if isinstance(op, GatheredPointwise) else call.inputs


def _arithmetic(call: CpuCall) -> str:
    """What is computed in: the operands' kind of type, or the result's if all are bool."""
    dtypes = [v.dtype for v in _operands(call) if v.dtype is not DType.BOOL]
    # Promotion has made all operands but truth values one type.
    kind: DType = dtypes[0] if dtypes else call.op.dtype
    if kind is DType.F64:
        return "float64"
    # Truth values alone are computed with as numbers.
    return "float32" if kind.is_float or kind is DType.BOOL else "int64"


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    out, op = call.outputs[0], call.op
    if isinstance(op, GatheredPointwise) and op.indices:
        return "slices at indices"
    if (refused := refuse_repeats(out)) is not None:
        return refused
    if len(out.shape) > MAX_RANK:
        return f"more than {MAX_RANK} axes"
    arithmetic = _arithmetic(call)
    of = {"int64": INTEGER_OPERATORS, "float64": DOUBLE}.get(arithmetic)
    missing = sorted(operators(call.op.expr).keys() - of) if of is not None else []
    if missing:
        return f"{missing[0]} of {'integers' if arithmetic == 'int64' else 'float64'}"
    if arithmetic != "int64" and (bits := sorted(operators(call.op.expr).keys() & BIT_OPERATORS)):
        return f"{bits[0]} of numbers that are no integers"
    return None


def _loops(call: CpuCall, used: Sequence[int]) -> Loops:
    out = call.outputs[0]
    operands = [call.inputs[i].broadcast_to(out.shape).strides for i in used]
    return collapse(out.shape, [out.strides, *operands], counted_axes(call.op))


def _kinds(loops: Loops) -> tuple[str, ...]:
    """How result and operands meet the innermost axis."""
    transposed = transposed_operands(loops)
    to, *others = (strides[-1] for strides in loops.strides)
    found = ("transposed" if p in transposed else inner_kind(s) for p, s in enumerate(others, 1))
    return ("unit" if to == 1 else "strided", *found)


def _transposed_plan(
    call: CpuCall, loops: Loops, config: ChainConfig, *, far: bool
) -> TransposedPlan:
    """Rectangles of vectors of the narrowest elements, but of few registers in arithmetic."""
    sizes = [DType(element).itemsize for element in config.elements]
    transposed = [p for p, kind in enumerate(config.kinds) if kind == "transposed"]
    lanes = call.target.lanes
    narrow = min(sizes[p] for p in transposed)
    most = tuple(min(4 * lanes // size, 2 * lanes) for size in (sizes[0], narrow))
    return transposed_plan(
        loops, transposed[0], (most[0], most[1]), sizes[0], call.threads, far=far
    )


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    used, text = _used(call.op.expr)
    loops = _loops(call, used)
    views = [call.outputs[0], *(call.inputs[i] for i in used)]
    config = ChainConfig(
        text, tuple(v.dtype.value for v in views), _kinds(loops), loops.rank, _arithmetic(call)
    )
    operands = numbered((Out(0), *map(In, used)))
    out = call.outputs[0]
    far = beyond_caches(call.target, out.nbytes)
    if "transposed" in config.kinds:
        plan = _transposed_plan(call, loops, config, far=far)
        config = replace(config, rank=plan.loops.rank, tile=plan.tile, streamed=plan.streamed)
        return (Launch(config, operands, plan.integers(), plan.cut.chunks),)
    told = loops.places(counted_axes(call.op))
    first = len(_operands(call))
    operands |= {f"n{i}": In(first + n) for i, n in enumerate(told)}
    streamed = far and in_lines(loops, out.dtype.itemsize)
    config = replace(config, streamed=streamed, counted=tuple(told.values()))
    total = out.size
    # Heavy expressions take long enough for shorter chunks.
    light = sum(operators(call.op.expr).values()) <= 4
    cut = partition(loops, max(16384 if light else 4096, -(-total // (8 * call.threads))))
    return (Launch(config, operands, Nest.integers(loops, cut), cut.chunks),)


def emit(k: KernelBuilder, config: ChainConfig) -> None:
    """The code of one configuration."""
    pointers = [k.pointer(f"p{i}", element) for i, element in enumerate(config.elements)]
    numbers = {axis: k.pointer(f"n{i}", "int64") for i, axis in enumerate(config.counted)}
    # Declared once, though the code may be emitted twice.
    nest: Transposed | Nest
    if "transposed" in config.kinds:
        nest = Transposed(k, config.rank, len(pointers), config.tile)
    else:
        nest = Nest(k, config.rank, len(pointers), numbers)
    result, *operands = pointers
    with k.streams(result, operands, config.streamed) as ways:
        for to in ways:
            if isinstance(nest, Transposed):
                emit_transposed(k, config, [to, *operands], nest)
            else:
                emit_rows(k, config, [to, *operands], nest)


_HEAVY = {
    "exp": 14, "sigmoid": 20, "silu": 20, "tanh": 25, "erf": 35, "gelu": 18, "softplus": 35,
    "mish": 25, "log": 25, "elu": 20, "pow": 120, "sin": 100, "cos": 100, "mod": 80, "fmod": 80,
    "div": 6, "sqrt": 6, "rsqrt": 12, "reciprocal": 6,
}  # fmt: skip
"""Instructions per vector of the operators that take more than two (rough estimates)."""
_STRIDED = 50  # and of an operand whose elements are apart: lane by lane, a line of cache for each


def cost(call: CpuCall) -> float:
    """Microseconds: bytes from memory or cache against instructions, whichever is slower."""
    m = machine(call.target)
    used, _ = _used(call.op.expr)
    views = [call.outputs[0], *(call.inputs[i] for i in used)]
    nbytes = sum(min(v.size, call.outputs[0].size) * v.dtype.itemsize for v in views)
    instructions = sum(_HEAVY.get(op, 2) * n for op, n in operators(call.op.expr).items())
    kinds, size = _kinds(_loops(call, used)), call.outputs[0].size
    flops = size * (2 + instructions + kinds.count("strided") * _STRIDED * call.target.lanes / 8)
    transposing = MICROS * kinds.count("transposed") * size / 1000 / call.threads
    return transposing + m.roofline(flops, nbytes, call.threads, 0.5)


def aliases(call: CpuCall) -> tuple[tuple[int, int], ...]:
    """Every operand may be overwritten: an element is read before it is written.

    None if any is transposed: the rectangles at the border do again what others have done.
    """
    used, _ = _used(call.op.expr)
    if "transposed" in _kinds(_loops(call, used)):
        return ()
    # Among elements of another size, what is written would lie over others that are still to be
    # read.
    size = call.outputs[0].dtype.itemsize
    operands = enumerate(_operands(call))
    return tuple((i, 0) for i, view in operands if view.dtype.itemsize == size)


CHAIN = CpuKernel(
    "pointwise.chain",
    (Pointwise, GatheredPointwise),
    ChainConfig,
    supports,
    single_variant(launch, cost),
    emit,
    aliases,
)
