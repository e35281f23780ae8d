"""Views: dense storage, and what an index map makes of a stored value without moving it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from saccade.ir import DType, IndexMap
from saccade.kernels.base import View

__all__ = [
    "aligned", "channels_last", "fits_last", "moved", "padded", "part", "row_major", "unmoved",
]  # fmt: skip

PIXEL = 16
"""Bytes that pixels are padded to multiples of, where they are: the widest access of a thread."""
_MOST_ADDED = 4  # the least multiple of the bytes added that pixels have, for it to be worth it


def row_major(dtype: DType, shape: Sequence[int]) -> View:
    """Dense storage in logical order."""
    strides = [*accumulate(reversed(shape), mul, initial=1)]
    # The last product is the number of elements, and no stride.
    return View(dtype, tuple(shape), tuple(strides[-2::-1]))


def channels_last(dtype: DType, shape: Sequence[int]) -> View:
    """Dense storage of [N, C, H, W] with channels innermost."""
    n, c, h, w = shape
    return View(dtype, (n, c, h, w), (h * w * c, 1, w * c, c))


def fits_last(view: View) -> bool:
    """Whether a view of [N, C, H, W] is as channels-last storage has it, whatever its gaps."""
    _, _, h, w = view.shape
    return view.channels_last or h * w <= 1


def padded(dtype: DType, shape: Sequence[int], *, zeros: bool) -> View:
    """Channels-last storage whose pixels begin at multiples of 16 bytes.

    Dense storage where they do anyway, where the padding would be more than a quarter, and of what
    has one pixel.

    Args:
        dtype: Element type.
        shape: [N, C, H, W].
        zeros: See `View.zeros`.
    """
    n, c, h, w = shape
    room = -c % (PIXEL // dtype.itemsize)
    if room * _MOST_ADDED > c or not room or h * w <= 1 or 0 in shape:
        return channels_last(dtype, shape)
    pitch = c + room
    return View(dtype, (n, c, h, w), (h * w * pitch, 1, w * pitch, pitch), room, zeros)


def part(view: View, axis: int, at: int, shape: Sequence[int]) -> View:
    """Places `at` and on along an axis of a stored value, which another one of `shape` takes.

    Where the value is padded, those of its channels that begin at multiples of 16 bytes keep what
    is left of a last 16 bytes as room: what is stored there is not theirs but for the last one's.
    """
    found = View(view.dtype, tuple(shape), view.strides)
    # Along other axes a part has all channels, and what lies behind them.
    if not view.room or axis not in (1, -3):
        return found._replace(room=view.room, zeros=view.zeros)
    step = PIXEL // view.dtype.itemsize
    room, end = -shape[1] % step, at + shape[1]
    if at % step or end + room > view.shape[1] + view.room:
        return found
    return found._replace(room=room, zeros=view.zeros and room > 0 and end == view.shape[1])


def aligned(view: View, begin: int) -> View:
    """The view with `View.aligned`, if it is a part of wider pixels, `begin` bytes into a buffer.

    Of floats of 16 bits alone: what moves whole vectors takes no others.
    """
    wider = view.channels_last and view.strides[3] != view.shape[1]
    if not wider or view.dtype not in (DType.F16, DType.BF16) or begin % PIXEL:
        return view
    step = PIXEL // view.dtype.itemsize
    apart = [view.strides[axis] for axis in (0, 2, 3) if view.shape[axis] > 1]
    return view if any(stride % step for stride in apart) else view._replace(aligned=True)


def moved(view: View, index_map: IndexMap) -> tuple[int, View] | None:
    """Offset and view of `index_map` applied to a stored value; None if elements have to move.

    The map's dims must be integers.
    """
    sizes: list[int] = []
    strides: list[int] = []
    for stride, group in zip(view.strides, index_map.in_factors, strict=True):
        inner = 1
        at = len(sizes)
        for size in reversed(group):
            assert isinstance(size, int)
            sizes.insert(at, size)
            strides.insert(at, stride * inner)
            inner *= size
    offset = 0
    shape: list[int] = []
    steps: list[int] = []
    for axis in index_map.out_axes:
        # Factors make one axis if each steps by as much as those inside it cover.
        extent, step = 1, 0
        for factor in reversed(axis):
            assert isinstance(factor.size, int) and isinstance(factor.start, int)
            source = 0 if factor.source is None else strides[factor.source]
            offset += factor.start * source
            # It stays where the offset puts it.
            if factor.size == 1:
                continue
            own = source * factor.step
            if own < 0:
                return None  # a flip is copied: storage never runs backwards
            if extent == 1:
                step = own
            elif own != step * extent:
                return None
            extent *= factor.size
        shape.append(extent)
        steps.append(step)
    filled = _sensible_unit_strides(shape, steps)
    found = View(view.dtype, tuple(shape), filled)
    return offset, _with_room(view, index_map, found) if view.room else found


def unmoved(view: View, index_map: IndexMap) -> View | None:
    """The operand whose `moved` view this is; None if there is none, or it has other elements too.

    The map's dims must be integers.
    """
    sizes = [size for group in index_map.in_factors for size in group]
    strides: dict[int, int] = {}
    for stride, axis in zip(view.strides, index_map.out_axes, strict=True):
        inner = stride
        for factor in reversed(axis):
            assert isinstance(factor.size, int)
            if factor.source is not None:
                if (factor.start, factor.step, factor.size) != (0, 1, sizes[factor.source]):
                    return None
                strides[factor.source] = inner
            elif factor.size != 1:
                return None
            inner *= factor.size
    shape, steps, at = [], [], 0
    for group in index_map.in_factors:
        extent, step = 1, 0
        for number in reversed(range(at, at + len(group))):
            size = sizes[number]
            assert isinstance(size, int)
            if size == 1:
                continue
            if extent == 1:
                step = strides[number]
            elif strides[number] != step * extent:
                return None
            extent *= size
        shape.append(extent)
        steps.append(step)
        at += len(group)
    return View(view.dtype, tuple(shape), _sensible_unit_strides(shape, steps))


def _with_room(view: View, index_map: IndexMap, found: View) -> View:
    """The room that is left behind the channels of a padded value, if a slice of them is taken."""
    first = len(index_map.in_factors[0])
    factors = index_map.out_axes[1] if len(index_map.out_axes) == 4 else ()
    if len(factors) != 1 or len(index_map.in_factors[1]) != 1:
        return found
    channels = factors[0]
    if channels.source != first or channels.step != 1 or found.strides[1] != 1:
        return found
    assert isinstance(channels.start, int)
    # Of the shape only the channels count there.
    within = part(view, 1, channels.start, (0, found.shape[1]))
    return found._replace(room=within.room, zeros=within.zeros)


def _sensible_unit_strides(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Axes of one element get the stride that a dense neighbour implies, so that views compare."""
    filled = list(steps)
    inner = 1
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] == 1:
            filled[i] = inner
        inner = max(inner, abs(filled[i]) * shape[i])
    return tuple(filled)
