"""Convolution on Hopper down strips of an image, in Gluon: each pixel is loaded S times, not R·S.

Where output channels are few, reading pixels anew for every tap is what takes the time. Here a
consumer walks down a strip of columns, one row of output pixels after the other; what it has loaded
of a row of the input for the taps of one window row serves the R rows of output that need it. The
weights of its block of output channels stay in shared memory. Two consumers walk down strips of
their own, each with a producer and a ring of its own.
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
    fetch_tile,
    next_stage,
    stage_before,
    store_tile,
)


@gluon.jit
def convolve(
    x, w, y_box, y, extra,
    n, k, p, q, channels, span, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    WARPS: gl.constexpr, STAGES: gl.constexpr, BOXES: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, FETCH: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """`span` counts the rows that a consumer takes of a strip before it goes to another.

    All input channels are one block of BK.
    """
    kind: gl.constexpr = x.dtype
    result: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], y.dtype.element_ty)
    xs = gl.allocate_shared_memory(kind, [2 * STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [R * S, BN, BK], w.layout)
    out = gl.allocate_shared_memory(y.dtype.element_ty, [2, BM, BN], result)
    full = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], mbarrier.MBarrierLayout())
    held = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2 * STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(held.index(0), count=1)
    fence_async_shared()
    gl.warp_specialize([
        (_consume, (
            y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, span,
            y_n, y_p, y_q, 0, R, S, BM, BN, WARPS, STAGES, BOXES, BLOCK, CRD, FETCH, EPILOGUE,
        )),
        (_consume, (
            y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, span,
            y_n, y_p, y_q, 1, R, S, BM, BN, WARPS, STAGES, BOXES, BLOCK, CRD, FETCH, EPILOGUE,
        )),
        (_produce, (
            x, w, xs, ws, full, empty, held, n, k, p, q, span, 0, R, S, DILATION_W, PAD_T, PAD_L,
            BM, BN, BK, STAGES,
        )),
        (_produce, (
            x, w, xs, ws, full, empty, held, n, k, p, q, span, 1, R, S, DILATION_W, PAD_T, PAD_L,
            BM, BN, BK, STAGES,
        )),
    ], [WARPS, 1, 1], [232, 24, 24])  # fmt: skip


@gluon.jit
def _walks(n, k, p, q, span, WHICH: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    """This walker's first piece of a strip, every how manieth is its own, and how many there are.

    A program keeps to one block of output channels.
    """
    blocks = gl.cdiv(k, BN)
    first = gl.program_id(0) // blocks * 2 + WHICH
    strips = gl.cdiv(q, BM)
    pieces = gl.cdiv(p, span)
    return first, gl.num_programs(0) // blocks * 2, n * strips * pieces, strips, pieces


@gluon.jit
def _produce(
    x, w, xs, ws, full, empty, held, n, k, p, q, span, WHICH: gl.constexpr,
    R: gl.constexpr, S: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    first, step, count, strips, pieces = _walks(n, k, p, q, span, WHICH, BM, BN)
    if WHICH == 0:
        col = gl.program_id(0) % gl.cdiv(k, BN) * BN
        mbarrier.expect(held.index(0), R * S * w.nbytes_per_cta)
        for t in range(R * S):
            tma.async_load(w, [col, t * BK], held.index(0), ws.index(t))
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    for piece in range(first, count, step):
        begin = piece % pieces * span
        left = piece // pieces % strips * BM - PAD_L
        image = piece // (pieces * strips)
        rows = gl.minimum(span, p - begin)
        for i in range(rows + R - 1):
            # Rows of the input that only windows of the last rows reach: by an offset, since the
            # box of first pixels ends there.
            top = gl.minimum(begin + i, p - 1)
            dy = (begin + i - top).to(gl.int16)
            for column in gl.static_range(S):
                dx = gl.to_tensor(column * DILATION_W).to(gl.int16)
                mbarrier.wait(empty.index(WHICH * STAGES + slot), phase ^ 1)
                bar = full.index(WHICH * STAGES + slot)
                mbarrier.expect(bar, x.nbytes_per_cta)
                tma.async_load_im2col(
                    x, [image, top - PAD_T, left, 0], [dy, dx], bar,
                    xs.index(WHICH * STAGES + slot),
                )  # fmt: skip
                slot, phase = next_stage(slot, phase, STAGES)


@gluon.jit
def _consume(
    y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, span, y_n, y_p, y_q,
    WHICH: gl.constexpr, R: gl.constexpr, S: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    WARPS: gl.constexpr, STAGES: gl.constexpr, BOXES: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, FETCH: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    first, step, count, strips, pieces = _walks(n, k, p, q, span, WHICH, BM, BN)
    col = gl.program_id(0) % gl.cdiv(k, BN) * BN
    mbarrier.wait(held.index(0), 0)
    loaded = gl.to_tensor(0)  # before the strip's
    for piece in range(first, count, step):
        begin = piece % pieces * span
        left = piece // pieces % strips * BM
        image = piece // (pieces * strips)
        rows = gl.minimum(span, p - begin)
        for row in range(rows):
            # The window's taps in order are consecutive loads; the next row begins S further on.
            slot = loaded % STAGES
            phase = loaded // STAGES & 1
            line = (image * p + begin + row) * q
            fetched = fetch_tile(
                extra, line + left, col, line + q, k, p, q, channels, BM, BN, WARPS, BLOCK, CRD,
                FETCH,
            )  # fmt: skip
            acc = gl.zeros((BM, BN), gl.float32, layout=mma)
            for t in range(R * S):
                mbarrier.wait(full.index(WHICH * STAGES + slot), phase)
                acc = warpgroup_mma(
                    xs.index(WHICH * STAGES + slot), ws.index(t).permute((1, 0)), acc,
                    use_acc=t > 0, is_async=True,
                )  # fmt: skip
                acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
                # The step before was the last to read its pixels if no row of output follows that
                # has them in its window.
                done = (t > 0) & ((t <= S) | (row == rows - 1))
                mbarrier.arrive(
                    empty.index(WHICH * STAGES + stage_before(slot, STAGES)), count=1, pred=done
                )
                slot, phase = next_stage(slot, phase, STAGES)
            acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
            over = (row == rows - 1) | (R == 1)
            mbarrier.arrive(
                empty.index(WHICH * STAGES + stage_before(slot, STAGES)), count=1, pred=over
            )
            loaded += S
            store_tile(
                acc, fetched, y_box, y, extra, out.index(WHICH), line + left, col, line + q, k, p,
                q, channels, y_n, y_p, y_q, WARPS, BOXES, BLOCK, CRD, EPILOGUE,
            )  # fmt: skip
        loaded += (R - 1) * S
    if BOXES:
        tma.store_wait(pendings=0)
