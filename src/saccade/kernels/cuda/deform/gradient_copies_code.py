"""Orders of axes and sums in a fixed order around the gradients of deformable convolution."""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_samples_code import load_wide


@triton.jit
def last(
    x, y, extra, first_image, channels, h, wd, x_n, x_c, x_h, x_w,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Some images [N, C, H, W] of any strides as [N, H, W, C]."""
    tiles, blocks = tl.cdiv(h * wd, BP), tl.cdiv(channels, BC)
    pid = tl.program_id(0)
    pixel = pid % tiles * BP + tl.arange(0, BP)
    channel = pid // tiles % blocks * BC + tl.arange(0, BC)
    image = pid // (tiles * blocks)
    there = (pixel < h * wd)[None, :] & (channel < channels)[:, None]
    places = (first_image + image) * x_n + pixel // wd * x_h + pixel % wd * x_w
    value = tl.load(x + channel[:, None] * x_c + places[None, :], mask=there, other=0)
    at = (image * h * wd + pixel)[:, None] * channels + channel[None, :]
    there = (pixel < h * wd)[:, None] & (channel < channels)[None, :]
    tl.store(y + at, tl.trans(value), mask=there)


@triton.jit
def upper(value):
    """What TF32 keeps of finite float32; all of others."""
    bits = value.to(tl.int32, bitcast=True)
    kept = (bits & -8192).to(tl.float32, bitcast=True)
    return tl.where((value - value) == 0, kept, value)


@triton.jit
def prepare(
    w, packed, counts, extra, cleared, packing, outputs, c, columns, w_k, w_c, w_r, w_s,
    SPLIT: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Weights as [taps, outputs, channels of a group], `packing` programs of it; then zeros.

    A program has the taps of some channels of one output. SPLIT: what TF32 keeps of each, and
    behind all of these what it does not.
    """
    pid = tl.program_id(0)
    if pid < packing:
        blocks = tl.cdiv(c, BLOCK)
        out = pid // blocks
        channel = pid % blocks * BLOCK + tl.arange(0, BLOCK)
        tap = tl.arange(0, BT)
        places = (tap // columns * w_r + tap % columns * w_s)[None, :] + channel[:, None] * w_c
        there = (channel < c)[:, None] & (tap < TAPS)[None, :]
        value = tl.trans(tl.load(w + out * w_k + places, mask=there, other=0))
        at = (tap * outputs + out)[:, None] * c + channel[None, :]
        there = (tap < TAPS)[:, None] & (channel < c)[None, :]
        if SPLIT:
            high = upper(value)
            tl.store(packed + at, high, mask=there)
            tl.store(packed + TAPS * outputs * c + at, value - high, mask=there)
        else:
            tl.store(packed + at, value, mask=there)
    else:
        bucket = (pid - packing) * 1024 + tl.arange(0, 1024)
        tl.store(counts + bucket, tl.zeros((1024,), tl.int32), mask=bucket < cleared)


@triton.jit
def add(
    parts, y, extra, splits, number, outputs, c, columns, y_k, y_c, y_r, y_s, BLOCK: tl.constexpr
):
    """Sum of parts [splits, taps, outputs, channels], first to last, in the weights' order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < number
    total = tl.load(parts + at, mask=there, other=0)
    for split in range(1, splits):
        total += tl.load(parts + split * number + at, mask=there, other=0)
    channel = at % c
    out = at // c % outputs
    tap = at // (c * outputs)
    places = out * y_k + channel * y_c + tap // columns * y_r + tap % columns * y_s
    tl.store(y + places, total.to(y.dtype.element_ty), mask=there)


@triton.jit
def bias(
    grad, parts, extra, pixels, g_image, p, q, outputs, splits, again, g_n, g_p, g_q,
    DOUBLE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sums of the result's gradient over a part of the pixels, to `parts` [splits, outputs]."""
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks = tl.cdiv(outputs, BN)
    pid = tl.program_id(0)
    out = pid % blocks * BN + tl.arange(0, BN)
    split = pid // blocks
    share = tl.cdiv(pixels, splits)
    end = tl.minimum(pixels, (split + 1) * share)
    known = out < outputs
    acc = tl.zeros((BM, BN), WIDE)
    for begin in range(split * share, end, BM):
        local = begin + tl.arange(0, BM)
        places = (g_image + local // (p * q)) * g_n + local // q % p * g_p + local % q * g_q
        there = (local < end)[:, None] & known[None, :]
        acc += load_wide(grad + places[:, None] + out[None, :], there, DOUBLE)
    at = parts + split * outputs + out
    total = tl.sum(acc, 0)
    if again != 0:
        total += tl.load(at, mask=known, other=0)
    tl.store(at, total, mask=known)
