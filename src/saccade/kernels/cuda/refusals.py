"""Why kernels refuse calls, where several of them do for the same reason."""

from __future__ import annotations

from collections.abc import Iterable

from saccade.ir import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.kernels.base import View
from saccade.kernels.cuda.base import FLOATS, CudaCall

__all__ = [
    "refuse_epilogue",
    "refuse_extents",
    "refuse_gaps",
    "refuse_narrow",
    "refuse_places",
    "refuse_repeats",
]

_OFFSETS = 1 << 31  # elements that offsets of 32 bits reach


def refuse_extents(call: CudaCall) -> str | None:
    """Operands and results whose elements lie too far apart."""
    if any(view.extent >= _OFFSETS for view in (*call.inputs, *call.outputs)):
        return "2^31 elements or more"
    return None


def refuse_gaps(views: Iterable[View]) -> str | None:
    """Views whose elements do not follow each other in the order of their indices."""
    return None if all(view.row_major for view in views) else "not row-major, or with gaps"


def refuse_repeats(view: View) -> str | None:
    """A result some of whose elements share memory."""
    if view.size and any(
        step == 0 and n > 1 for n, step in zip(view.shape, view.strides, strict=True)
    ):
        return "a result that repeats elements"
    return None


def refuse_narrow(views: Iterable[View]) -> str | None:
    """Elements of at most 8 bits that NumPy does not have: none is converted on GPUs."""
    return next((f"elements of type {v.dtype.value}" for v in views if v.dtype.is_narrow), None)


def refuse_places(call: CudaCall) -> str | None:
    """Both of these."""
    return refuse_extents(call) or refuse_repeats(call.outputs[0])


def refuse_epilogue(call: CudaCall, expr: Expr) -> str | None:
    """Epilogues are computed in float32."""
    dtype = call.outputs[0].dtype
    if expr != IDENTITY and (dtype not in FLOATS or DType.F64 in {v.dtype for v in call.inputs}):
        return f"an epilogue of {dtype.value}"
    return None
