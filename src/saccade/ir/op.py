"""What every operator of the small IR says of itself."""

from __future__ import annotations

import dataclasses
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from saccade.ir.dim import Affine, Dim, evaluate, symbols_of
from saccade.ir.dtype import DType
from saccade.ir.index_map import Factor, IndexMap

__all__ = ["Array", "Op", "TensorType", "Work"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and logical shape; what shape rules take and give."""

    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator costs at least.

    Attributes:
        flops: Arithmetic operations (a fused multiply-add counts two), valid taps only.
        bytes: Every operand read once and every result written once.
    """

    flops: int
    bytes: int


class _OpType(ABCMeta):
    # Nothing is registered as an operator that inherits from none, which ABCMeta would look for.
    __instancecheck__ = type.__instancecheck__


@dataclass(frozen=True)
class Op(metaclass=_OpType):
    """Meaning of one operator: a frozen value that compares by its attributes.

    Attributes:
        contracts: Whether its work is sums of products, which there are wider instructions for in
            narrow element types.
        moves: Whether it hands on elements of its operands as they are: in its results (with
            padding), or to graphs inside of it.
        bitwise: Whether it sees how elements are stored, and not what they stand for.
    """

    contracts: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    bitwise: ClassVar[bool] = False

    @property
    def family(self) -> str:
        """Name of the operator family."""
        return type(self).__name__

    @property
    def title(self) -> str:
        """What plans call it."""
        return self.family

    @property
    def host(self) -> str:
        """What computes it where no kernel does."""
        return "reference"

    @property
    def excuses(self) -> tuple[str, ...]:
        """Why no kernel is even asked to compute it, for people."""
        return ()

    @property
    def pure(self) -> bool:
        """Whether its results follow from its operands, wherever and whenever they are computed."""
        return True

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Types of the results.

        Raises:
            ModelError: If the operands do not fit the operator.
        """

    @abstractmethod
    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The results, plainly computed with NumPy in the dtype of the operands.

        Sums over float16 are kept in float32. Attributes must be bound.
        """

    @abstractmethod
    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        """Cost for static types."""

    def bind(self, sizes: Mapping[str, int]) -> Self:
        """The same operator with every dim among its attributes evaluated."""
        changed = {name: _bind(getattr(self, name), sizes) for name in self._dim_fields}
        # `replace` makes a new object, and most operators hold no dims.
        return dataclasses.replace(self, **changed) if changed else self

    @property
    def symbols(self) -> frozenset[str]:
        """Names of those whose sizes `bind` needs."""
        return frozenset().union(*map(symbols_of, self.dims))

    @property
    def dims(self) -> list[Dim]:
        """The dims among its attributes that depend on sizes."""
        return [dim for name in self._dim_fields for dim in _dims(getattr(self, name))]

    _dim_fields = frozenset[str]()
    """Names of the attributes that hold dims."""


def _bind(value: Any, sizes: Mapping[str, int]) -> Any:  # noqa: ANN401 - walks attribute trees
    if isinstance(value, Affine):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_bind(v, sizes) for v in value)
    # Named one by one: other records, such as expressions, hold no dims and are not walked.
    if isinstance(value, Factor):
        return Factor(_bind(value.size, sizes), value.source, _bind(value.start, sizes), value.step)
    if isinstance(value, IndexMap):
        ins, outs = _bind(value.in_factors, sizes), _bind(value.factors, sizes)
        return IndexMap(ins, outs, value.out_groups)
    return value


def _dims(value: Any) -> Iterator[Dim]:  # noqa: ANN401 - as `_bind`
    if isinstance(value, Affine):
        yield value
    if isinstance(value, (Factor, IndexMap)):
        value = tuple(getattr(value, f.name) for f in dataclasses.fields(value))
    if isinstance(value, tuple):
        for one in value:
            yield from _dims(one)
