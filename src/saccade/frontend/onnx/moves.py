"""Index maps of single steps, and how to emit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Factor, IndexMap, Value
from saccade.ir.dim import sub
from saccade.ir.index_map import transpose_map
from saccade.ir.reshape_maps import assumed, divisible, meeting, reshape
from saccade.opdefs import Move

__all__ = [
    "broadcast_map",
    "crop",
    "move",
    "reshaped",
    "slice_map",
    "spell",
    "tile_map",
    "transpose_map",
]


def spell(shape: Sequence[Dim]) -> str:
    """A shape for people."""
    return f"[{', '.join(map(str, shape))}]"


def move(call: OnnxNode, x: Value, index_map: IndexMap) -> Value:
    """Emit a movement, unless it moves nothing, and says nothing either of x's shape."""
    if _moves_nothing(index_map) and index_map.in_shape == x.shape:
        return x
    return call.emit(Move(map=index_map), x)


def _moves_nothing(index_map: IndexMap) -> bool:
    groups = tuple(map(len, index_map.in_factors))
    sizes = [size for group in index_map.in_factors for size in group]
    plain = tuple(Factor(size, index) for index, size in enumerate(sizes))
    return groups == index_map.out_groups and plain == index_map.factors


def reshaped(call: OnnxNode, x: Value, shape: Sequence[Dim]) -> Value:
    """The same elements under another shape; a constant is only looked at differently.

    Where symbols do not decide whether one axis holds what several become, it is taken to: the map
    says so, and plans check it (`layout.sizes.check_guards`).

    Raises:
        Refusal: If the two shapes do not hold equally many elements for any sizes, or nothing
            would be there to check that they do.
    """
    if x.shape == tuple(shape):
        return x
    known = tuple(d for d in shape if isinstance(d, int))
    if call.build.is_known(x) and len(known) == len(shape):
        return call.build.viewed(x, known)
    # Without elements nothing moves, and sizes of 0 have no common factors.
    if len(known) == len(shape) and 0 in known and 0 in x.shape:
        return call.build.constant(np.zeros(known, x.dtype.numpy), call.name)
    # What holds for all sizes comes first: plans need not check it.
    index_map = reshape(x.shape, shape) or reshape(divisible(x.shape, shape), shape)
    if index_map is not None:
        return move(call, x, index_map)
    # Neither shape refines the other: two steps, through one that both merge to.
    between = meeting(x.shape, shape)
    found = assumed(x.shape, shape) if between is None else (between, between)
    refusal = Refusal(f"reshapes {spell(x.shape)} to {spell(shape)}, not equal for all sizes")
    if found is None:
        raise refusal
    merged, taken_as = found
    for source, target in ((x.shape, merged), (taken_as, shape)):
        step = reshape(source, target)
        if step is None:
            raise refusal
        x = move(call, x, step)
    return x


def _axes(shape: Sequence[Dim]) -> tuple[tuple[Dim, ...], ...]:
    return tuple((size,) for size in shape)


def slice_map(
    shape: Sequence[Dim], ranges: Mapping[int, tuple[Dim, Dim, int]], drop: Sequence[int] = ()
) -> IndexMap:
    """Part of some axes.

    Args:
        shape: Of the operand.
        ranges: Start, size and step for each axis that is not taken whole.
        drop: Axes of size 1 in the result that disappear from its shape; some other axis must be
            left.
    """
    factors = []
    for axis, size in enumerate(shape):
        start, count, step = ranges.get(axis, (0, size, 1))
        factors.append(Factor(count, axis, start, step))
    groups: list[int] = []
    waiting = 0  # factors of dropped axes go with the next axis that is left, or the last one
    for axis in range(len(shape)):
        waiting += 1
        if axis not in drop:
            groups.append(waiting)
            waiting = 0
    if waiting:
        groups[-1] += waiting
    return IndexMap(_axes(shape), tuple(factors), tuple(groups))


def crop(shape: Sequence[Dim], cut: Mapping[int, tuple[int, int]]) -> IndexMap:
    """Cut elements off both ends of some axes."""
    ranges = {
        axis: (before, sub(sub(shape[axis], before), after), 1)
        for axis, (before, after) in cut.items()
        if before or after
    }
    return slice_map(shape, ranges)


def broadcast_map(shape: Sequence[Dim], target: Sequence[Dim]) -> IndexMap:
    """Repeat axes of 1 (and new leading axes) up to `target`; other axes must be equal.

    Raises:
        Refusal: If an axis neither is 1 nor equals the target.
    """
    lead = len(target) - len(shape)
    factors = [Factor(size, None) for size in target[:lead]]
    in_factors: list[tuple[Dim, ...]] = []
    source = 0
    for have, want in zip(shape, target[lead:], strict=True):
        if have == 1:
            # No factor: a repeat reads none.
            in_factors.append(())
            factors.append(Factor(want, None))
            continue
        if have != want:
            raise Refusal(f"broadcasts {spell(shape)} to {spell(target)}")
        in_factors.append((have,))
        factors.append(Factor(have, source))
        source += 1
    return IndexMap(tuple(in_factors), tuple(factors), (1,) * len(target))


def tile_map(shape: Sequence[Dim], repeats: Sequence[Dim]) -> IndexMap:
    """Repeat whole axes."""
    factors: list[Factor] = []
    groups: list[int] = []
    for axis, (size, count) in enumerate(zip(shape, repeats, strict=True)):
        repeated = () if count == 1 else (Factor(count, None),)
        # The repeat outermost: the axis comes again as a whole, not each of its elements.
        factors += [*repeated, Factor(size, axis)]
        groups.append(1 + len(repeated))
    return IndexMap(_axes(shape), tuple(factors), tuple(groups))
