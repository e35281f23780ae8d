"""Implicit GEMM on Hopper, in Gluon: one warp loads by TMA, one or two groups of warps multiply.

Programs are persistent: as many as fit the machine, each with every so manieth tile of the result.
The producer's stages follow one another without regard to tiles, so loads of the next tile run
while the last one is stored. Two consumers take tiles in turn: while one stores, the other has the
matrix units. Rows of a tile are output pixels, which TMA's im2col mode gathers for one tap and one
block of channels; columns are output channels, of weights packed [K, R·S·C'].
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


@gluon.jit
def convolve(
    x, w, y_box, y, extra,
    n, k, p, q, channels, steps, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RESIDENT: gl.constexpr, BOXES: gl.constexpr,
    BLOCK: gl.constexpr, CRD: gl.constexpr, FETCH: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """`steps` counts blocks of input channels, `channels` those of the result at one pixel.

    RESIDENT is how many weight blocks stay in shared memory (all of a column block's: R·S·steps),
    or 0; BOXES says whether results are stored by TMA.
    """
    kind: gl.constexpr = x.dtype
    weight_blocks: gl.constexpr = RESIDENT if RESIDENT else STAGES
    result: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, BN], y.dtype.element_ty)
    xs = gl.allocate_shared_memory(kind, [STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [weight_blocks, BN, BK], w.layout)
    out = gl.allocate_shared_memory(y.dtype.element_ty, [CONSUMERS, BM, BN], result)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    held = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(held.index(0), count=1)
    fence_async_shared()
    if CONSUMERS == 1:
        gl.warp_specialize([
            (_consume, (
                y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, steps,
                y_n, y_p, y_q, 0, R * S, BM, BN, WARPS, STAGES, CONSUMERS, RESIDENT, BOXES, BLOCK,
                CRD, FETCH, EPILOGUE,
            )),
            (_produce, (
                x, w, xs, ws, full, empty, held, n, k, p, q, steps, R, S, STRIDE_H, STRIDE_W,
                DILATION_H, DILATION_W, PAD_T, PAD_L, BM, BN, BK, STAGES, RESIDENT,
            )),
        ], [1], [24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (
                y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, steps,
                y_n, y_p, y_q, 0, R * S, BM, BN, WARPS, STAGES, CONSUMERS, RESIDENT, BOXES, BLOCK,
                CRD, FETCH, EPILOGUE,
            )),
            (_consume, (
                y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, steps,
                y_n, y_p, y_q, 1, R * S, BM, BN, WARPS, STAGES, CONSUMERS, RESIDENT, BOXES, BLOCK,
                CRD, FETCH, EPILOGUE,
            )),
            (_produce, (
                x, w, xs, ws, full, empty, held, n, k, p, q, steps, R, S, STRIDE_H, STRIDE_W,
                DILATION_H, DILATION_W, PAD_T, PAD_L, BM, BN, BK, STAGES, RESIDENT,
            )),
        ], [WARPS, 1], [232, 24])  # fmt: skip


@gluon.jit
def _tiles(n, k, p, q, BM: gl.constexpr, BN: gl.constexpr):
    """Column blocks, and how many tiles this program has."""
    blocks = gl.cdiv(k, BN)
    tiles = gl.cdiv(n * p * q, BM) * blocks
    return blocks, gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def next_stage(slot, phase, STAGES: gl.constexpr):
    """The stage after this one; its barriers' phase turns when the ring begins anew."""
    slot += 1
    return gl.where(slot == STAGES, 0, slot), gl.where(slot == STAGES, phase ^ 1, phase)


@gluon.jit
def stage_before(slot, STAGES: gl.constexpr):
    """The stage before this one.

    It may not be carried from step to step beside `slot`: Triton 3.9 takes the two for one.
    """
    return gl.where(slot == 0, STAGES - 1, slot - 1)


@gluon.jit
def _produce(
    x, w, xs, ws, full, empty, held, n, k, p, q, steps,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
    RESIDENT: gl.constexpr,
):  # fmt: skip
    blocks, count = _tiles(n, k, p, q, BM, BN)
    pid = gl.program_id(0)
    padded = steps * BK
    if RESIDENT:
        mbarrier.expect(held.index(0), RESIDENT * w.nbytes_per_cta)
        for t in range(RESIDENT):
            at = t % (R * S) * padded + t // (R * S) * BK
            tma.async_load(w, [pid % blocks * BN, at], held.index(0), ws.index(t))
    slot = gl.to_tensor(0)
    phase = gl.to_tensor(0)
    for j in range(count):
        tile = pid + j * gl.num_programs(0)
        col = tile % blocks * BN
        m = tile // blocks * BM
        image = m // (p * q)
        top = m // q % p * STRIDE_H - PAD_T
        left = m % q * STRIDE_W - PAD_L
        # Channels outside, taps inside: the taps of one block of channels find it in the L2.
        for step in range(steps):
            for tap in range(R * S):
                mbarrier.wait(empty.index(slot), phase ^ 1)
                bar = full.index(slot)
                dy = (tap // S * DILATION_H).to(gl.int16)
                dx = (tap % S * DILATION_W).to(gl.int16)
                if RESIDENT:
                    mbarrier.expect(bar, x.nbytes_per_cta)
                else:
                    mbarrier.expect(bar, x.nbytes_per_cta + w.nbytes_per_cta)
                    tma.async_load(w, [col, tap * padded + step * BK], bar, ws.index(slot))
                tma.async_load_im2col(
                    x, [image, top, left, step * BK], [dy, dx], bar, xs.index(slot)
                )
                slot, phase = next_stage(slot, phase, STAGES)


@gluon.jit
def _consume(
    y_box, y, extra, xs, ws, full, empty, held, out, n, k, p, q, channels, steps, y_n, y_p, y_q,
    WHICH: gl.constexpr, TAPS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    WARPS: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RESIDENT: gl.constexpr,
    BOXES: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr, FETCH: gl.constexpr,
    EPILOGUE: gl.constexpr,
):  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    blocks, count = _tiles(n, k, p, q, BM, BN)
    total = TAPS * steps
    if RESIDENT:
        mbarrier.wait(held.index(0), 0)
    for j in range(WHICH, count, CONSUMERS):
        tile = gl.program_id(0) + j * gl.num_programs(0)
        slot = j * total % STAGES
        phase = j * total // STAGES & 1
        fetched = fetch_tile(
            extra, tile // blocks * BM, tile % blocks * BN, n * p * q, k, p, q, channels, BM, BN,
            WARPS, BLOCK, CRD, FETCH,
        )  # fmt: skip
        acc = gl.zeros((BM, BN), gl.float32, layout=mma)
        for t in range(total):
            mbarrier.wait(full.index(slot), phase)
            weights = ws.index(t) if RESIDENT else ws.index(slot)
            acc = warpgroup_mma(
                xs.index(slot), weights.permute((1, 0)), acc, use_acc=t > 0, is_async=True
            )
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            mbarrier.arrive(empty.index(stage_before(slot, STAGES)), count=1, pred=t > 0)
            slot, phase = next_stage(slot, phase, STAGES)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(stage_before(slot, STAGES)), count=1, pred=total > 0)
        store_tile(
            acc, fetched, y_box, y, extra, out.index(WHICH), tile // blocks * BM,
            tile % blocks * BN, n * p * q, k, p, q, channels, y_n, y_p, y_q, WARPS, BOXES, BLOCK,
            CRD, EPILOGUE,
        )  # fmt: skip
    if BOXES:
        tma.store_wait(pendings=0)


@gluon.constexpr_function
def _flat(BN, WARPS):
    """The layout in which a thread has sixteen bytes of neighbours of a tile."""
    across = min(BN // 8, 32)
    return gl.BlockedLayout([1, 8], [32 // across, across], [WARPS, 1], [1, 0])


@gluon.jit
def fetch_tile(
    extra, m, col, rows, k, p, q, channels, BM: gl.constexpr, BN: gl.constexpr,
    WARPS: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """What the epilogue reads for each element of a tile, asked for before the products."""
    flat: gl.constexpr = _flat(BN, WARPS)
    return FETCH(_places(m, col, rows, k, p, q, channels, BM, BN, BLOCK, CRD, flat), extra)


@gluon.jit
def store_tile(
    acc, fetched, y_box, y, extra, out, m, col, rows, k, p, q, channels, y_n, y_p, y_q,
    WARPS: gl.constexpr, BOXES: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr,
    EPILOGUE: gl.constexpr,
):  # fmt: skip
    """A tile of sums through the epilogue and by way of shared memory to the result.

    Its first pixel is `m`, counted through all images, its first channel `col`; `rows` is one past
    the last pixel that it may store.
    """
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    flat: gl.constexpr = _flat(BN, WARPS)
    near = _places(m, col, rows, k, p, q, channels, BM, BN, BLOCK, CRD, acc.type.layout)
    if BOXES:
        tma.store_wait(pendings=0)
        gl.barrier()
    done = EPILOGUE(acc, out, near, fetched, extra)
    out.store(done.to(y.dtype.element_ty))
    if BOXES:
        fence_async_shared()
        tma.async_store(y_box, [m, col], out)
    else:
        image, _, row, line, row_mask, col_mask = _places(
            m, col, rows, k, p, q, channels, BM, BN, BLOCK, CRD, flat
        )
        at = col + gl.arange(0, BN, layout=gl.SliceLayout(0, flat))
        pixel = at // channels
        corner = image * y_n + row * (BLOCK * y_p) + line * (BLOCK * y_q)
        within = pixel // BLOCK * y_p + pixel % BLOCK * y_q + at % channels
        if BLOCK == 1:
            within = at
        gl.store(
            y + corner[:, None] + within[None, :], out.load(flat),
            mask=row_mask[:, None] & col_mask[None, :],
        )  # fmt: skip


@gluon.jit
def _places(
    m, col, rows, k, p, q, channels, BM: gl.constexpr, BN: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Of a tile's rows and columns: n, k, p, q of the sums, and which rows and channels there are.

    Columns are in the order DCR, whatever DepthToSpace's mode, so that a pixel's channels are
    neighbours.
    """
    row = m + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    at = col + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    channel = at % channels * (BLOCK * BLOCK) + at // channels if CRD else at
    return row // (p * q), channel, row // q % p, row % q, row < rows, at < k
