"""Configs of matrix products."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MatMulConfig"]


@dataclass(frozen=True, slots=True)
class MatMulConfig:
    """What the code of one phase of a product depends on.

    Attributes:
        phase: `product`, `tiles` (of `matmul.amx`), or `pack` (b into panels of whole vectors).
        vectors: Vectors of columns of a tile; tiles of matrices along the columns.
        rows: Rows of a tile; tiles of matrices along the rows.
        unroll: Steps of one trip of the inner loop.
        shape: `once`, `whole` or `tail`, see `microkernel.Reduction`; in phase `pack` what lies
            together in b: `rows`, `columns` or `nothing`; in `tiles` whether products are left of
            the last whole one: `tail` or `whole`.
        pairs: Whether elements are summed in pairs of bfloat16, which b's panels hold.
        odd: Whether one element is left after the pairs.
        a: Type of a's elements.
        b: Type of b's elements as the phase reads them.
        unit: Whether the summed elements of a are neighbours in memory.
        copied: Whether products read a copy of the chunk's rows: as float32, or filled up to tiles.
        packed: Whether b comes in panels.
        epilogue: `EpilogueSpec.code`.
        early: Whether b is asked for before it is read (`microkernel.asks_early`).
    """

    phase: str
    vectors: int
    rows: int = 0
    unroll: int = 0
    shape: str = ""
    pairs: bool = False
    odd: bool = False
    a: str = "float32"
    b: str = "float32"
    unit: bool = True
    copied: bool = False
    packed: bool = True
    epilogue: tuple[str, ...] = ()
    early: bool = False
