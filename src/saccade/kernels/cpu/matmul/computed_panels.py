"""Where products read a matrix that is computed at run time: where it lies, or in panels.

ProductPanels are made by a phase before, for which `operand_panels.emit_pack` writes the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from saccade.ir import DType
from saccade.kernels.base import Config, In, Launch, Operand, Temp

__all__ = ["PanelPacking", "ProductPanels", "computed_panels"]


@dataclass(frozen=True, slots=True)
class ProductPanels:
    """Where a product reads b.

    Attributes:
        operand: The matrix or its panels.
        element: Type of its elements.
        steps: Strides (b0, b1, k); k in steps of the sum.
        packed: Whether in panels.
        phases: What has to run before.
        known: Whether it is a constant.
    """

    operand: Operand
    element: DType
    steps: tuple[int, int, int]
    packed: bool
    phases: tuple[Launch, ...] = ()
    known: bool = False


@dataclass(frozen=True, slots=True)
class PanelPacking:
    """A matrix [b0, b1, inner, columns] of a call and how it is wanted.

    Attributes:
        number: Of the matrix among the call's inputs.
        stored: Type of its elements.
        strides: (b0, b1, inner, columns), in elements.
        batch: Sizes of the two batch axes.
        inner: The summed axis.
        columns: The other one.
        vectors: Of a panel.
        lanes: Of a vector.
        config: Of the phase that packs: from the vectors of a panel, what lies together in the
            matrix (`rows`, `columns` or `nothing`), whether in pairs, and the type of its elements.
        pairs: Whether in pairs of bfloat16.
        temp: Number of the buffer among the call's.
        far: Elements between rows from which on gathering them pays.
    """

    number: int
    stored: DType
    strides: tuple[int, int, int, int]
    batch: tuple[int, int]
    inner: int
    columns: int
    vectors: int
    lanes: int
    config: Callable[[int, str, bool, str], Config] = field(compare=False)
    pairs: bool = False
    temp: int = 0
    far: int = 512


def computed_panels(packing: PanelPacking, rows: int) -> ProductPanels:
    """Where a product of so many rows reads it."""
    b0, b1, bk, bn = packing.strides
    if bn == 1 and not packing.pairs and not _worth_packing(packing, rows):
        return ProductPanels(In(packing.number), packing.stored, (b0, b1, bk), False)
    inner, columns, width = packing.inner, packing.columns, packing.vectors * packing.lanes
    element = DType.BF16 if packing.pairs else DType.F32
    step = width * 4 // element.itemsize
    blocks = -(-columns // width)
    panel = (-(-inner // 2) if packing.pairs else inner) * step * blocks
    # Batches that share b (stride 0) share its panels.
    outer_batch, inner_batch = (
        n if apart else 1 for n, apart in zip(packing.batch, (b0, b1), strict=True)
    )
    together = "rows" if bn == 1 else "columns" if bk == 1 else "nothing"
    chunks = outer_batch * inner_batch * blocks
    integers = {
        "inner": inner,
        "columns": columns,
        "inner_batch": inner_batch,
        "blocks": blocks,
        "chunks": chunks,
        "b_0": b0,
        "b_1": b1,
        "b_k": bk,
        "b_n": bn,
    }
    temp = Temp(packing.temp, element.itemsize * panel * outer_batch * inner_batch)
    config = packing.config(packing.vectors, together, packing.pairs, packing.stored.value)
    phase = Launch(config, {"b": In(packing.number), "panels": temp}, integers, chunks)
    apart = (panel * inner_batch if b0 else 0, panel if b1 else 0, step)
    return ProductPanels(temp, element, apart, True, (phase,))


def _worth_packing(packing: PanelPacking, rows: int) -> bool:
    """Whether rows are so far apart, or widened so often, that gathering them first pays."""
    if packing.stored is DType.BF16:
        return rows >= 48
    return rows >= 96 and packing.strides[2] >= packing.far
