"""Algebra of index maps: one canonical form, composition, identity and view tests.

Two maps A: in -> mid and B: mid -> out compose when, on every middle axis, the factors that A
writes and the factors that B reads have a common refinement: going from the innermost outwards,
each of the two sizes at hand divides the other. A factor splits along with what it is tied to
(A's with the input factor that it reads, B's with the output factor that reads it); a slice
splits only where its bounds fall on the new boundaries. What cannot be shown for all values of
the symbols is not done: `compose` answers with the reason instead.
"""

from __future__ import annotations

from saccade.ir import dim as d
from saccade.ir._open_map import (
    InputFactor,
    OpenMap,
    OutputFactor,
    close_map,
    open_map,
    same,
    simplify,
)
from saccade.ir.dim import Dim
from saccade.ir.index_map import IndexMap
from saccade.ir.reshape_maps import quotient

__all__ = ["canonical", "compose", "is_identity", "is_view", "same_map"]


def canonical(index_map: IndexMap) -> IndexMap:
    """The one form of all maps that move elements alike: fewest factors, pins on the first axis.

    Maps on symbolic dims whose sizes are equal but written differently may still differ in that.
    """
    opened = open_map(index_map)
    simplify(opened)
    return close_map(opened)


def same_map(left: IndexMap, right: IndexMap) -> bool:
    """Whether two maps move elements alike (False where that cannot be shown)."""
    left, right = canonical(left), canonical(right)
    return (
        left.out_groups == right.out_groups
        and [len(axis) for axis in left.in_factors] == [len(axis) for axis in right.in_factors]
        and all(
            same(a, b)
            for one, other in zip(left.in_factors, right.in_factors, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        and all(
            a.source == b.source
            and a.step == b.step
            and same(a.size, b.size)
            and same(a.start, b.start)
            for a, b in zip(left.factors, right.factors, strict=True)
        )
    )


def is_view(index_map: IndexMap) -> bool:
    """Whether the map is a pure reshape: all elements, in row-major order."""
    form = canonical(index_map)
    # Only the canonical form is compared: before it, a reshape may have factors of 1 in any order.
    sizes = [size for axis in form.in_factors for size in axis]
    return [f.source for f in form.factors] == list(range(len(sizes))) and all(
        f.start == 0 and f.step == 1 and same(f.size, size)
        for f, size in zip(form.factors, sizes, strict=True)
    )


def is_identity(index_map: IndexMap) -> bool:
    """Whether the map changes neither shape nor order."""
    ins, outs = index_map.in_shape, index_map.out_shape
    if len(ins) != len(outs) or not all(map(same, ins, outs)) or not is_view(index_map):
        return False
    form = canonical(index_map)
    return tuple(map(len, form.in_factors)) == form.out_groups


def compose(first: IndexMap, then: IndexMap) -> IndexMap | str:
    """The canonical map that does `first` and after it `then`, or the reason why there is none.

    Raises:
        ValueError: If the ranks do not meet.
    """
    if len(first.out_groups) != len(then.in_factors):
        raise ValueError(f"rank {len(first.out_groups)} does not meet {len(then.in_factors)}")
    # A size of 0 divides nothing and swallows every other factor of its axis.
    if 0 in (*first.out_shape, *then.out_shape, *first.in_shape):
        return "an empty tensor has no factors to refine"
    one, two = open_map(first), open_map(then)
    # Merged factors need fewer splits, and factors of 1 would pair up with nothing.
    simplify(one)
    simplify(two)
    written: dict[InputFactor, OutputFactor] = {}
    for axis in range(len(two.in_axes)):
        reason = _refine(one, two, axis, written)
        if reason is not None:
            return reason
    # Pins are kept on the first axis of the result (`close_map`), and here is none.
    if one.pins and not two.out_axes:
        return "a result of rank 0 cannot name the elements that were picked"
    result = OpenMap(
        one.in_axes,
        [[_chain(out, written) for out in axis] for axis in two.out_axes],
        one.pins + [_chain(pin, written) for pin in two.pins],
    )
    simplify(result)
    if result.pins and not result.out_axes:
        return "a result of rank 0 cannot name the elements that were picked"
    return close_map(result)


def _chain(out: OutputFactor, written: dict[InputFactor, OutputFactor]) -> OutputFactor:
    if out.source is None:
        return out
    origin = written[out.source]
    # `out` counts positions of what `origin` wrote, each `origin.step` elements from the last.
    start = d.add(origin.start, d.mul(out.start, origin.step))
    return OutputFactor(out.size, origin.source, start, origin.step * out.step)


def _refine(
    one: OpenMap, two: OpenMap, axis: int, written: dict[InputFactor, OutputFactor]
) -> str | None:
    """Split what `one` writes and `two` reads on a middle axis until they pair up in `written`."""
    outs, ins = list(one.out_axes[axis]), list(two.in_axes[axis])
    done: list[InputFactor] = []
    while outs and ins:
        # From the innermost on: there a split keeps both parts contiguous in row-major order.
        out, read = outs.pop(), ins.pop()
        if not same(out.size, read.size):
            over_read = quotient(out.size, read.size)
            over_out = quotient(read.size, out.size)
            if over_read is not None:
                split = _split_written(one, out, over_read, read.size)
                if isinstance(split, str):
                    return split
                # The outer part goes on to meet the next factor.
                outs.append(split[0])
                out = split[1]
            elif over_out is not None:
                halves = _split_read(two, read, over_out, out.size)
                if isinstance(halves, str):
                    return halves
                ins.append(halves[0])
                read = halves[1]
            else:
                return f"factors of {out.size} and {read.size} do not refine each other"
        written[read] = out
        done.append(read)
    if outs or ins:
        return "the sizes of a middle axis cannot be shown to be equal"
    # They were found from the innermost outwards.
    two.in_axes[axis] = done[::-1]
    return None


def _split_written(
    one: OpenMap, out: OutputFactor, outer: Dim, inner: Dim
) -> tuple[OutputFactor, OutputFactor] | str:
    """Split an output factor of the first map, and the input factor behind it."""
    source = out.source
    if source is None:
        return OutputFactor(outer, None), OutputFactor(inner, None)
    flip = out.is_flip()
    blocks: Dim = outer
    start: Dim = 0
    if flip or out.is_full():
        # Reversed as a whole means both parts reversed.
        pass  # the input factor splits as the output factor does
    elif out.step == 1:
        # The slice takes whole blocks, so that it becomes a slice of the blocks alone.
        whole, aligned = quotient(source.size, inner), quotient(out.start, inner)
        if whole is None or aligned is None:
            return f"a slice from {out.start} of {source.size} does not fall on blocks of {inner}"
        blocks, start = whole, aligned
    else:
        return f"a slice with step {out.step} cannot be split into blocks of {inner}"
    axis = next(axis for axis in one.in_axes if source in axis)
    high, low = InputFactor(blocks), InputFactor(inner)
    at = axis.index(source)
    axis[at : at + 1] = [high, low]
    if flip:
        return OutputFactor(outer, high, d.sub(outer, 1), -1), OutputFactor(
            inner, low, d.sub(inner, 1), -1
        )
    return OutputFactor(outer, high, start), OutputFactor(inner, low)


def _split_read(
    two: OpenMap, read: InputFactor, outer: Dim, inner: Dim
) -> tuple[InputFactor, InputFactor] | str:
    """Split an input factor of the second map, and the output factor that reads it."""
    high, low = InputFactor(outer), InputFactor(inner)
    # Every input factor that is left has one reader: it is read by an axis or picked by a pin.
    lists = [*two.out_axes, two.pins]
    axis = next(axis for axis in lists if any(out.source is read for out in axis))
    at = next(i for i, out in enumerate(axis) if out.source is read)
    halves = _split_reader(axis[at], high, low)
    if isinstance(halves, str):
        return halves
    axis[at : at + 1] = halves
    return high, low


def _split_reader(
    out: OutputFactor, high: InputFactor, low: InputFactor
) -> list[OutputFactor] | str:
    inner = low.size
    if out.is_full():
        return [OutputFactor(high.size, high), OutputFactor(inner, low)]
    if out.is_flip():
        return [
            OutputFactor(high.size, high, d.sub(high.size, 1), -1),
            OutputFactor(inner, low, d.sub(inner, 1), -1),
        ]
    size, start = quotient(out.size, inner), quotient(out.start, inner)
    if out.step == 1 and size is not None and start is not None:
        return [OutputFactor(size, high, start), OutputFactor(inner, low)]
    if isinstance(out.start, int) and isinstance(out.size, int) and isinstance(inner, int):
        block, offset = divmod(out.start, inner)
        last = out.start + out.step * (out.size - 1)
        # All that is read lies in one block: the outer part is a pin.
        if last // inner == block:
            return [OutputFactor(1, high, block), OutputFactor(out.size, low, offset, out.step)]
        # Whole blocks are stepped over: the inner part is a pin.
        if out.step % inner == 0:
            return [
                OutputFactor(out.size, high, block, out.step // inner),
                OutputFactor(1, low, offset),
            ]
    return (
        f"a slice from {out.start} of length {out.size} with step {out.step} "
        f"does not fall on blocks of {inner}"
    )
