"""A chain over slices that indices name, of as many elements as steps before it found.

The walk is `pointwise.chain`'s. An operand that is read at indices stays where it is along the axis
that they replace, and each place adds its index; an index beyond the axis is clamped to its ends,
so that nothing outside the operand is ever read. Where numbers say how much of the result is true,
so few programs as the GPU runs at once go through that alone, whatever it is planned for.

Floor: the bytes of the result, of what is read of each operand, and of the indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from saccade.backends.cuda.codegen.expressions import TritonLines, missing_operator
from saccade.backends.fusions import GatheredPointwise
from saccade.ir.expr import parse
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.loop_axes import (
    LoopAxes,
    collapsed,
    power_dividing,
    refuse_walk,
)
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    general_walk,
    walk_variants,
    walks,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.kernels.cuda.pointwise.chain import (
    element_name,
    number_type,
    result_of,
    used_operands,
    value_type,
)
from saccade.kernels.cuda.refusals import refuse_narrow

__all__ = ["POINTWISE_GATHERED", "CudaGatheredConfig"]

_PROGRAMS = 8  # of a multiprocessor, where they go on to what is true (by eye)


@dataclass(frozen=True)
class CudaGatheredConfig:
    """What the code depends on.

    Attributes:
        expr: The expression, over the used operands renumbered from 0.
        elements: Element type of the result, of each used operand, of the indices, of numbers.
        number: The type of arithmetic, as Triton calls it.
        result: What the value is cast to before it is stored, as Triton calls it.
        picks: For each used operand which of the indices it is read at, counted from 0, and what
            the stride of the axis that they replace is a multiple of; (-1, 1) for none.
        numbers: Axes that numbers count, and how many elements count one: `WalkText`.
        walk: How elements are found: of the result, the used operands and the indices.
    """

    expr: str
    elements: tuple[str, ...]
    number: str
    result: str
    picks: tuple[tuple[int, int], ...]
    numbers: tuple[tuple[int, int], ...]
    walk: WalkCode


class _Operands(NamedTuple):
    """What is walked beside the result.

    Attributes:
        used: Places of the expression's operands that occur.
        expr: The expression over these.
        picks: For each of them its axis and the number of its indices; (-1, -1).
        first: Place of the first indices.
    """

    used: tuple[int, ...]
    expr: str
    picks: tuple[tuple[int, int], ...]
    first: int


def _operands(op: GatheredPointwise) -> _Operands:
    used, expr = used_operands(op.expr)
    return _Operands(used, expr, tuple(op.picks[i] for i in used), len(op.picks))


def _data(call: CudaCall) -> list[View]:
    """The operands that occur."""
    return [call.inputs[i] for i in _operands(call.op).used]


def _supports(call: CudaCall) -> str | None:
    op: GatheredPointwise = call.op
    narrow = refuse_narrow((*call.inputs, *call.outputs))
    if narrow is not None:
        return narrow
    kind = number_type(_data(call), op.dtype)
    missing = missing_operator(op.expr, kind)
    if missing is not None:
        return f"{missing} of {kind}"
    for view, (axis, _) in zip(call.inputs, op.picks, strict=False):
        if axis >= 0 and not view.shape[axis] and call.outputs[0].size:
            return "slices of an empty axis"
    return refuse_walk(call.outputs[0], call.inputs)


def _axes(call: CudaCall, *, ones: bool = False) -> tuple[LoopAxes, tuple[int, ...]]:
    """The result's axes and those of what is walked beside it; which of the result's they are."""
    op: GatheredPointwise = call.op
    shape = call.outputs[0].shape
    strides = [list(call.outputs[0].strides)]
    found, where = _operands(op), [[0] * len(shape) for _ in range(op.indices)]
    for view, (axis, number) in zip(_data(call), found.picks, strict=True):
        missing = len(shape) - len(view.shape)
        # Along an axis of one element any stride will do: its own may merge.
        steps = [
            0 if n == 1 and whole != 1 else s
            for n, s, whole in zip(view.shape, view.strides, shape[missing:], strict=True)
        ]
        if axis >= 0:
            steps[axis] = 0
            where[number][axis + missing] = call.inputs[found.first + number].strides[0]
        strides.append([*(0,) * missing, *steps])
    strides += where
    alone = [axis in op.counted for axis in range(len(shape))]
    return collapsed(shape, strides, alone, ones=ones)


def _ways(call: CudaCall) -> list[Walk]:
    """Ways to walk, whose axes are the result's."""
    op, result = call.op, call.outputs[0]
    # Indices are never written: how wide they are does not decide how much is moved at once.
    itemsizes = [view.dtype.itemsize for view in (result, *_data(call))] + [1] * op.indices
    (axes, found), (every, places) = _axes(call), _axes(call, ones=True)
    ways = [(way, found) for way in walks(axes, itemsizes)]
    ways.append((general_walk(every, itemsizes), places))
    return [
        replace(way, axes=tuple((of[axis], each) for axis, each in way.axes)) for way, of in ways
    ]


