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
        unroll: Summed elements of one trip of the inner loop.
        shape: `once`, `whole` or `tail`, see `microkernel.Reduction`; in phase `pack` what lies
            together in b: `rows`, `columns` or `nothing`.
        unit: Whether the summed elements of a are neighbours in memory.
        packed: Whether b comes in panels.
        epilogue: `EpilogueSpec.code`.
    """

    phase: str
    vectors: int
    rows: int = 0
    unroll: int = 0
    shape: str = ""
    unit: bool = True
    packed: bool = True
    epilogue: tuple[str, ...] = ()
