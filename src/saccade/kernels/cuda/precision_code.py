"""Element types in Triton functions."""

import triton
import triton.language as tl


@triton.constexpr_function
def dot_type(name):
    """The type of floats that an `Entry` calls so."""
    return {"fp32": tl.float32, "fp16": tl.float16, "bf16": tl.bfloat16}[name]
