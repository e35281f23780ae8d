"""In which element type products are made."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.base import per_call
from saccade.kernels.cuda.base import CudaCall

__all__ = ["dot_precision", "precision_of", "product_dtype"]


@per_call
def product_dtype(call: CudaCall) -> DType:
    """What operands of products are rounded to: the narrower of the first operand and the result.

    A network in float16 takes float32 images and gives float32 scores; its first and last products
    are as wide as those between.
    """
    ends = call.inputs[0].dtype, call.outputs[0].dtype
    return next((kind for kind in (DType.F16, DType.BF16) if kind in ends), ends[0])


def dot_precision(call: CudaCall) -> str:
    """How `tl.dot` makes products of float32.

    TF32 where it was asked for; else float32, of three TF32 products each if that may be. Products
    of narrower operands are exact.
    """
    return precision_of(call, product_dtype(call))


def precision_of(call: CudaCall, dtype: DType) -> str:
    """The same for operands of this type."""
    if dtype is not DType.F32:
        return "ieee"
    if call.target.tf32:
        return "tf32"
    return "ieee" if call.exact else "tf32x3"
