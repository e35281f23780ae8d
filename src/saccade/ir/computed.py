"""Sizes that follow from those of the inputs by arithmetic that dims do not have.

A file that scales its images so that the shorter edge is 800 divides, multiplies and rounds
floating-point numbers made of their sizes. Once the sizes of the inputs are known so is the result,
long before anything is planned: a symbol of its own, with a small graph that gives its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from saccade.errors import PlanError
from saccade.ir.body import Body, embed
from saccade.ir.dim import Dim, evaluate, symbols_of
from saccade.ir.dtype import DType
from saccade.ir.graph import Graph
from saccade.ir.op import Array

__all__ = ["ComputedSize", "KnownArray", "computed_size"]


@dataclass(frozen=True, slots=True)
class KnownArray:
    """A short array as plain data.

    Attributes:
        dtype: Of its elements.
        shape: Of it.
        elements: All of them, row by row.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[int | float, ...]

    def array(self) -> Array:
        """The array."""
        return np.array(self.elements, DType(self.dtype).numpy).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class ComputedSize:
    """A symbol and what computes it.

    Attributes:
        symbol: Its name.
        body: Its output holds the size; its inputs are sizes, int64 [1].
        place: Which element of the output it is.
        known: The constants of the body.
        sizes: The inputs of the body.
    """

    symbol: str
    body: Body
    place: int
    known: tuple[KnownArray, ...]
    sizes: tuple[Dim, ...] = ()

    @property
    def symbols(self) -> frozenset[str]:
        """Those that have to be known."""
        return self.body.symbols.union(*map(symbols_of, self.sizes))

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size, for sizes of the symbols that came before it.

        Raises:
            PlanError: If it would be less than 0, as no size is.
        """
        inputs = [np.asarray([evaluate(size, sizes)], np.int64) for size in self.sizes]
        (result,) = self.body.bind(sizes).run([one.array() for one in self.known], inputs)
        value = int(result.ravel()[self.place])
        if value < 0:
            raise PlanError(
                f"{self.symbol}, which is computed from the sizes of the inputs, would be {value}"
            )
        return value


def computed_size(
    symbol: str, graph: Graph, place: int, sizes: tuple[Dim, ...] = ()
) -> ComputedSize:
    """What an element of a graph's only output is; its inputs are sizes, its constants short."""
    numbers = {value.name: number for number, value in enumerate(graph.constants)}
    known = tuple(
        KnownArray(value.dtype.value, array.shape, tuple(array.ravel().tolist()))
        for value, array in graph.constants.items()
    )
    return ComputedSize(symbol, embed(graph, numbers), place, known, sizes)
