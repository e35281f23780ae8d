"""Matrix products of any rank as products of images: [b0, b1, M, K] times [b0, b1, K, N]."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec
from saccade.kernels.cpu.conv2d.microkernel import in_pairs, steps_of, widens
from saccade.kernels.product_axes import merged_product
from saccade.opdefs import MatMul

__all__ = ["Product", "residual_aliases"]

_ROWS_OF_PAIRS = 8  # from which on it pays to pair up a computed b that could be read in place


@dataclass(frozen=True, slots=True)
class Product:
    """A call of `MatMul` over two batch axes and rows.

    Attributes:
        batch: Sizes of the two batch axes; either may be 1.
        rows: M, batch axes that share b merged into it.
        inner: K, the summed axis.
        columns: N.
        pairs: Whether elements are summed in pairs of bfloat16.
        widened: Whether rows of bfloat16 are copied as float32 first.
        a: Strides (b0, b1, m, k) of a.
        b: Strides (b0, b1, k, n) of b.
        epilogue: With the sums as images [b0, N, b1, M].
    """

    batch: tuple[int, int]
    rows: int
    inner: int
    columns: int
    pairs: bool
    widened: bool
    a: tuple[int, int, int, int]
    b: tuple[int, int, int, int]
    epilogue: EpilogueSpec

    @property
    def steps(self) -> int:
        """Multiply-adds of one sum: an element of float32 or two of bfloat16 each."""
        return steps_of(self.inner, self.pairs)

    @classmethod
    def of(cls, call: CpuCall) -> Product | None:
        """None when the batch axes do not merge into two."""
        op: MatMul = call.op
        found = merged_product(call, (op.transpose_a, op.transpose_b))
        if found is None:
            return None
        (n0, s0), (n1, s1), (rows, sm) = found.axes
        b_k, b_n = found.b
        views = [found.image(view, i) for i, view in enumerate((call.outputs[0], *call.inputs[2:]))]
        images = views[0].shape
        entries = tuple((i, v, call.constant[i]) for i, v in enumerate(views[1:], start=2))
        spec = EpilogueSpec(
            op.epilogue, None, images, entries, None, views[0], 1, call.target.lanes
        )
        # What is packed anyway is packed in pairs.
        packed = call.constant[1] or b_n != 1 or rows >= _ROWS_OF_PAIRS
        pairs = in_pairs(call, rows) and packed
        widened = found.a_k == 1 and rows > 1 and widens(call, pairs, found.columns)
        return cls(
            (n0, n1), rows, found.inner, found.columns, pairs, widened,
            (s0[0], s1[0], sm[0], found.a_k), (s0[1], s1[1], b_k, b_n), spec,
        )  # fmt: skip


def residual_aliases(call: CpuCall) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: every element is read before it is written."""
    last = len(call.inputs)
    return tuple((i, 0) for i in range(2, last) if call.inputs[i] == call.outputs[0])
