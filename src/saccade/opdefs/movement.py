"""Operators that only move elements: index maps, Concat, Pad, gathering by indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saccade.errors import InputError
from saccade.ir.dim import Dim, add
from saccade.ir.dtype import DType
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_count,
    expect_same_dtype,
    refuse,
    static_count,
    tensor_bytes,
    text,
    unify,
)

__all__ = ["Concat", "Gather", "GatherNd", "Move", "Pad"]


@dataclass(frozen=True)
class Move(Op):
    """Elements of the only operand in other places.

    Attributes:
        map: Which element of the operand each element of the result is.
    """

    map: IndexMap

    moves: ClassVar[bool] = True
    _dim_fields = frozenset({"map"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        x = inputs[0]
        shape = self.map.in_shape
        if len(x.shape) != len(shape):
            refuse(self, f"x {text(x.shape)} is not the map's {text(shape)}")
        for have, want in zip(x.shape, shape, strict=True):
            unify(self, have, want, "a dim of x")
        sizes = [size for group in self.map.in_factors for size in group]
        named = [f.source for f in self.map.factors if f.source is not None]
        expect(self, len(set(named)) == len(named), "the map names an input factor twice")
        for position, size in enumerate(sizes):
            known = position in named or not isinstance(size, int) or size == 1
            expect(self, known, f"the map reads one of {size} elements of factor {position}")
        for factor in self.map.factors:
            self._expect_inside(factor, sizes)
        whole = sum(self.map.out_groups) == len(self.map.factors)
        expect(self, whole, "the map's output axes do not take all its factors")
        return (TensorType(x.dtype, self.map.out_shape),)

    def _expect_inside(self, factor: Factor, sizes: list[Dim]) -> None:
        if factor.source is None:
            return
        expect(self, factor.source < len(sizes), f"the map has no input factor {factor.source}")
        expect(self, factor.step != 0, "a step of the map is 0")
        size = sizes[factor.source]
        if not (isinstance(factor.size, int) and isinstance(factor.start, int)) or factor.size == 0:
            return
        ends = (factor.start, factor.start + factor.step * (factor.size - 1))
        inside = min(ends) >= 0 and (not isinstance(size, int) or max(ends) < size)
        expect(self, inside, f"the map reads {min(ends)} to {max(ends)} of {size} elements")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.array(self.view(inputs[0]), order="C"),)

    def view(self, x: Array) -> Array:
        """The result, as a view of the operand where NumPy has one."""
        sizes = [static_count((d,)) for group in self.map.in_factors for d in group]
        by_source = {f.source: f for f in self.map.factors if f.source is not None}
        at = tuple(_slice(by_source[i]) if i in by_source else 0 for i in range(len(sizes)))
        picked = x.reshape(sizes)[at]
        axis_of = {source: axis for axis, source in enumerate(sorted(by_source))}
        order = [axis_of[f.source] for f in self.map.factors if f.source is not None]
        picked = np.asarray(picked).transpose(order)
        new = [axis for axis, f in enumerate(self.map.factors) if f.source is None]
        spread = np.expand_dims(picked, new)
        full = np.broadcast_to(spread, [static_count((f.size,)) for f in self.map.factors])
        shape = [static_count((d,)) for d in self.map.out_shape]
        return full.reshape(shape)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        written = tensor_bytes(outputs)
        return Work(0, written + min(written, tensor_bytes(inputs)))


def _slice(factor: Factor) -> slice:
    start, size = static_count((factor.start,)), static_count((factor.size,))
    end = start + factor.step * size
    return slice(start, end if end >= 0 else None, factor.step) if size else slice(0, 0)


@dataclass(frozen=True)
class Concat(Op):
    """Operands (one or more, of one type) side by side.

    Attributes:
        axis: Along which, counted from 0.
    """

    axis: int

    moves: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 1, "takes an operand")
        expect_same_dtype(self, inputs)
        shape = list(inputs[0].shape)
        expect_axis(self, self.axis, len(shape))
        for operand in inputs[1:]:
            if len(operand.shape) != len(shape):
                refuse(self, f"{text(operand.shape)} beside {text(inputs[0].shape)}")
            for axis, dim in enumerate(operand.shape):
                if axis == self.axis:
                    shape[axis] = add(shape[axis], dim)
                else:
                    shape[axis] = unify(self, shape[axis], dim, f"axis {axis}")
        return (TensorType(inputs[0].dtype, tuple(shape)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.concatenate(inputs, axis=self.axis),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class Pad(Op):
    """The only operand with elements around it.

    Attributes:
        pads: For every axis, how many elements before and after; none negative.
        mode: "constant", "reflect" (the edge not repeated), "edge" or "wrap".
        value: The constant.
    """

    pads: tuple[tuple[Dim, Dim], ...]
    mode: str = "constant"
    value: float = 0.0

    moves: ClassVar[bool] = True
    _dim_fields = frozenset({"pads"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        x = inputs[0]
        expect(self, self.mode in ("constant", "reflect", "edge", "wrap"), f"mode {self.mode!r}")
        every = len(self.pads) == len(x.shape)
        expect(self, every, f"{len(self.pads)} pairs of pads for {text(x.shape)}")
        for dim, pair in zip(x.shape, self.pads, strict=True):
            known = [p for p in pair if isinstance(p, int)]
            expect(self, min(known, default=0) >= 0, f"negative pads {pair}; crop instead")
            least = {"constant": 0, "reflect": 2}.get(self.mode, 1)
            enough = not isinstance(dim, int) or dim >= least or max(known, default=0) == 0
            expect(self, enough, f"cannot {self.mode} {dim} elements")
        shape = tuple(add(add(d, a), b) for d, (a, b) in zip(x.shape, self.pads, strict=True))
        return (TensorType(x.dtype, shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        widths = [(static_count((a,)), static_count((b,))) for a, b in self.pads]
        match self.mode:
            case "reflect" | "edge" | "wrap" as mode:
                return (np.pad(x, widths, mode=mode),)
            case _:
                return (np.pad(x, widths, constant_values=x.dtype.type(self.value)),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class Gather(Op):
    """Slices of data by index: [..., axis, ...] and indices [I…] give [..., I…, ...].

    Operands: data, indices (int32 or int64; negative ones count from the end).

    Attributes:
        axis: The axis of data that indices replace, counted from 0.
    """

    axis: int = 0

    moves: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2)
        data, indices = inputs
        expect_axis(self, self.axis, len(data.shape))
        integer = indices.dtype in (DType.I32, DType.I64)
        expect(self, integer, f"indices are {indices.dtype.value}, not int32 or int64")
        shape = (*data.shape[: self.axis], *indices.shape, *data.shape[self.axis + 1 :])
        return (TensorType(data.dtype, shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        data, indices = inputs
        size = data.shape[self.axis]
        if indices.size and (indices.min() < -size or indices.max() >= size):
            raise InputError(
                f"Gather: an index lies outside axis {self.axis} of {size} elements: "
                f"they run from {indices.min()} to {indices.max()}"
            )
        return (np.take(data, indices, axis=self.axis),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes(inputs[1:]) + 2 * tensor_bytes(outputs))


@dataclass(frozen=True)
class GatherNd(Op):
    """Slices of data by tuples of indices: [B…, D1…Dk, R…] and [B…, I…, k] give [B…, I…, R…].

    Operands: data, indices (int32 or int64; negative ones count from the end).

    Attributes:
        batch: How many leading axes the two share, B….
    """

    batch: int = 0

    moves: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2)
        data, indices = inputs
        integer = indices.dtype in (DType.I32, DType.I64)
        expect(self, integer, f"indices are {indices.dtype.value}, not int32 or int64")
        apart = 0 <= self.batch < min(len(data.shape), len(indices.shape))
        shapes = f"{text(data.shape)} and {text(indices.shape)}"
        expect(self, apart, f"{self.batch} leading axes of {shapes}")
        depth = indices.shape[-1]
        expect(self, isinstance(depth, int), f"tuples of {depth} indices")
        fits = isinstance(depth, int) and 1 <= depth <= len(data.shape) - self.batch
        expect(self, fits, f"tuples of {depth} indices into {text(data.shape[self.batch :])}")
        assert isinstance(depth, int)
        shared = tuple(
            unify(self, a, b, f"axis {axis}")
            for axis, (a, b) in enumerate(
                zip(data.shape[: self.batch], indices.shape[: self.batch], strict=True)
            )
        )
        rest = data.shape[self.batch + depth :]
        return (TensorType(data.dtype, (*shared, *indices.shape[self.batch : -1], *rest)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        data, indices = inputs
        depth = indices.shape[-1]
        where: list[Array] = []
        for axis in range(self.batch):
            spread = (-1, *(1,) * (indices.ndim - 2 - axis))
            where.append(np.arange(data.shape[axis]).reshape(spread))
        for axis in range(depth):
            size, index = data.shape[self.batch + axis], indices[..., axis]
            if index.size and (index.min() < -size or index.max() >= size):
                raise InputError(
                    f"GatherND: an index lies outside axis {self.batch + axis} of {size} elements: "
                    f"they run from {index.min()} to {index.max()}"
                )
            where.append(index)
        shape = (*indices.shape[:-1], *data.shape[self.batch + depth :])
        return (data[tuple(where)].reshape(shape),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes(inputs[1:]) + 2 * tensor_bytes(outputs))
