"""Implicit GEMM on Hopper whose results are multiplied once more before they are stored.

Sums of the first window stay in registers: through their epilogue, rounded to the type of the
image, they are the operand of products with the second weights, of which a ring brings some output
channels at a time.
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

from saccade.kernels.cuda.conv2d.hopper_code import (
    _places,
    ask,
    corner_of,
    fetch_tile,
    store_tile,
)


@gluon.jit
def convolve_point(
    x, w, v, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    STAGES: gl.constexpr, CHUNK: gl.constexpr, CHUNKS: gl.constexpr, AHEAD: gl.constexpr,
    EVEN: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr, EPILOGUE: gl.constexpr,
    MIDDLE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """One tile of BM pixels a program, all of their channels: BN between, then CHUNKS of CHUNK.

    `k`, `channels` and the strides of y come divided by 8.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [STAGES, BN, BK], w.layout)
    vs = gl.allocate_shared_memory(kind, [AHEAD, CHUNK, BN], v.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES + AHEAD, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES + AHEAD):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    m = gl.program_id(0) * BM
    image, top, left = corner_of(m, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L)
    total = R * S * steps
    gl.assume(total > 0)  # or ptxas may let products wait for each other
    ahead: gl.constexpr = STAGES - 1
    for t in gl.static_range(ahead):
        ask(
            x, w, None, None, xs, ws, bars, gl.to_tensor(t), t, t < total, image, top, left, 0,
            steps, R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T, PAD_L, BK, True, 1, 1,
        )  # fmt: skip
    for i in gl.static_range(AHEAD):
        ask_filters(v, vs, bars, i, i, STAGES, CHUNK)
    first: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    acc = gl.zeros((BM, BN), gl.float32, layout=first)
    for t in range(total):
        slot = t % STAGES
        mbarrier.wait(bars.index(slot), (t // STAGES) & 1)
        acc = warpgroup_mma(xs.index(slot), ws.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        ask(
            x, w, None, None, xs, ws, bars, t + ahead, (t + ahead) % STAGES, t + ahead < total,
            image, top, left, 0, steps, R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T,
            PAD_L, BK, True, 1, 1,
        )  # fmt: skip
    coming = fetch_tile(
        extra, m, 0, rows, k, p, q, channels, BM, CHUNK, WARPS, EVEN, BLOCK, CRD, FETCH
    )
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    n_at, k_at, p_at, q_at, row_mask, col_mask = _places(
        m, 0, rows, BN // 8, p, q, channels, BM, BN, EVEN, 1, False, first
    )
    middle = MIDDLE(acc, n_at, k_at, p_at, q_at, row_mask, col_mask, (), extra)
    second: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, CHUNK, 16]
    )
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=second, k_width=2)
    a = gl.convert_layout(middle.to(kind), operand)
    for i in gl.static_range(CHUNKS):
        fetched = coming
        if i + 1 < CHUNKS:
            coming = fetch_tile(
                extra, m, (i + 1) * CHUNK, rows, k, p, q, channels, BM, CHUNK, WARPS, EVEN, BLOCK,
                CRD, FETCH,
            )  # fmt: skip
        mbarrier.wait(bars.index(STAGES + i % AHEAD), (i // AHEAD) & 1)
        sums = gl.zeros((BM, CHUNK), gl.float32, layout=second)
        # Registers must stay until the product is done.
        sums = warpgroup_mma(a, vs.index(i % AHEAD).permute((1, 0)), sums, is_async=False)
        if i + AHEAD < CHUNKS:
            ask_filters(v, vs, bars, i + AHEAD, i % AHEAD, STAGES, CHUNK)
        store_tile(
            sums, fetched, y, extra, m, i * CHUNK, rows, k, p, q, channels, y_n, y_p, y_q, WARPS,
            EVEN, BLOCK, CRD, EPILOGUE,
        )  # fmt: skip
    for i in gl.static_range(STAGES + AHEAD):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def ask_filters(
    v, vs, bars, chunk: gl.constexpr, slot: gl.constexpr, STAGES: gl.constexpr, CHUNK: gl.constexpr
):  # fmt: skip
    """Let TMA bring the second weights of so manieth output channels."""
    bar = bars.index(STAGES + slot)
    mbarrier.expect(bar, v.nbytes_per_cta)
    tma.async_load(v, [chunk * CHUNK, 0], bar, vs.index(slot))
