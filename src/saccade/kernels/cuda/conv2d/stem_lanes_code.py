"""Stems of networks for images on Hopper: rows of taps go from planes straight to the lanes.

Rows of a product are sixteen neighbours of a line a warp, terms the taps of a row of the window,
eight at a time: a lane loads two that are neighbours in the image for each of its pixels, rounds
them, and has the matrix units' first operand. Weights stay in shared memory, with columns in the
order of `few_channels_lanes_code.channel_of_column`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from saccade.kernels.cuda.conv2d.lanes_code import (
    ask,
    channels_together,
    store_pixels,
    threads,
)


@gluon.constexpr_function
def taps_layout(BM, WARPS):
    """Of [pixels, 8 taps]: two taps of a pixel in a lane, as in the matrix units' operands."""
    lanes = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    warps = [[16 << i, 0] for i in range(WARPS.bit_length() - 1)]
    return gl.DistributedLinearLayout([[0, 1], [8, 0]], lanes, warps, [], [BM, 8])


@gluon.jit
def taps_of(row, at, pair, kept, line, h, wd):
    """Taps of a row of the window for each pixel, zeros outside of the image and beside the taps.

    `line` says for each pixel where that row is; `pair` counts pixels of x by twos, as `wd` does;
    `kept` has the bits of what is a tap, in the type of products.
    """
    there = gl.where((line >= 0) & (line < h), wd, 0).to(gl.uint32)
    value = gl.load(row + at, mask=pair < there[:, None], other=0.0).to(kept.dtype)
    # No weight is meant for what lies beside them, which may be anything. Two at once: choices are
    # made of halves of registers, with two instructions more for each.
    return gl.inline_asm_elementwise(
        "and.b32 $0, $1, $2;", "=r,r,r", [value, kept], dtype=kept.dtype, is_pure=True, pack=2
    )


@gluon.jit
def convolve_stem(
    w, x, y, extra, h, wd, k, p, q, x_n, x_c, x_h, y_n, y_p, y_q,
    C: gl.constexpr, R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, DILATION_H: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    SPANS: gl.constexpr, BN: gl.constexpr, WARPS: gl.constexpr,
    EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """SPANS blocks of WARPS lines by 16 pixels, beside each other, for BN channels.

    The L2 cache is asked for all that they read of the image first.
    `wd` and the strides of x come divided by 2, `k` and the strides of y by 8. Weights are packed
    [K', 16 · steps]: two rows of taps a step.
    """
    kind: gl.constexpr = w.dtype
    BM: gl.constexpr = 16 * WARPS
    STEPS: gl.constexpr = (C * R + 1) // 2
    SHIFT: gl.constexpr = PAD_L % 2  # taps begin at an even pixel
    taps: gl.constexpr = taps_layout(BM, WARPS)
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    operand: gl.constexpr = gl.DotOperandLayout(0, sums, k_width=2)
    ws = gl.allocate_shared_memory(kind, [STEPS, BN, 16], w.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    blocks = gl.cdiv(k * 8, BN)
    across = gl.cdiv(q, 16 * SPANS)
    down = gl.cdiv(p, WARPS)
    pid = gl.program_id(0)
    col = pid % blocks * BN
    first = pid // blocks % across * (16 * SPANS)
    top = pid // (blocks * across) % down * WARPS
    image = pid // (blocks * across * down)
    mbarrier.expect(bar, STEPS * w.nbytes_per_cta)
    for i in gl.static_range(STEPS):
        tma.async_load(w, [col, i * 16], bar, ws.index(i))
    row = gl.arange(0, BM, layout=gl.SliceLayout(1, taps))
    tap = gl.arange(0, 8, layout=gl.SliceLayout(0, taps))
    line = (top + row // 16) * STRIDE_H - PAD_T
    is_tap = gl.zeros((BM, 1), gl.int32, layout=taps) + tap[None, :]
    is_tap = (is_tap >= SHIFT) & (is_tap < SHIFT + S)
    kept = gl.where(is_tap, -1, 0).to(gl.int16).to(kind, bitcast=True)
    x += image * (x_n * 2)
    pixel = gl.maximum(first * STRIDE_W - PAD_L, 0)
    end = gl.minimum((first + 16 * SPANS - 1) * STRIDE_W - PAD_L + S, wd * 2)
    nbytes = (end - pixel) * (x.dtype.element_ty.primitive_bitwidth // 8)
    each = threads(WARPS)
    at_line = top * STRIDE_H - PAD_T + each // C
    wanted = (at_line >= 0) & (at_line < h)
    wanted = wanted & (each // C < (WARPS - 1) * STRIDE_H + (R - 1) * DILATION_H + 1)
    rows = each % C * (x_c * 2) + at_line * (x_h * 2)
    ask(x + (rows + pixel), gl.where(wanted, nbytes, 0))
    mbarrier.wait(bar, 0)
    for span in range(SPANS):
        begin = first + span * 16
        left = (begin + row % 16) * (STRIDE_W // 2) - (PAD_L + SHIFT) // 2
        at = (line * (x_h * 2) + left * 2)[:, None] + tap[None, :]
        pair = (left[:, None] + (tap // 2)[None, :]).to(gl.uint32)
        acc = gl.zeros((BM, BN), gl.float32, layout=sums)
        before = None
        for i in gl.static_range(STEPS):
            dy = (2 * i) % R * DILATION_H
            start = x + (2 * i) // R * (x_c * 2) + dy * (x_h * 2)
            one = taps_of(start, at, pair, kept, line + dy, h, wd)
            other = gl.zeros_like(one)
            if 2 * i + 1 < C * R:
                dy = (2 * i + 1) % R * DILATION_H
                start = x + (2 * i + 1) // R * (x_c * 2) + dy * (x_h * 2)
                other = taps_of(start, at, pair, kept, line + dy, h, wd)
            both = gl.join(one, other).permute([0, 2, 1]).reshape([BM, 16])
            a = gl.convert_layout(both, operand, assert_trivial=True)
            acc = warpgroup_mma(a, ws.index(i).permute((1, 0)), acc, is_async=True)
            # Operands in registers have to stay there until their product is done.
            if i > 0:
                acc, before = warpgroup_mma_wait(num_outstanding=1, deps=(acc, before))
            before = a
        acc, before = warpgroup_mma_wait(num_outstanding=0, deps=(acc, before))
        store_pixels(
            channels_together(acc, WARPS), y, extra, image, top, begin, col, k, p, q, y_n, y_p,
            y_q, 16, EPILOGUE, FETCH,
        )  # fmt: skip
    mbarrier.invalidate(bar)
