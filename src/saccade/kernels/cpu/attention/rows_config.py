"""What the code of attention by rows depends on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AttentionRowsConfig"]


@dataclass(frozen=True, slots=True)
class AttentionRowsConfig:
    """The config of one phase of `attention.rows`.

    Attributes:
        phase: `attend`, or `pack` (k or v into panels of whole vectors).
        vectors: Of keys, of a tile of scores; in phase `pack` of a panel.
        rows: Of a tile of scores.
        last_vectors: The same of the last block of keys, which may have fewer.
        last_rows: The same.
        shape: How a head's channels are summed, see `microkernel.Reduction`; in phase `pack` what
            lies together in the matrix: `rows`, `columns` or `nothing`.
        unroll: The same.
        value_vectors: Of channels of v, of a tile of results.
        value_rows: Of a tile of results.
        unit: Whether the channels of q are neighbours in memory.
        keys_packed: Whether k comes in panels.
        values_packed: Whether v comes in panels.
        part: Keys that a row's scores are computed for at once, whole panels of them; 0 for all.
        mask: How keys lie in the mask, `unit` or `zero`; empty without one.
        scale: Of the scores.
        hidden: `Attention.hidden`.
        epilogue: `EpilogueSpec.code`.
    """

    phase: str
    vectors: int
    rows: int = 0
    last_vectors: int = 0
    last_rows: int = 0
    shape: str = ""
    unroll: int = 0
    value_vectors: int = 0
    value_rows: int = 0
    unit: bool = True
    keys_packed: bool = True
    values_packed: bool = False
    part: int = 0
    mask: str = ""
    scale: float = 1.0
    hidden: bool = False
    epilogue: tuple[str, ...] = ()
