"""What follows from the sizes of a model's inputs alone: a constant once these are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from saccade.ir import Array, BodyOp, Dim, DType, Op, TensorType, Turn, Work, storage
from saccade.ir.dim import evaluate
from saccade.ir.serialize import encode_op
from saccade.locks import cached_property
from saccade.opdefs._rules import expect, expect_count, tensor_bytes
from saccade.opdefs.movement import Move

__all__ = ["Indices", "SizeConstant"]


class _Turn(NamedTuple):
    """How a node of the body is computed.

    Attributes:
        op: Its operator.
        is_open: Whether that has to be bound.
        inputs: Numbers of its operands.
        output: Number of its result.
        dtype: Of the result.
        gone: Values that nobody reads after it.
    """

    op: Op
    is_open: bool
    inputs: tuple[int, ...]
    output: int
    dtype: DType
    gone: tuple[int, ...]


@dataclass(frozen=True)
class Indices(Op):
    """0, 1, 2 and so on, int64 [extent], made of no operand: only where no kernel has to make it.

    Attributes:
        extent: How many there are.
    """

    extent: Dim

    _dim_fields = frozenset({"extent"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 0)
        return (TensorType(DType.I64, (self.extent,)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        assert isinstance(self.extent, int), "bound"
        return (np.arange(self.extent, dtype=np.int64),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes(outputs))


@dataclass(frozen=True)
class SizeConstant(BodyOp):
    """A small graph over sizes: anchors of a detector, positions, masks of windows.

    Operands: constants. Its only body takes nothing and gives the results. Plans hold what it gives
    for their sizes as a constant (`kernels.size_constant`), and no step of theirs computes it.

    Attributes:
        sizes: Of the body's symbols, by name, once they are known.
    """

    sizes: tuple[tuple[str, int], ...] | None = None

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of those whose sizes `bind` needs."""
        return super().symbols

    @cached_property
    def text(self) -> str:
        """The operator without its sizes, from which it is made again."""
        return json.dumps(encode_op(replace(self, sizes=None)), separators=(",", ":"))

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        (body,) = self.bodies
        expect_count(self, inputs, self.constants, self.constants)
        expect(self, not body.takes, "its body takes operands")
        if self.sizes is None:
            return body.gives
        known = dict(self.sizes)
        return tuple(
            TensorType(kind.dtype, tuple(evaluate(dim, known) for dim in kind.shape))
            for kind in body.gives
        )

    def bind(self, sizes: Mapping[str, int]) -> Self:
        """See the base class; the body is bound when it is computed."""
        if self.sizes is not None:
            return self
        bound = replace(self, sizes=tuple((name, sizes[name]) for name in sorted(self.symbols)))
        # The same body, of which each new size would ask anew.
        bound.__dict__.update(symbols=self.symbols, text=self.text, _turns=self._turns)
        return bound

    @cached_property
    def _turns(self) -> tuple[_Turn, ...]:
        """What computing the body comes to, node by node."""
        (body,) = self.bodies
        last = {i: at for at, node in enumerate(body.nodes) for i in node.inputs}
        return tuple(
            _Turn(
                node.op,
                bool(node.op.symbols),
                node.inputs,
                node.outputs[0],
                body.types[node.outputs[0]].dtype,
                tuple({i for i in node.inputs if last[i] == at}.difference(body.outputs)),
            )
            for at, node in enumerate(body.nodes)
        )

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (body,) = self.bodies
        sizes = dict(self.sizes or ())
        arrays = {body.inputs + i: inputs[at] for i, at in enumerate(body.constants)}
        with np.errstate(all="ignore"):  # what the file says, infinities included
            for op, is_open, ins, out, dtype, gone in self._turns:
                bound = op.bind(sizes) if is_open else op
                operands = [arrays[i] for i in ins]
                if isinstance(bound, Move):  # who reads it copies it, if anybody
                    result = bound.view(*operands)
                else:
                    (result,) = storage.reference(bound, operands)
                arrays[out] = np.asarray(result, dtype.numpy)
                # The next ones get its memory, which is mapped already.
                for i in gone:
                    del arrays[i]
        return tuple(arrays[i] for i in body.outputs)

    def play(self, turns: Sequence[Turn], operands: Sequence[Array]) -> list[Array]:
        """See the base class."""
        (turn,) = turns
        return list(turn(operands))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        """Nothing but the bytes: it is computed once for all runs."""
        return Work(0, tensor_bytes((*inputs, *outputs)))
