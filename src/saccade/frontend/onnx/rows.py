"""Which operators may meet an axis whose size a step finds out, and how.

Such an axis is planned for its bound; its first elements are true, as many as the step finds, and
the rest is to be cut off what the caller gets (`ir/counts.py`). An operator may have it as long as
no element that is true comes from one that is not. Here each operator says so for itself; those
that are not in the table may not have it at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Count, Dim, Node, Op, TensorType, Value
from saccade.ir.counts import depends, multiple_of
from saccade.ir.dim import symbols_of
from saccade.opdefs import (
    ArgReduce,
    BitCast,
    Concat,
    Conv2d,
    ConvTranspose2d,
    CumSum,
    Gather,
    GatherNd,
    GridSample,
    GroupNorm,
    LayerNorm,
    LpNormalize,
    MatMul,
    Move,
    NonMaxSuppression,
    NonZero,
    PackedPlaces,
    Pad,
    Pointwise,
    Pool2d,
    Reduce,
    Resize,
    RoiAlign,
    RoiPool,
    ScatterRows,
    Softmax,
    TopK,
    Unique,
)

__all__ = ["counts_of", "refuse_mixing"]

_MIXES = "mixes elements along an axis whose size depends on data"
_PICKS = "picks elements of an axis whose size depends on data"
_MEETS = "combines an axis whose size depends on data with one of another size"


def refuse_mixing(
    op: Op, inputs: Sequence[TensorType], outputs: Sequence[TensorType], counted: Collection[str]
) -> None:
    """Raise unless the operator keeps apart what is true of its operands and what is not.

    Args:
        op: The operator.
        inputs: Of its operands.
        outputs: Of its results.
        counted: Symbols whose sizes steps find out.

    Raises:
        Refusal: With the reason.
    """
    case = _Case(op, [t.shape for t in inputs], [t.shape for t in outputs], counted)
    if not any(map(case.open, (*case.inputs, *case.outputs))):
        return
    rule = _RULES.get(type(op))
    reason = _MIXES if rule is None else rule(case)
    if reason is not None:
        raise Refusal(reason)
    # Outputs are cut to their first elements, so many times the size: no other dim says where.
    for dim in (dim for shape in case.outputs for dim in shape):
        if case.open((dim,)) and multiple_of(dim, counted) is None:
            raise Refusal(f"makes an axis of {dim} elements, which depends on data")


def counts_of(node: Node, counts: Mapping[str, tuple[Count, Value]]) -> Iterator[Value]:
    """Where steps leave the sizes that a node's results depend on."""
    for dim in (dim for value in node.outputs for dim in value.shape):
        for name in symbols_of(dim) & counts.keys():
            yield counts[name][1]


@dataclass(frozen=True, slots=True)
class _Case:
    """An operator and the shapes around it."""

    op: Op
    inputs: Sequence[tuple[Dim, ...]]
    outputs: Sequence[tuple[Dim, ...]]
    counted: Collection[str]

    def open(self, dims: Sequence[Dim]) -> bool:
        """Whether the size of one of these axes depends on data."""
        return any(depends(dim, self.counted) for dim in dims)

    def meet(self, shapes: Sequence[tuple[Dim, ...]]) -> str | None:
        """What is wrong with shapes that broadcast to each other."""
        for dims in zip_longest(*map(reversed, shapes), fillvalue=1):
            # Axes of the same symbol have as many true elements; of another size they would not.
            if self.open(dims) and len({d for d in dims if d != 1}) > 1:
                return _MEETS
        return None


def _pointwise(case: _Case) -> str | None:
    return case.meet(case.inputs)


def _along(case: _Case) -> str | None:
    """Operators that mix elements along one axis, or several."""
    shape = case.inputs[0]
    axes = _mixed_axes(case.op, len(shape))
    others = any(map(case.open, case.inputs[1:]))
    return _MIXES if others or case.open([shape[axis] for axis in axes]) else None


def _mixed_axes(op: Op, rank: int) -> Sequence[int]:
    if isinstance(op, Reduce):
        return op.axes
    if isinstance(op, LayerNorm):
        return range(op.axis, rank)
    if isinstance(op, ArgReduce) and op.counted:
        return ()  # it is told how many of the elements are true
    assert isinstance(op, (ArgReduce, CumSum, LpNormalize, Softmax))
    return (op.axis,)


def _top_k(case: _Case) -> str | None:
    assert isinstance(case.op, TopK)
    return _MIXES if case.open((case.inputs[0][case.op.axis],)) else None


def _closed(case: _Case) -> str | None:
    """Operators that find out how many results they have, of operands that are true to the end."""
    return _MIXES if any(map(case.open, case.inputs)) else None


