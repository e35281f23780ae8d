"""Configs of matrix products."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MatMulConfig"]


@dataclass(frozen=True, slots=True)
class MatMulConfig:
    """What the code of one phase of `matmul.direct` depends on.

    Attributes:
        phase: `product`, or `pack` (b into panels of whole vectors).
        vectors: Vectors of columns of a tile.
        rows: Rows of a tile.
        unroll: Steps of one trip of the inner loop.
        shape: `once`, `whole` or `tail`, see `microkernel.Reduction`; in phase `pack` what lies
            together in b: `rows`, `columns` or `nothing`.
        pairs: Whether elements are summed in pairs of bfloat16, which b's panels hold.
        odd: Whether one element is left after the pairs.
        a: Type of a's elements.
        b: Type of b's elements as the phase reads them.
        unit: Whether the summed elements of a are neighbours in memory.
        copied: Whether products read a copy of the chunk's rows as float32.
        packed: Whether b comes in panels.
        epilogue: `EpilogueSpec.code`.
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
