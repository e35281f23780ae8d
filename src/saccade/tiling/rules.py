"""For each operator, what its operands give to a part of its result along one axis of the image.

An operator that no rule knows, or that looks at the whole image, ends the analysis with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import NoReturn, TypeVar

from saccade.errors import OptionError
from saccade.ir import Op
from saccade.ir.dim import Dim, symbols_of
from saccade.opdefs import (
    ArgReduce,
    BitCast,
    Concat,
    Conv2d,
    ConvTranspose2d,
    CumSum,
    DepthToSpaceStore,
    Gather,
    LayerNorm,
    LocalResponseNorm,
    LpNormalize,
    MatMul,
    Move,
    Pad,
    Pointwise,
    Pool2d,
    Reduce,
    Resample,
    Resize,
    Softmax,
)
from saccade.tiling.reads import SAME, Chain, Reading
from saccade.tiling.sampling import AROUND, exact_scale, sampled

__all__ = ["RULES", "AlongCall", "AlongReads"]


@dataclass(frozen=True, slots=True)
class AlongCall:
    """An operator on operands of known sizes, of which some run along an axis of the image.

    Attributes:
        op: Bound to these sizes.
        free: The same for all sizes.
        shapes: Of the operands.
        result: The result's shape.
        axes: Which axis of each operand runs along the image; None for those that do not.
        fixed: Symbols that do not depend on the image: the batch.
    """

    op: Op
    free: Op
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    axes: tuple[int | None, ...]
    fixed: frozenset[str]

    def varies(self, dim: Dim) -> bool:
        """Whether a size of `free` depends on the image's."""
        return bool(symbols_of(dim) - self.fixed)


@dataclass(frozen=True, slots=True)
class AlongReads:
    """What an operator reads.

    Attributes:
        axis: Of the result, along the image.
        chains: Of each operand; None for those that do not run along the image.
    """

    axis: int
    chains: tuple[Chain | None, ...]


_Known = TypeVar("_Known", bound=Op)
_Rule = Callable[[AlongCall], AlongReads]


def _refuse(reason: str) -> NoReturn:
    raise OptionError(reason)


def _op(call: AlongCall, kind: type[_Known]) -> _Known:
    assert isinstance(call.op, kind)
    return call.op


def _axis_of(call: AlongCall, operand: int) -> int:
    axis = call.axes[operand]
    if axis is None:
        _refuse("combines the image with a constant that is as large")
    return axis


def _joined(
    call: AlongCall, known: Mapping[int, int], chains: Mapping[int, Chain] = MappingProxyType({})
) -> AlongReads:
    """What operands read that broadcast to the result, and others whose axes of it are known.

    Args:
        call: The operator's.
        known: Axes of the result, of operands that do not broadcast to it.
        chains: Of operands that do not read the element at their place.
    """
    rank = len(call.result)
    found = {
        i: known.get(i, axis + rank - len(call.shapes[i]))
        for i, axis in enumerate(call.axes)
        if axis is not None
    }
    if len(set(found.values())) != 1:
        _refuse("mixes the axes of the image")
    (axis,) = set(found.values())
    for i, shape in enumerate(call.shapes):
        at = axis - rank + len(shape)
        if i not in found and i not in known and at >= 0 and shape[at] != 1:
            _refuse("combines the image with a constant that is as large")
    return AlongReads(
        axis, tuple(chains.get(i, SAME) if i in found else None for i in range(len(call.axes)))
    )


def _pixels(call: AlongCall, operand: int = 0) -> int:
    """0 for rows, 1 for columns."""
    axis = _axis_of(call, operand) - 2
    if axis not in (0, 1):
        _refuse("slides windows over channels that lie along the image")
    return axis


def _without(call: AlongCall, operands: Sequence[int]) -> None:
    if any(call.axes[i] is not None for i in operands):
        _refuse("has weights that depend on the image")


def _conv(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Conv2d), _pixels(call)
    last = 1 + op.n_prologue
    _without(call, range(1, last + 1))
    reach = (call.shapes[1][2 + axis] - 1) * op.dilation[axis]
    before = op.padding[axis]
    window = Reading(op.stride[axis], 1, -before, reach - before)
    # Epilogues work on sums, which a store may spread over blocks of pixels.
    spread = isinstance(op.store, DepthToSpaceStore)
    stored = (Reading(1, op.store.block),) if isinstance(op.store, DepthToSpaceStore) else SAME
    summed = range(last + 1, len(call.shapes) - op.n_store) if spread else ()
    known = dict.fromkeys((0, *range(1, last + 1)), 2 + axis)
    return _joined(call, known, {0: (*stored, window), **dict.fromkeys(summed, stored)})


