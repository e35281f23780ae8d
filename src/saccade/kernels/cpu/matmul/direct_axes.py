"""Matrix products of any rank as products of images: [b0, b1, M, K] times [b0, b1, K, N]."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.base import View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec, expand
from saccade.kernels.cpu.conv2d.microkernel import in_pairs, steps_of
from saccade.opdefs import MatMul

__all__ = ["Product"]

Axis = tuple[int, tuple[int, ...]]

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
        a_m, a_k = _matrix(a, op.transpose_a)
        b_k, b_n = _matrix(b, op.transpose_b)
        inner = a.shape[-2 if op.transpose_a else -1]
        wide = [expand(view, shape).strides for view in operands]
        steps = [(*_batch(a, shape), a_m), (*_batch(b, shape), 0), out.strides[:-1]]
        steps += [strides[:-1] for strides in wide]
        axes = _merge([(n, tuple(s[i] for s in steps)) for i, n in enumerate(shape[:-1])])
        if axes is None:
            return None
        (n0, s0), (n1, s1), (rows, sm) = axes
        images = (n0, shape[-1], n1, rows)
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
        return cls(
            (n0, n1), rows, inner, shape[-1],
            in_pairs(call) and (call.constant[1] or b_n != 1 or rows >= _ROWS_OF_PAIRS),
            (s0[0], s1[0], sm[0], a_k), (s0[1], s1[1], b_k, b_n), spec,
        )  # fmt: skip


def _matrix(view: View, transposed: bool) -> tuple[int, int]:
    first, second = view.strides[-2:]
    return (second, first) if transposed else (first, second)


def _batch(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the batch axes, broadcast to those of `shape`."""
    batch = View(view.dtype, view.shape[:-2], view.strides[:-2])
    return expand(batch, shape[:-2]).strides


def _merge(axes: list[Axis]) -> tuple[Axis, Axis, Axis] | None:
    """Batch axes and rows (last) with neighbours that step evenly in every operand made one."""
    merged = [axes[-1]]
    for size, steps in reversed(axes[:-1]):
        inner, inner_steps = merged[0]
        if size == 1:
            continue
        if all(s == inner * t for s, t in zip(steps, inner_steps, strict=True)):
            merged[0] = (size * inner, inner_steps)
        elif len(merged) == 1 and inner == 1 and steps[1] == 0:
            merged[0] = (size, steps)  # one row: the axis takes the place of the rows
        else:
            merged.insert(0, (size, steps))
    none = (1, (0,) * len(axes[-1][1]))
    merged = [none] * (3 - len(merged)) + merged
    return (merged[0], merged[1], merged[2]) if len(merged) == 3 else None
