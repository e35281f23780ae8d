"""Index maps opened for surgery: factors as objects that point at each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from saccade.ir import dim as d
from saccade.ir.dim import Dim
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.reshape_maps import quotient

__all__ = ["InputFactor", "OpenMap", "OutputFactor", "close_map", "open_map", "same", "simplify"]


def same(left: Dim, right: Dim) -> bool:
    """Whether two dims are equal for all values of the symbols, as far as their products show."""
    return left == right or (
        not isinstance(left, int) and not isinstance(right, int) and quotient(left, right) == 1
    )


@dataclass(eq=False, slots=True)
class InputFactor:
    """An input factor, compared by identity while it is split and merged."""

    size: Dim


@dataclass(eq=False, slots=True)
class OutputFactor:
    """An output factor; `source` points at what it reads."""

    size: Dim
    source: InputFactor | None
    start: Dim = 0
    step: int = 1

    def is_full(self) -> bool:
        """Whether it runs over all of its input factor, forwards."""
        return (
            self.source is not None
            and self.step == 1
            and self.start == 0
            and same(self.size, self.source.size)
        )

    def is_flip(self) -> bool:
        """Whether it runs over all of its input factor, backwards."""
        return (
            self.source is not None
            and self.step == -1
            and same(self.size, self.source.size)
            and same(self.start, d.sub(self.size, 1))
        )

    def is_pin(self) -> bool:
        """Whether it reads one index of a longer input factor."""
        return self.source is not None and self.size == 1


@dataclass(slots=True)
class OpenMap:
    """An opened `IndexMap`; `pins` are the output factors of size 1, which sit on no axis."""

    in_axes: list[list[InputFactor]]
    out_axes: list[list[OutputFactor]]
    pins: list[OutputFactor] = field(default_factory=list)


def open_map(index_map: IndexMap) -> OpenMap:
    in_axes = [[InputFactor(size) for size in axis] for axis in index_map.in_factors]
    flat = [factor for axis in in_axes for factor in axis]
    out_axes = [
        [
            OutputFactor(f.size, None if f.source is None else flat[f.source], f.start, f.step)
            for f in axis
        ]
        for axis in index_map.out_axes
    ]
    return OpenMap(in_axes, out_axes)


def close_map(opened: OpenMap) -> IndexMap:
    # Positions are only known now: splitting and merging has moved them.
    place = {f: i for i, f in enumerate(f for axis in opened.in_axes for f in axis)}
    axes = [list(axis) for axis in opened.out_axes]
    if opened.pins:
        # A pin has size 1 and could sit anywhere: one place and one order make the form canonical.
        ordered = sorted(opened.pins, key=lambda pin: place[pin.source] if pin.source else -1)
        axes[0][:0] = ordered
    return IndexMap(
        tuple(tuple(f.size for f in axis) for axis in opened.in_axes),
        tuple(
            Factor(out.size, None if out.source is None else place[out.source], out.start, out.step)
            for axis in axes
            for out in axis
        ),
        tuple(map(len, axes)),
    )


def simplify(opened: OpenMap) -> None:
    """Drop what has size 1, take the pins off their axes, merge neighbours."""
    for axis in opened.out_axes:
        # Before factors of size 1 are dropped, or what pins read would be forgotten.
        opened.pins += [out for out in axis if out.is_pin()]
        axis[:] = [out for out in axis if out.size != 1]
    # A pin into a factor of 1 picks nothing.
    opened.pins = [pin for pin in opened.pins if pin.source and pin.source.size != 1]
    for pin in opened.pins:
        # The step to an index that never comes says nothing, but would make equal maps differ.
        pin.step = 1
    # A slice may take nothing of a factor of 1, which it still reads.
    read = {out.source for axis in opened.out_axes for out in axis}
    for factors in opened.in_axes:
        factors[:] = [factor for factor in factors if factor.size != 1 or factor in read]
    # One merge at a time: each invalidates the neighbours that the next one is looked up by.
    while _merge_once(opened):
        pass


def _merge_once(opened: OpenMap) -> bool:
    following = {one: (other, axis) for axis in opened.in_axes for one, other in pairwise(axis)}
    readers = {pin.source: pin for pin in opened.pins}
    for outs in opened.out_axes:
        for at, out in enumerate(outs):
            right = outs[at + 1] if at + 1 < len(outs) else None
            if out.source is None:
                # Repeats beside each other read nothing, so their order and split do not matter.
                if right is not None and right.source is None:
                    outs[at : at + 2] = [OutputFactor(d.mul(out.size, right.size), None)]
                    return True
                continue
            if out.source not in following:
                continue
            neighbour, axis = following[out.source]
            if right is not None and right.source is neighbour and _meets(out, right):
                _join(axis, out, right)
                outs.remove(right)
                return True
            pin = readers.get(neighbour)
            # A fixed index of the inner factor: the merged one is read with steps of its size,
            # and steps are plain integers.
            if pin is not None and isinstance(neighbour.size, int):
                _join(axis, out, pin)
                opened.pins.remove(pin)
                return True
    return _merge_pin(opened, following)


def _merge_pin(
    opened: OpenMap, following: dict[InputFactor, tuple[InputFactor, list[InputFactor]]]
) -> bool:
    for pin in opened.pins:
        if pin.source not in following:
            continue
        neighbour, axis = following[pin.source]
        for outs in (*opened.out_axes, opened.pins):
            for at, out in enumerate(outs):
                # One index of the outer factor: the merged one is read contiguously if the
                # inner one is read whole, or at one index too.
                if out.source is neighbour and (out.is_full() or out.is_pin()):
                    _join(axis, pin, out)
                    opened.pins.remove(pin)
                    outs[outs.index(out) if outs is opened.pins else at] = pin
                    return True
    return False


def _meets(left: OutputFactor, right: OutputFactor) -> bool:
    # Only if the inner factor is run through whole, in the same direction, are steps even.
    return (left.step == 1 and right.is_full()) or (left.step == -1 and right.is_flip())


def _join(axis: list[InputFactor], left: OutputFactor, right: OutputFactor) -> None:
    """Make `left` read the merged input factor of both."""
    assert left.source is not None
    assert right.source is not None
    inner = right.source.size
    merged = InputFactor(d.mul(left.source.size, inner))
    at = axis.index(left.source)
    axis[at : at + 2] = [merged]
    if right.size == 1 and left.size != 1:  # every inner-th element
        assert isinstance(inner, int)
        left.step *= inner
    elif left.size == 1:
        # The size comes from the right one, whose elements are consecutive in the merged factor.
        left.step = 1
    left.start = d.add(d.mul(left.start, inner), right.start)
    left.size, left.source = d.mul(left.size, right.size), merged
