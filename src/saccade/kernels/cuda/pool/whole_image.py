"""Pooling with one window that is the whole image: a reduction, planned and compiled as such."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from saccade.kernels.base import Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel
from saccade.kernels.cuda.reduce.direct import REDUCE_DIRECT, CudaReduceConfig
from saccade.opdefs import Pool2d, Reduce

__all__ = ["POOL_WHOLE_IMAGE"]


def _reduction(call: CudaCall) -> CudaCall:
    kind = "max" if call.op.kind == "max" else "mean"
    return replace(call, op=Reduce(kind, (2, 3), True, call.op.epilogue))


def _supports(call: CudaCall) -> str | None:
    op: Pool2d = call.op
    alone = call.outputs[0].shape[2:] == (1, 1)
    if not alone or op.kernel != call.inputs[0].shape[2:] or any(op.padding):
        return "windows are not the whole image"
    return REDUCE_DIRECT.supports(_reduction(call))


def _variants(call: CudaCall) -> Iterable[Variant]:
    return REDUCE_DIRECT.variants(_reduction(call))


POOL_WHOLE_IMAGE = CudaKernel(
    "pool.whole_image", (Pool2d,), CudaReduceConfig, _supports, _variants, REDUCE_DIRECT.entry
)
