"""Implicit GEMM on Hopper, in Gluon: TMA gathers what asynchronous products read.

Rows of a tile are output pixels, which TMA's im2col mode gathers for one tap and one block of
channels; columns are output channels, of weights packed [K, R·S·C']. All warps wait for a stage,
begin its products, and once those of the step before are done its stage is asked for anew. No warps
have parts of their own. Behind the steps of the window may come those of a second one of one tap,
over another image and with weights of its own (`x2`, `w2`), whose products go to the same sums.
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
def ask(
    x, w, x2, w2, xs, ws, bars, t, slot, wanted, image, top, left, col, steps,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BK: gl.constexpr, TAPS_INNER: gl.constexpr, STRIDE2_H: gl.constexpr, STRIDE2_W: gl.constexpr,
):  # fmt: skip
    """Let TMA bring what step `t` of a tile multiplies to stage `slot`, if it is wanted.

    `steps` counts blocks of input channels; weights lie tap by tap, whatever the order of steps.
    """
    if R * S == 1:
        tap, block = 0, t
    elif TAPS_INNER:
        tap, block = t % (R * S), t // (R * S)
    else:
        tap, block = t // steps, t % steps
    bar = bars.index(slot)
    # TMA takes offsets of taps in 16 bits.
    dy = gl.to_tensor(tap // S * DILATION_H).to(gl.int16)
    dx = gl.to_tensor(tap % S * DILATION_W).to(gl.int16)
    # Before the loads begin: the stage is there once so many bytes have come.
    mbarrier.expect(bar, x.nbytes_per_cta + w.nbytes_per_cta, pred=wanted)
    if x2 is not None:
        beyond = t - R * S * steps
        line = (top + PAD_T) // STRIDE_H * STRIDE2_H
        pixel = (left + PAD_L) // STRIDE_W * STRIDE2_W
        none = gl.to_tensor(0).to(gl.int16)
        second = wanted & (beyond >= 0)
        tma.async_load_im2col(
            x2, [image, line, pixel, beyond * BK], [none, none], bar, xs.index(slot), pred=second
        )
        tma.async_load(w2, [col, beyond * BK], bar, ws.index(slot), pred=second)
        wanted = wanted & (beyond < 0)
    tma.async_load_im2col(
        x, [image, top, left, block * BK], [dy, dx], bar, xs.index(slot), pred=wanted
    )
    tma.async_load(w, [col, (tap * steps + block) * BK], bar, ws.index(slot), pred=wanted)


@gluon.jit
def corner_of(
    m, p, q, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr,
):  # fmt: skip
    """Image, row and column of the first tap of output pixel `m`, counted through all images."""
    line = m // q
    return line // p, line % p * STRIDE_H - PAD_T, m % q * STRIDE_W - PAD_L


@gluon.jit
def convolve(
    x, w, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, EARLY: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
    PROLOGUE: gl.constexpr = None, x2=None, w2=None, steps2=0, STRIDE2_H: gl.constexpr = 1,
    STRIDE2_W: gl.constexpr = 1, UNIT: gl.constexpr = 8, ROOM: gl.constexpr = 0,
):  # fmt: skip
    """One tile of results a program.

    EARLY: what the epilogue reads for each element is asked for before the products. `rows` counts
    output pixels of all images; `k`, `channels` and the strides of y come divided by UNIT, so that
    the compiler knows that 16 bytes stay together; zeros are written to the ROOM behind channels.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [STAGES, BN, BK], w.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    pid = gl.program_id(0)
    blocks = gl.cdiv(k * UNIT, BN)
    col = pid % blocks * BN
    m = pid // blocks * BM
    image, top, left = corner_of(m, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L)
    total = R * S * steps + steps2
    gl.assume(total > 0)  # or ptxas may let products wait for each other
    ahead: gl.constexpr = STAGES - 1
    for t in gl.static_range(ahead):
        ask(
            x, w, x2, w2, xs, ws, bars, gl.to_tensor(t), t, t < total, image, top, left, col, steps,
            R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T, PAD_L, BK, TAPS_INNER,
            STRIDE2_H, STRIDE2_W,
        )  # fmt: skip
    if EARLY:
        fetched = fetch_tile(
            extra, m, col, rows, k, p, q, channels, BM, BN, WARPS, EVEN, BLOCK, CRD, FETCH, UNIT
        )
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    acc = gl.zeros((BM, BN), gl.float32, layout=mma)
    for t in range(total):
        slot = t % STAGES
        # A barrier's phase changes each time that the ring comes round.
        mbarrier.wait(bars.index(slot), (t // STAGES) & 1)
        if PROLOGUE is None:
            a = xs.index(slot)
        else:
            block = t // (R * S) if TAPS_INNER else t % steps
            a = changed(xs.index(slot), m, block * BK, rows, p, q, x.shape[3], extra, mma, PROLOGUE)
        # What a prologue made lies in registers, which must stay until the product is done.
        acc = warpgroup_mma(a, ws.index(slot).permute((1, 0)), acc, is_async=PROLOGUE is None)
        if PROLOGUE is None:  # the step before is done then, and its stage free
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        ask(
            x, w, x2, w2, xs, ws, bars, t + ahead, (t + ahead) % STAGES, t + ahead < total, image,
            top, left, col, steps, R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T, PAD_L,
            BK, TAPS_INNER, STRIDE2_H, STRIDE2_W,
        )  # fmt: skip
    if PROLOGUE is None:
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(i))
    if not EARLY:
        fetched = fetch_tile(
            extra, m, col, rows, k, p, q, channels, BM, BN, WARPS, EVEN, BLOCK, CRD, FETCH, UNIT
        )
    store_tile(
        acc, fetched, y, extra, m, col, rows, k, p, q, channels, y_n, y_p, y_q, WARPS, EVEN, BLOCK,
        CRD, EPILOGUE, UNIT, ROOM,
    )  # fmt: skip


@gluon.jit
def changed(
    stage, m, first, rows, p, q, c, extra, mma: gl.constexpr, PROLOGUE: gl.constexpr
):  # fmt: skip
    """A stage of x as operand in registers, through the prologue; zeros beyond its channels."""
    BM: gl.constexpr = stage.shape[0]
    BK: gl.constexpr = stage.shape[1]
    layout: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=mma, k_width=2)
    row = m + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    channel = first + gl.arange(0, BK, layout=gl.SliceLayout(0, layout))
    image = (row.to(gl.uint32) // (p * q).to(gl.uint32)).to(gl.int32)
    there = channel < c // 8 * 8  # so that the compiler knows that neighbours stay together
    value = stage.load(layout)
    done = PROLOGUE(value.to(gl.float32), image, channel, image, image, row < rows, there, extra)
    return gl.where(there[None, :], done, 0.0).to(value.dtype)


@gluon.jit
def convolve_tiles(
    x, w, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, EARLY: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
    x2=None, w2=None, steps2=0, STRIDE2_H: gl.constexpr = 1, STRIDE2_W: gl.constexpr = 1,
    UNIT: gl.constexpr = 8, ROOM: gl.constexpr = 0,
):  # fmt: skip
    """The same, a program taking every so manieth tile; a tile has at least STAGES - 1 steps.

    The stages follow one another without regard to tiles: what the next one begins with is on its
    way while this one is stored.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [STAGES, BN, BK], w.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    blocks = gl.cdiv(k * UNIT, BN)
    first = gl.program_id(0)
    count = gl.cdiv(gl.cdiv(rows, BM) * blocks - first, gl.num_programs(0))
    total = R * S * steps + steps2
    gl.assume(total > 0)  # or ptxas lets products wait for each other
    ahead: gl.constexpr = STAGES - 1
    image_0, top_0, left_0 = corner_of(first // blocks * BM, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L)
    for i in gl.static_range(ahead):
        ask(
            x, w, x2, w2, xs, ws, bars, gl.to_tensor(i), i, i < total, image_0, top_0, left_0,
            first % blocks * BN, steps, R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T,
            PAD_L, BK, TAPS_INNER, STRIDE2_H, STRIDE2_W,
        )  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    # Nothing but the sums is carried from tile to tile or from step to step.
    for j in range(count):
        tile = first + j * gl.num_programs(0)
        col, m = tile % blocks * BN, tile // blocks * BM
        image, top, left = corner_of(m, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L)
        then = tile + gl.num_programs(0)
        then_col = then % blocks * BN
        then_image, then_top, then_left = corner_of(
            then // blocks * BM, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L
        )
        if EARLY:
            fetched = fetch_tile(
                extra, m, col, rows, k, p, q, channels, BM, BN, WARPS, EVEN, BLOCK, CRD, FETCH, UNIT
            )
        acc = gl.zeros((BM, BN), gl.float32, layout=mma)
        for t in range(total):
            at = j * total + t
            slot = at % STAGES
            # Counted through all tiles, as barriers are not begun anew for each.
            mbarrier.wait(bars.index(slot), (at // STAGES) & 1)
            acc = warpgroup_mma(xs.index(slot), ws.index(slot).permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            own = t + ahead < total
            # Selected by products: the compiler would select before it divides, in every step.
            other = gl.where(own, 0, 1)
            ask(
                x, w, x2, w2, xs, ws, bars, t + ahead - other * total, (at + ahead) % STAGES,
                own | (j + 1 < count), image + other * (then_image - image),
                top + other * (then_top - top), left + other * (then_left - left),
                col + other * (then_col - col), steps, R, S, STRIDE_H, STRIDE_W, DILATION_H,
                DILATION_W, PAD_T, PAD_L, BK, TAPS_INNER, STRIDE2_H, STRIDE2_W,
            )  # fmt: skip
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        if not EARLY:
            fetched = fetch_tile(
                extra, m, col, rows, k, p, q, channels, BM, BN, WARPS, EVEN, BLOCK, CRD, FETCH, UNIT
            )
        store_tile(
            acc, fetched, y, extra, m, col, rows, k, p, q, channels, y_n, y_p, y_q, WARPS, EVEN,
            BLOCK, CRD, EPILOGUE, UNIT, ROOM,
        )  # fmt: skip
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(bars.index(i))


@gluon.constexpr_function
def flat_layout(BN, WARPS, UNIT=8):
    """The layout in which a thread has so many neighbours of a tile, eight halves if not said."""
    across = min(BN // UNIT, 32)
    return gl.BlockedLayout([1, UNIT], [32 // across, across], [WARPS, 1], [1, 0])


@gluon.jit
def fetch_tile(
    extra, m, col, rows, k, p, q, channels, BM: gl.constexpr, BN: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr,
    FETCH: gl.constexpr, UNIT: gl.constexpr = 8,
):  # fmt: skip
    """What the epilogue reads for each element of a tile."""
    flat: gl.constexpr = flat_layout(BN, WARPS, UNIT)
    if FETCH is not None:
        image, channel, line, pixel, row_mask, col_mask = _places(
            m, col, rows, k, p, q, channels, BM, BN, EVEN, BLOCK, CRD, flat, UNIT
        )
        fetched = FETCH(image, channel, line, pixel, row_mask, col_mask, extra)
    else:
        fetched = ()
    return fetched


@gluon.jit
def store_tile(
    acc, fetched, y, extra, m, col, rows, k, p, q, channels, y_n, y_p, y_q,
    WARPS: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr,
    EPILOGUE: gl.constexpr, UNIT: gl.constexpr = 8, ROOM: gl.constexpr = 0,
):  # fmt: skip
    """A tile of sums through the epilogue to the result, UNIT elements a thread.

    Its first pixel is `m`, its first channel `col`.
    """
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    flat: gl.constexpr = flat_layout(BN, WARPS, UNIT)
    image, channel, line, pixel, row_mask, col_mask = _places(
        m, col, rows, k, p, q, channels, BM, BN, EVEN, BLOCK, CRD, acc.type.layout, UNIT
    )
    done = EPILOGUE(acc, image, channel, line, pixel, row_mask, col_mask, fetched, extra)
    if ROOM > 0:
        # An epilogue may make anything of zeros, and whoever reads the pixels counts on zeros.
        done = gl.where(col_mask[None, :], done, 0.0)
    # Where sums lie a thread has two neighbours: stores would be 4 bytes wide.
    done = gl.convert_layout(done.to(y.dtype.element_ty), flat)
    image, channel, line, pixel, row_mask, col_mask = _places(
        m, col, rows, k + ROOM, p, q, channels, BM, BN, EVEN, BLOCK, CRD, flat, UNIT
    )
    place_tile(
        done, y, image, line, pixel, row_mask, col_mask, col, channels, y_n, y_p, y_q, EVEN, BLOCK,
        UNIT,
    )  # fmt: skip


@gluon.jit
def place_tile(
    done, y, image, line, pixel, row_mask, col_mask, col, channels, y_n, y_p, y_q,
    EVEN: gl.constexpr, BLOCK: gl.constexpr, UNIT: gl.constexpr = 8,
):  # fmt: skip
    """Store a tile as it lies in threads, rows and columns where the masks say."""
    BN: gl.constexpr = done.shape[1]
    at = col + gl.arange(0, BN, layout=gl.SliceLayout(0, done.type.layout))
    if EVEN:
        corner = pixel * (y_q * UNIT)
    else:
        corner = image * (y_n * UNIT)
        corner += line * (y_p * (UNIT * BLOCK)) + pixel * (y_q * (UNIT * BLOCK))
    if BLOCK > 1:
        part = at // (channels * UNIT)
        within = part // BLOCK * (y_p * UNIT) + part % BLOCK * (y_q * UNIT) + at % (channels * UNIT)
    else:
        within = at
    gl.store(
        y + corner[:, None] + within[None, :], done, mask=row_mask[:, None] & col_mask[None, :]
    )


@gluon.jit
def known_of(
    col, k, extra, layout: gl.constexpr, BN: gl.constexpr, KNOWN: gl.constexpr
):  # fmt: skip
    """What the epilogue reads for a block's channels, asked for now, or where it is to be found."""
    known = extra
    if KNOWN is not None:
        channel = col + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
        known = KNOWN(channel, channel < k * 8, extra)
    return known


@gluon.jit
def _places(
    m, col, rows, k, p, q, channels, BM: gl.constexpr, BN: gl.constexpr, EVEN: gl.constexpr,
    BLOCK: gl.constexpr, CRD: gl.constexpr, layout: gl.constexpr, UNIT: gl.constexpr = 8,
):  # fmt: skip
    """Of a tile's rows and columns: n, k, p, q of the sums, and which rows and channels there are.

    EVEN: pixels are numbered through all images, as q. With CRD packing has brought the channels of
    a pixel together.
    """
    row = m + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    at = col + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    channel = at
    if CRD:
        channel = at % (channels * UNIT) * (BLOCK * BLOCK) + at // (channels * UNIT)
    if EVEN:
        return row, channel, row, row, row < rows, at < k * UNIT
    # Without a sign, division takes fewer instructions.
    over = row.to(gl.uint32) // q.to(gl.uint32)
    image = over // p.to(gl.uint32)
    line = (over - image * p.to(gl.uint32)).to(gl.int32)
    pixel = (row.to(gl.uint32) - over * q.to(gl.uint32)).to(gl.int32)
    return image.to(gl.int32), channel, line, pixel, row < rows, at < k * UNIT