def _concat(case: _Case) -> str | None:
    assert isinstance(case.op, Concat)
    axis = case.op.axis
    # The next part would lie behind what is not true.
    if case.open([shape[axis] for shape in case.inputs]):
        return _MIXES
    return case.meet([shape[:axis] + shape[axis + 1 :] for shape in case.inputs])


def _pad(case: _Case) -> str | None:
    assert isinstance(case.op, Pad)
    for dim, pair in zip(case.inputs[0], case.op.pads, strict=True):
        # Padding at the end would lie behind what is not true, and at the front move what is.
        if case.open(pair) or (case.open((dim,)) and pair != (0, 0)):
            return _MIXES
    return None


def _gather(case: _Case) -> str | None:
    assert isinstance(case.op, Gather)
    # Indices are held against the bound, and could name what is not true.
    return _PICKS if case.open((case.inputs[0][case.op.axis],)) else None


def _gather_nd(case: _Case) -> str | None:
    assert isinstance(case.op, GatherNd)
    data, indices = case.inputs
    depth, shared = indices[-1], case.op.batch
    picked = data[shared : shared + (depth if isinstance(depth, int) else 0)]
    if case.open(picked):
        return _PICKS
    return case.meet([data[:shared], indices[:shared]])


def _matmul(case: _Case) -> str | None:
    assert isinstance(case.op, MatMul)
    a, b = case.inputs[:2]
    summed = a[-2] if case.op.transpose_a else a[-1], b[-1] if case.op.transpose_b else b[-2]
    if case.open(summed):
        return _MIXES
    # Operands of the epilogue broadcast to the result.
    return case.meet([a[:-2], b[:-2]]) or case.meet([*case.outputs, *case.inputs[2:]])


def _images(case: _Case) -> str | None:
    """Operators that treat each image of a batch for itself."""
    data, *others = case.inputs
    # A batch axis that becomes something else would mix images.
    kept = case.outputs[0][:1] == data[:1]
    return None if kept and not any(map(case.open, (data[1:], *others))) else _MIXES


def _regions(case: _Case) -> str | None:
    x, boxes, *images = case.inputs
    # Only the boxes may be so many as a step finds: each makes a region of its own.
    if case.open((*x, *boxes[1:])):
        return _MIXES
    return case.meet([boxes[:1], *images])


def _sampled(case: _Case) -> str | None:
    x, grid = case.inputs
    # Each place of the grid is sampled for itself; its coordinates belong together.
    if case.open((*x[1:], grid[-1])):
        return _MIXES
    return case.meet([x[:1], grid[:1]])


def _scattered(case: _Case) -> str | None:
    data, indices, updates = case.inputs
    # Columns are apart; which rows there are and which of them are written has to be true.
    if case.open((data[0], *indices)):
        return _MIXES
    return case.meet([data[1:], updates[1:]])


def _move(case: _Case) -> str | None:
    """An open axis, or the outermost part of one, stays the outermost part of an axis."""
    assert isinstance(case.op, Move)
    index_map = case.op.map
    sizes = [size for group in index_map.in_factors for size in group]
    # Inside an axis, each outer index has true elements of its own, with others between.
    if any(case.open(group[1:]) for group in index_map.in_factors):
        return _MIXES
    for axis in index_map.out_axes:
        for place, factor in enumerate(axis):
            source = 1 if factor.source is None else sizes[factor.source]
            if not case.open((source, factor.size, factor.start)):
                continue
            if not case.open((factor.size,)) or factor.start != 0 or factor.step != 1:
                return _PICKS
            # Behind another factor, what is not true would lie between what is.
            if any(outer.size != 1 for outer in axis[:place]):
                return _MIXES
    return None


_RULES: dict[type[Op], Callable[[_Case], str | None]] = {
    ArgReduce: _along,
    BitCast: _pointwise,
    Concat: _concat,
    Conv2d: _images,
    ConvTranspose2d: _images,
    CumSum: _along,
    Gather: _gather,
    GatherNd: _gather_nd,
    GridSample: _sampled,
    GroupNorm: _images,
    LayerNorm: _along,
    LpNormalize: _along,
    MatMul: _matmul,
    NonMaxSuppression: _closed,
    NonZero: _closed,
    PackedPlaces: _closed,
    Move: _move,
    Pad: _pad,
    Pointwise: _pointwise,
    Pool2d: _images,
    Reduce: _along,
    Resize: _images,
    RoiAlign: _regions,
    RoiPool: _regions,
    ScatterRows: _scattered,
    Softmax: _along,
    TopK: _top_k,
    Unique: _closed,
}