def _conv_transpose(call: AlongCall) -> AlongReads:
    op, axis = _op(call, ConvTranspose2d), _pixels(call)
    _without(call, (1,))
    reach = (call.shapes[1][2 + axis] - 1) * op.dilation[axis]
    stride, before = op.stride[axis], op.padding[axis]
    # Pixel p is spread over results p·stride - before, with a tap each up to the reach.
    window = Reading(1, stride, before - reach + stride - 1, before)
    return _joined(call, {0: 2 + axis, 1: 2 + axis}, {0: (window,)})


def _pool(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Pool2d), _pixels(call)
    before = op.padding[axis]
    window = Reading(op.stride[axis], 1, -before, op.extent[axis] - 1 - before)
    return _joined(call, {0: 2 + axis}, {0: (window,)})


def _resize(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Resize), _axis_of(call, 0)
    before, after = call.shapes[0][axis], call.result[axis]
    given = None if op.scales is None else op.scales[axis]
    if before == after and given in (None, 1):
        return _joined(call, {0: axis})
    scale = exact_scale(given, before, after)
    chain = sampled(op.mode, op.coordinate, scale, (before, after), AROUND[op.mode])
    return _joined(call, {0: axis}, {0: chain})


def _resample(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Resample), _axis_of(call, 0)
    if axis != op.axis:
        return _joined(call, {0: axis})
    before, after = call.shapes[0][axis], call.result[axis]
    scale = exact_scale(op.scale, before, after)
    first, last = AROUND[op.mode]
    if op.antialias and scale < 1 and op.mode != "nearest":
        # Filters are as wide as an element of the result.
        last = -(-last * scale.denominator // scale.numerator)
        first = 1 - last
    chain = sampled(op.mode, op.coordinate, scale, (before, after), (first, last))
    return _joined(call, {0: axis}, {0: chain})


def _move(call: AlongCall) -> AlongReads:
    op, free, at = _op(call, Move), call.free, _axis_of(call, 0)
    assert isinstance(free, Move)
    base = sum(map(len, free.map.in_factors[:at]))
    group = free.map.in_factors[at]
    along = [base + i for i, size in enumerate(group) if call.varies(size)]
    if len(along) != 1:
        _refuse("splits an axis of the image into blocks of no fixed size")
    (source,) = along
    sizes = [size for one in op.map.in_factors for size in one]
    if any(sizes[i] != 1 for i in range(base, source)):
        _refuse("interleaves parts of the image")
    inner = _whole(sizes[source + 1 : base + len(group)])
    for axis, factors in enumerate(free.map.out_axes):
        for place, factor in enumerate(factors):
            if factor.source == source:
                return _moved(call, op, source, inner, axis, place)
            if factor.source is None and call.varies(factor.size):
                _refuse("repeats something over the image")
    _refuse("picks a part of the image")


def _moved(call: AlongCall, op: Move, source: int, inner: int, axis: int, place: int) -> AlongReads:
    """Where the factor `source` is one of those that an axis of the result is made of."""
    free = call.free
    assert isinstance(free, Move)
    bound, others = op.map.out_axes[axis], free.map.out_axes[axis]
    if any(factor.size != 1 for factor in bound[:place]) or any(
        call.varies(factor.size) for factor in others[place + 1 :]
    ):
        _refuse("joins the rows of the image")
    factor = bound[place]
    assert isinstance(factor.start, int) and factor.source == source
    if factor.step < 1:
        _refuse("flips the image")
    outer = _whole([one.size for one in bound[place + 1 :]])
    chain = (
        Reading(1, outer),
        Reading(factor.step, 1, factor.start, factor.start),
        Reading(inner, 1, 0, inner - 1),
    )
    return AlongReads(axis, (tuple(one for one in chain if one != Reading()),))


def _whole(sizes: Sequence[Dim]) -> int:
    return prod(size for size in sizes if isinstance(size, int))


def _pad(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Pad), _axis_of(call, 0)
    before, after = op.pads[axis]
    assert isinstance(before, int)
    if op.mode == "wrap" and (before or after):
        _refuse("pads the image with its opposite edge")
    reads = Reading(1, 1, -before, -before, op.mode == "reflect")
    return _joined(call, {0: axis}, {0: (reads,) if before or after else SAME})


def _concat(call: AlongCall) -> AlongReads:
    op = _op(call, Concat)
    if op.axis in call.axes:
        _refuse("puts images side by side")
    return _joined(call, {})


def _matmul(call: AlongCall) -> AlongReads:
    op, rank = _op(call, MatMul), len(call.result)
    known = {}
    for i, transposed in enumerate((op.transpose_a, op.transpose_b)):
        axis = call.axes[i]
        if axis is None:
            continue
        from_end = axis - len(call.shapes[i])
        kept = -2 if transposed == bool(i) else -1
        if from_end >= -2 and from_end != kept:
            _refuse("sums over an axis of the image")
        known[i] = rank + (from_end if from_end < -2 else (-2, -1)[i])
    # Rows of the one are no columns of the other, so only what is batched has to be the same.
    batched = any(axis < rank - 2 for axis in known.values())
    free = {} if batched else {i: rank - 1 for i in (0, 1) if i not in known}
    return _joined(call, known | free)


def _expect_apart(call: AlongCall, axes: Sequence[int], what: str) -> None:
    """An operand must not run along the image on one of these axes."""
    if call.axes[0] in axes:
        _refuse(f"takes the {what} of the whole image")


def _reduce(call: AlongCall) -> AlongReads:
    op = _op(call, Reduce)
    _expect_apart(call, op.axes, op.kind)
    return _reduced(call, op.axes, op.keepdims)


def _arg_reduce(call: AlongCall) -> AlongReads:
    op = _op(call, ArgReduce)
    _expect_apart(call, (op.axis,), op.kind)
    return _reduced(call, (op.axis,), op.keepdims)


def _reduced(call: AlongCall, axes: Sequence[int], keepdims: bool) -> AlongReads:
    axis = _axis_of(call, 0)
    gone = 0 if keepdims else sum(one < axis for one in axes)
    return _joined(call, {0: axis - gone})


def _softmax(call: AlongCall) -> AlongReads:
    _expect_apart(call, (_op(call, Softmax).axis,), "softmax")
    return _joined(call, {})


def _running(call: AlongCall) -> AlongReads:
    _expect_apart(call, (_op(call, CumSum).axis,), "running sum")
    return _joined(call, {})


def _layer_norm(call: AlongCall) -> AlongReads:
    rank = len(call.shapes[0])
    _expect_apart(call, range(_op(call, LayerNorm).axis, rank), "mean")
    return _joined(call, {})


def _lp_normalize(call: AlongCall) -> AlongReads:
    _expect_apart(call, (_op(call, LpNormalize).axis,), "norm")
    return _joined(call, {})


def _local_response(call: AlongCall) -> AlongReads:
    _expect_apart(call, (1,), "norm")
    return _joined(call, {})


def _gather(call: AlongCall) -> AlongReads:
    op, axis = _op(call, Gather), _axis_of(call, 0)
    _without(call, (1,))
    if axis == op.axis:
        _refuse("picks rows of the image")
    more = len(call.shapes[1]) - 1 if axis > op.axis else 0
    return _joined(call, {0: axis + more, 1: axis + more})


def _elementwise(call: AlongCall) -> AlongReads:
    return _joined(call, {})


RULES: Mapping[type[Op], _Rule] = MappingProxyType(
    {
        ArgReduce: _arg_reduce,
        BitCast: _elementwise,
        Concat: _concat,
        Conv2d: _conv,
        ConvTranspose2d: _conv_transpose,
        CumSum: _running,
        Gather: _gather,
        LayerNorm: _layer_norm,
        LocalResponseNorm: _local_response,
        LpNormalize: _lp_normalize,
        MatMul: _matmul,
        Move: _move,
        Pad: _pad,
        Pointwise: _elementwise,
        Pool2d: _pool,
        Reduce: _reduce,
        Resample: _resample,
        Resize: _resize,
        Softmax: _softmax,
    }
)
"""All operators that may stand between an image and a result that is computed in tiles."""
