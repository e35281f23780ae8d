"""How matrix units make products of float32."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.cuda.base import CudaCall

__all__ = ["precision_of"]


def precision_of(call: CudaCall, *operands: DType) -> str:
    """`input_precision` of `tl.dot`: TF32 where it was asked for, else float32.

    float32 is split in three TF32 products where those may round a little more. Products of narrow
    types are exact in every mode.

    Args:
        call: The call.
        operands: Element types of the products' operands, if they are known: code for narrow ones
            then is one and the same for all modes.
    """
    if operands and all(dtype in (DType.F16, DType.BF16) for dtype in operands):
        return "ieee"
    if call.target.tf32:
        return "tf32"
    return "ieee" if call.exact else "tf32x3"
