"""Orders of axes and sums in a fixed order around the gradients of deformable convolution."""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_samples_code import load_wide
from saccade.kernels.cuda.deform.half_products_code import exponent_of, raised, store_parts


@triton.jit
def _last(
    pid, x, y, slots, first_image, channels, h, wd, plane, x_n, x_c, x_h, x_w,
    PARTS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Some images [N, C, H, W] of any strides as [N, H, W, C], or as PARTS of float32."""
    tiles, blocks = tl.cdiv(h * wd, BP), tl.cdiv(channels, BC)
    pixel = pid % tiles * BP + tl.arange(0, BP)
    channel = pid // tiles % blocks * BC + tl.arange(0, BC)
    image = pid // (tiles * blocks)
    there = (pixel < h * wd)[None, :] & (channel < channels)[:, None]
    places = (first_image + image) * x_n + pixel // wd * x_h + pixel % wd * x_w
    value = tl.load(x + channel[:, None] * x_c + places[None, :], mask=there, other=0)
    at = (image * h * wd + pixel)[:, None] * channels + channel[None, :]
    there = (pixel < h * wd)[:, None] & (channel < channels)[None, :]
    if PARTS > 0:
        store_parts(y + at, plane, tl.trans(value), exponent_of(slots, 3), there, PARTS)
    else:
        tl.store(y + at, tl.trans(value), mask=there)


@triton.jit
def taps_of(
    pid, w, c, columns, w_k, w_c, w_r, w_s,
    TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """One output, some of its channels, its taps, and their weights as [taps, channels]."""
    blocks = tl.cdiv(c, BLOCK)
    out = pid // blocks
    channel = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    tap = tl.arange(0, BT)
    places = (tap // columns * w_r + tap % columns * w_s)[None, :] + channel[:, None] * w_c
    there = (channel < c)[:, None] & (tap < TAPS)[None, :]
    value = tl.trans(tl.load(w + out * w_k + places, mask=there, other=0))
    return out, channel, tap, value


@triton.jit
def _pack(
    pid, w, packed, slots, outputs, c, columns, w_k, w_c, w_r, w_s,
    PARTS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The taps of some channels of one output."""
    out, channel, tap, value = taps_of(
        pid, w, c, columns, w_k, w_c, w_r, w_s, TAPS=TAPS, BLOCK=BLOCK, BT=BT
    )
    at = (tap * outputs + out)[:, None] * c + channel[None, :]
    there = (tap < TAPS)[:, None] & (channel < c)[None, :]
    if PARTS > 0:
        plane = TAPS * outputs * c
        store_parts(packed + at, plane, value, exponent_of(slots, 2), there, PARTS)
    else:
        tl.store(packed + at, value, mask=there)


@triton.jit
def prepare(
    w, packed, counts, x, x_last, grad, grad_last, slots, extra,
    packing, clearing, copying, cleared, outputs, c, columns, w_k, w_c, w_r, w_s,
    first_image, all_channels, h, wd, x_n, x_c, x_h, x_w, p, q, plane, s_n, s_k, s_p, s_q,
    PARTS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """What is read in another order, by programs of their own each, of which there may be none.

    `packing` of them: weights as [taps, outputs, channels of a group], of PARTS one behind the
    other. `clearing`: zeros for counts. `copying`: x with its channels last. All others: the same
    of the result's gradient, in PARTS.
    """
    pid = tl.program_id(0)
    if pid < packing:
        _pack(
            pid, w, packed, slots, outputs, c, columns, w_k, w_c, w_r, w_s, PARTS, TAPS, BLOCK, BT
        )
    elif pid < packing + clearing:
        bucket = (pid - packing) * 1024 + tl.arange(0, 1024)
        tl.store(counts + bucket, tl.zeros((1024,), tl.int32), mask=bucket < cleared)
    elif pid < packing + clearing + copying:
        _last(
            pid - packing - clearing, x, x_last, slots, first_image, all_channels, h, wd, 0,
            x_n, x_c, x_h, x_w, 0, BP, BC,
        )  # fmt: skip
    else:
        _last(
            pid - packing - clearing - copying, grad, grad_last, slots, first_image, outputs, p, q,
            plane, s_n, s_k, s_p, s_q, PARTS, BP, BC,
        )  # fmt: skip


@triton.jit
def add(
    parts, y, extra, splits, outputs, c, columns, y_k, y_c, y_r, y_s,
    TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Sum of parts [splits, taps, outputs, channels], first to last, in the weights' order."""
    pid = tl.program_id(0)
    blocks = tl.cdiv(c, BLOCK)
    out = pid // blocks
    channel = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    tap = tl.arange(0, BT)
    at = parts + (tap * outputs + out)[:, None] * c + channel[None, :]
    there = (tap < TAPS)[:, None] & (channel < c)[None, :]
    total = tl.load(at, mask=there, other=0)
    for _ in range(1, splits):
        at += TAPS * outputs * c
        total += tl.load(at, mask=there, other=0)
    places = (tap // columns * y_r + tap % columns * y_s)[None, :] + channel[:, None] * y_c
    there = (channel < c)[:, None] & (tap < TAPS)[None, :]
    tl.store(y + out * y_k + places, tl.trans(total).to(y.dtype.element_ty), mask=there)


@triton.jit
def bias(
    grad, parts, slots, extra, pixels, g_image, p, q, outputs, splits, again, plane, g_n, g_p, g_q,
    DOUBLE: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
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
        at = grad + places[:, None] + out[None, :]
        acc += load_wide(at, there, DOUBLE)
        if PARTS == 2:
            acc += load_wide(at + plane, there, DOUBLE) * (1.0 / 2048.0)
    at = parts + split * outputs + out
    total = tl.sum(acc, 0)
    if PARTS > 0:
        total = raised(total, exponent_of(slots, 3) - 15)
    if again != 0:
        total += tl.load(at, mask=known, other=0)
    tl.store(at, total, mask=known)