def _variants(call: CudaCall) -> Iterator[Variant]:
    op, result = call.op, call.outputs[0]
    read = sum(min(view.size, result.size) * view.dtype.itemsize for view in _data(call))
    nbytes = result.nbytes + read + sum(view.nbytes for view in call.inputs[len(op.picks) :])
    return walk_variants(call, _ways(call), nbytes, _launch)


def _generic_configs(call: CudaCall) -> tuple[CudaGatheredConfig, ...]:
    return (cast("CudaGatheredConfig", _launch(call, _ways(call)[-1]).config),)


def _numbers(op: GatheredPointwise, way: Walk) -> dict[int, tuple[int, int]]:
    """For each number that the code reads: which axis of the code it counts, and in elements."""
    found = dict[int, tuple[int, int]]()
    for place, (axis, each) in enumerate(way.axes):
        if axis in op.counted:
            side = place >= way.code.rank
            found[op.counted.index(axis)] = place - len(way.axes) if side else place, each
    return found


def _launch(call: CudaCall, way: Walk) -> Launch:
    op: GatheredPointwise = call.op
    operands, data, numbers = _operands(op), _data(call), _numbers(op, way)
    picks, integers = list[tuple[int, int]](), dict[str, int]()
    for p, (view, (axis, number)) in enumerate(zip(data, operands.picks, strict=True), 1):
        step = power_dividing((view.strides[axis],), way.code.steps[p]) if axis >= 0 else 1
        picks.append((number, step))
        if axis >= 0:
            integers |= {f"x{p}": view.shape[axis], f"g{p}": view.strides[axis] // step}
    behind = operands.first + op.indices
    given = (*operands.used, *range(operands.first, behind), *(behind + n for n in numbers))
    views = call.outputs[0], *(call.inputs[i] for i in given)
    config = CudaGatheredConfig(
        operands.expr, tuple(map(element_name, views)), number_type(data, op.dtype),
        value_type(op.dtype), tuple(picks), tuple(numbers.values()), way.code,
    )  # fmt: skip
    bound: dict[str, Operand] = {"p0": Out(0)}
    bound |= {f"p{p}": In(i) for p, i in enumerate(given, 1)}
    programs, sizes = way.programs, way.sizes
    if numbers:
        programs = min(programs, _PROGRAMS * call.target.multiprocessors)
        sizes = {**(sizes if way.code.ends else {}), "n0": way.length}
    return Launch(config, bound, {**way.integers, **sizes, **integers}, programs)


def _entry(config: CudaGatheredConfig) -> Entry:
    count = len(config.picks)
    first = len(config.elements) - len(config.numbers)
    truths = [p for p in range(count) if config.elements[p + 1] == "bool"]
    lines = TritonLines({}, config.number, truths)
    elements = [element.replace("bool", "u8") for element in config.elements]
    picked = [p for p, (number, _) in enumerate(config.picks, 1) if number >= 0]
    integers = [f"{word}{p}" for word in "xg" for p in picked]
    numbers = [(first + k, *counted) for k, counted in enumerate(config.numbers)]
    text = WalkText(config.walk, elements, lines, integers, numbers)
    for p, (number, step) in enumerate(config.picks, 1):
        base = text.base(p)
        if number < 0:
            loaded = text.load(p, base)
        else:
            loaded = _picked(text, p, 1 + count + number, base, step)
        lines.names[p - 1] = f"v{p}"
        lines.add(f"v{p} = {loaded}" + (" != 0" if p - 1 in truths else f".to(tl.{config.number})"))
    text.store(result_of(lines, parse(config.expr), config.number, config.result))
    return text.entry()


def _picked(text: WalkText, p: int, where: int, base: str, step: int) -> str:
    """An operand's elements at indices along an axis."""
    lines, size = text.lines, text.extra(f"x{p}")
    lines.add(f"j{p} = {text.load(where, text.base(where))}")
    lines.add(f"j{p} = tl.where(j{p} < 0, j{p} + {size}, j{p})")
    lines.add(f"j{p} = tl.minimum(tl.maximum(j{p}, 0), {size} - 1).to(tl.int32)")
    places = f"{text.places(p, base)} + j{p} * {text.extra(f'g{p}')} * {step}"
    return f"tl.load({text.extra(f'p{p}')} + ({places}), mask={text.mask}, other=0)"


def _aliases(call: CudaCall) -> tuple[tuple[int, int], ...]:
    """Every operand may be overwritten where none is read at other places than it is written."""
    op: GatheredPointwise = call.op
    return tuple((i, 0) for i in range(len(op.picks))) if not op.indices else ()


POINTWISE_GATHERED = CudaKernel(
    "pointwise.gathered",
    (GatheredPointwise,),
    CudaGatheredConfig,
    _supports,
    _variants,
    _entry,
    _aliases,
    _generic_configs,
)
