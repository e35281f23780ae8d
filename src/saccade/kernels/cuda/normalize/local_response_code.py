"""Local response normalisation: blocks of pixels times channels, and their neighbours."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import place


@triton.jit
def squared(x, at, channel, t, c, c_step, mask):
    """Squares of the elements t channels on."""
    there = channel + t
    inside = mask & ((there >= 0) & (there < c))[None, :]
    value = tl.load(x + at + t * c_step, mask=inside, other=0).to(tl.float32)
    return value * value


@triton.jit
def local_response(
    x, y, extra,
    rows, c, k1, k2, x_k0, x_k1, x_k2, x_c, y_k0, y_k1, y_k2, y_c, size, alpha, beta, bias,
    SIZE: tl.constexpr, ROOTS: tl.constexpr, KEPT: tl.constexpr, X_UNIT: tl.constexpr,
    Y_UNIT: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """SIZE unrolls the sum, 0 leaves it to `size`; ROOTS: beta is 0.75.

    `alpha`, `beta`, `bias` are the bits of float32 numbers.
    """
    blocks = tl.cdiv(c, BC)
    row = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    mask = (row < rows)[:, None] & (channel < c)[None, :]
    step = 1 if X_UNIT == "channels" else x_c
    at = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=X_UNIT == "pixels")[:, None]
    at = at + (channel * step)[None, :]
    total = tl.zeros((BM, BC), tl.float32)
    if SIZE > 0:
        for t in tl.static_range(SIZE):
            total += squared(x, at, channel, t - (SIZE - 1) // 2, c, step, mask)
    else:
        for t in range(0, size):
            total += squared(x, at, channel, t - (size - 1) // 2, c, step, mask)
    value = tl.load(x + at, mask=mask, other=0).to(tl.float32)
    base = bias.to(tl.float32, bitcast=True) + alpha.to(tl.float32, bitcast=True) * total
    if ROOTS:
        root = tl.sqrt_rn(base)
        power = root * tl.sqrt_rn(root)
    else:
        power = tl.exp2(beta.to(tl.float32, bitcast=True) * tl.log2(base))
    to = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT == "pixels")[:, None]
    to = to + (channel if Y_UNIT == "channels" else channel * y_c)[None, :]
    tl.store(y + to, (value / power).to(y.dtype.element_ty), mask=mask)
