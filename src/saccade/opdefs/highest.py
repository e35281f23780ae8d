"""What a value never exceeds, by what makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from saccade.ir.body import Body
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, expect_count
from saccade.opdefs.intervals import any_of, interval_through, of_array, telling

__all__ = ["Highest"]

_LARGEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Highest(Op):
    """The largest whole number that an element of a graph's output could be, whatever the data are.

    Operands: the graph's first inputs, or their least and largest elements. Result: int64 [1], no
    less than 0, and the largest number there is where nothing tells. Of the other inputs nothing is
    known but their types. The graph is never run: its operators say between which numbers their
    results lie.

    Attributes:
        body: The graph, whose values have no shapes to speak of.
        known: How many of its inputs are operands.
    """

    body: Body
    known: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, self.known)
        one = len(self.body.outputs) == 1 and self.known <= self.body.inputs
        expect(self, one, f"{self.body} with {self.body.inputs} inputs")
        return (TensorType(DType.I64, (1,)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        body = self.body
        found = [any_of(kind.dtype) for kind in body.types]
        found[: self.known] = map(of_array, inputs)
        for node in body.nodes:
            operands = [body.types[i] for i in node.inputs]
            for place, i in enumerate(node.outputs):
                parts = [found[node.inputs[j]] for j in telling(node.op, operands, place)]
                found[i] = interval_through(node.op, operands, body.types[i].dtype, parts)
        most = found[body.outputs[0]][1]
        return (np.asarray([max(floor(most), 0) if most < _LARGEST else _LARGEST], np.int64),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, 0)
