"""Recipes of movements: elements in other places, valid, and often strange."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from random_graphs import FLOATS, KINDS, Drawing, Nothing

__all__ = ["MOVEMENTS"]


def transposes(d: Drawing) -> None:
    x = d.pick()
    rank = d.values[x].ndim
    order = list(d.draw(st.permutations(range(rank)))) if d.flag() else []
    d.emit("Transpose", [x], exact=True, **({"perm": order} if order else {}))


def reshapes(d: Drawing) -> None:
    x = d.pick()
    shape, size = d.values[x].shape, d.values[x].size
    way = d.integer(0, 4)
    if way == 0:
        target, more = [-1], {}
    elif way == 1:  # 0 keeps, -1 finds
        target, more = [0] * min(1, len(shape)) + [-1], {}
    elif way == 2:
        target, more = [size, 1], {"allowzero": 1} if d.opset >= 14 else {}
    elif way == 3:
        like = d.pick(KINDS, lambda a: a.size == size)
        (found,) = d.emit("Shape", [like], exact=True)
        d.emit("Reshape", [x, found], exact=True)
        return
    else:
        d.emit("Flatten", [x], exact=True, axis=d.integer(-len(shape), len(shape)))
        return
    d.emit("Reshape", [x, d.integers(*target)], exact=True, **more)


def squeezes(d: Drawing) -> None:
    if d.flag():
        x = d.pick()
        count = d.integer(0, 2)
        rank = d.values[x].ndim + count
        axes = d.axes(rank)[:count]
        if len(axes) != count:
            raise Nothing
        d.emit("Unsqueeze", [x, d.integers(*axes)], exact=True)
        return
    x = d.pick()
    ones = [i for i, n in enumerate(d.values[x].shape) if n == 1]
    axes = [i for i in ones if d.flag()]
    d.emit("Squeeze", [x, d.integers(*axes)] if axes else [x], exact=True)


def expansions(d: Drawing) -> None:
    x = d.pick()
    shape = [d.integer(0, 3) if n == 1 else d.one_of((n, 1)) for n in d.values[x].shape]
    shape = [d.integer(0, 2) for _ in range(d.integer(0, 1))] + shape
    d.emit("Expand", [x, d.integers(*shape)], exact=True)


def tiles(d: Drawing) -> None:
    x = d.pick()
    d.emit("Tile", [x, d.integers(*(d.integer(0, 2) for _ in d.values[x].shape))], exact=True)


def slices(d: Drawing) -> None:
    x = d.pick()
    axes = d.axes(d.values[x].ndim)
    bound = (-(2**31), -7, -3, -2, -1, 0, 1, 2, 3, 9, 2**31 - 1, 2**63 - 1)
    starts, ends = ([d.one_of(bound) for _ in axes] for _ in range(2))
    step = [d.one_of((1, 1, 2, -1, -2, 7)) for _ in axes]
    operands = [d.integers(*starts), d.integers(*ends), d.integers(*axes), d.integers(*step)]
    d.emit("Slice", [x, *operands], exact=True)


def concatenations(d: Drawing) -> None:
    x = d.pick()
    a = d.values[x]
    axis = d.axis(a.ndim)
    same = [n for i, n in enumerate(a.shape) if i != axis % a.ndim]

    def fits(b: np.ndarray) -> bool:
        return b.ndim == a.ndim and [n for i, n in enumerate(b.shape) if i != axis % a.ndim] == same

    parts = [d.pick((a.dtype.name,), fits) for _ in range(d.integer(1, 3))]
    d.emit("Concat", parts, exact=True, axis=axis)


def splits(d: Drawing) -> None:
    x = d.pick()
    axis = d.axis(d.values[x].ndim)
    size = d.values[x].shape[axis]
    first = d.integer(0, size)
    d.emit("Split", [x, d.integers(first, size - first)], outputs=2, exact=True, axis=axis)


def pads(d: Drawing) -> None:
    x = d.pick((*FLOATS, "int64", "int32", "uint8", "int8"))
    a = d.values[x]
    mode = d.one_of(("constant", "constant", "edge", "reflect"))
    if mode != "constant" and 0 in a.shape:
        raise Nothing
    amounts = [
        d.integer(-1, 3) if mode == "constant" else d.integer(0, 2) for _ in range(2 * a.ndim)
    ]
    if mode == "reflect" and any(
        max(amounts[i], amounts[i + a.ndim]) >= n for i, n in enumerate(a.shape)
    ):
        raise Nothing
    if any(amounts[i] + amounts[i + a.ndim] + n < 0 or n == 0 for i, n in enumerate(a.shape)):
        raise Nothing
    if any(n < 2 for n in a.shape) and min(amounts, default=0) < 0:
        raise Nothing
    value = [d.constant(d.array(a.dtype.name, ()))] if mode == "constant" and d.flag() else []
    d.emit("Pad", [x, d.integers(*amounts), *value], exact=True, mode=mode)


def gathers(d: Drawing) -> None:
    x = d.pick()
    axis = d.axis(d.values[x].ndim)
    size = d.values[x].shape[axis]
    if size == 0:
        raise Nothing
    shape = d.shape(0, 2)
    seed = np.random.default_rng(d.integer(0, 999))
    indices = seed.integers(-size, size, shape).astype(d.one_of(("int64", "int32")))
    d.emit("Gather", [x, d.constant(np.asarray(indices))], exact=True, axis=axis)


def gathers_of_elements(d: Drawing) -> None:
    x = d.pick()
    a = d.values[x]
    axis = d.axis(a.ndim)
    if a.shape[axis] == 0:
        raise Nothing
    shape = [
        d.integer(0, 3) if i == axis % a.ndim else d.integer(min(n, 1), n)
        for i, n in enumerate(a.shape)
    ]
    seed = np.random.default_rng(d.integer(0, 999))
    indices = seed.integers(0, a.shape[axis], shape)
    d.emit("GatherElements", [x, d.constant(np.asarray(indices))], exact=True, axis=axis)


def triangles(d: Drawing) -> None:
    if d.opset < 14:
        raise Nothing
    x = d.pick(KINDS, lambda a: a.ndim >= 2)
    k = [d.constant(np.array(d.integer(-4, 4)))] if d.flag() else []
    d.emit("Trilu", [x, *k], exact=True, upper=int(d.flag()))


def blocks(d: Drawing) -> None:
    x = d.constant(d.array("float32", (d.integer(0, 2), 4, 2, 4)))
    if d.flag():
        d.emit("DepthToSpace", [x], exact=True, blocksize=2, mode=d.one_of(("DCR", "CRD")))
    else:
        d.emit("SpaceToDepth", [x], exact=True, blocksize=2)


MOVEMENTS: tuple[Callable[[Drawing], None], ...] = (
    transposes, reshapes, squeezes, expansions, tiles, slices, concatenations, splits, pads,
    gathers, gathers_of_elements, triangles, blocks,
)  # fmt: skip
