"""Elementary functions in float32, as Triton functions that generated text calls."""

import triton
import triton.language as tl


@triton.jit
def relu(x):
    """NaN stays NaN."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    small = x * (1.0 + x * x * (-0.33333333 + x * x * 0.13333333))
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.05, small, tl.where(x < 0, -large, large))
