"""Matrix products of any rank as products of images: [b0, b1, M, K] times [b0, b1, K, N]."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.base import View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec
from saccade.kernels.cpu.conv2d.microkernel import in_pairs, steps_of
from saccade.kernels.product_axes import batch_strides, matrix_strides, merged_axes
from saccade.opdefs import MatMul

__all__ = ["Product"]

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
        a: Strides (b0, b1, m, k) of a.
        b: Strides (b0, b1, k, n) of b.
        epilogue: With the sums as images [b0, N, b1, M].
    """

    batch: tuple[int, int]
    rows: int
    inner: int
    columns: int
    pairs: bool
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
        a, b, *operands = call.inputs
        out = call.outputs[0]
        shape = out.shape
        a_m, a_k = matrix_strides(a, op.transpose_a)
        b_k, b_n = matrix_strides(b, op.transpose_b)
        inner = a.shape[-2 if op.transpose_a else -1]
        wide = [view.broadcast_to(shape).strides for view in operands]
        # Rows of the result are not b's: 0 lets batch axes that share b merge into the rows.
        steps = [(*batch_strides(a, shape), a_m), (*batch_strides(b, shape), 0), out.strides[:-1]]
        steps += [strides[:-1] for strides in wide]
        axes = merged_axes([(n, tuple(s[i] for s in steps)) for i, n in enumerate(shape[:-1])])
        if axes is None:
            return None
        (n0, s0), (n1, s1), (rows, sm) = axes
        images = (n0, shape[-1], n1, rows)
        # In `steps` a and b come first.
        views = [
            View(view.dtype, images, (s0[i], view_n, s1[i], sm[i]))
            for i, (view, view_n) in enumerate(
                zip((out, *operands), (out.strides[-1], *(s[-1] for s in wide)), strict=True),
                start=2,
            )
        ]
        entries = tuple((i, v, call.constant[i]) for i, v in enumerate(views[1:], start=2))
        spec = EpilogueSpec(
            op.epilogue, None, images, entries, None, views[0], 1, call.target.lanes
        )
        # What is packed anyway is packed in pairs.
        return cls(
            (n0, n1), rows, inner, shape[-1],
            in_pairs(call) and (call.constant[1] or b_n != 1 or rows >= _ROWS_OF_PAIRS),
            (s0[0], s1[0], sm[0], a_k), (s0[1], s1[1], b_k, b_n), spec,
        )  # fmt: skip
