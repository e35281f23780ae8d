"""Rows of an array replaced, or combined with others, by index (ONNX's Scatter family)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.errors import InputError
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_count,
    expect_same_dtype,
    static_count,
    tensor_bytes,
    unify,
)

__all__ = ["ScatterRows"]

_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class ScatterRows(Op):
    """A copy of data with some of its rows replaced: data [N, R], indices [M], updates [M, R].

    Indices are int64; a negative one names no row. Updates are taken one after the other: of those
    with the same index, the last one stays, or all of them are combined.

    Attributes:
        reduction: "none" replaces a row; "add", "mul", "min" and "max" combine it with the update.
    """

    reduction: str = "none"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 3)
        data, indices, updates = inputs
        expect(self, self.reduction in ("none", *_COMBINE), f"reduction {self.reduction!r}")
        expect(self, len(data.shape) == 2 and len(updates.shape) == 2, "rows of two axes")
        expect(self, indices.dtype is DType.I64, f"indices are {indices.dtype.value}")
        expect(self, len(indices.shape) == 1, "indices have one axis")
        expect_same_dtype(self, (data, updates))
        unify(self, updates.shape[0], indices.shape[0], "the number of updates")
        unify(self, updates.shape[1], data.shape[1], "the length of a row")
        return (data,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        data, indices, updates = inputs
        size = len(data)
        if indices.size and indices.max() >= size:
            raise InputError(
                f"Scatter: an index lies outside of {size} rows: {indices.max()} is the largest"
            )
        result = data.copy()
        combine = _COMBINE.get(self.reduction)
        for index, update in zip(indices, updates, strict=True):
            if index < 0:
                continue
            result[index] = update if combine is None else combine(result[index], update)
        return (result,)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        flops = 0 if self.reduction == "none" else static_count(inputs[2].shape)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
