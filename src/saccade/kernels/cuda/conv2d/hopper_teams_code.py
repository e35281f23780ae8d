"""Implicit GEMM on Hopper by teams of warps that share a tile's weights, and a warp that brings.

Each of one to three teams has 64 pixels of a tile and all its output channels, in one block or two.
One more warp lets TMA bring pixels and weights to a ring of stages, as soon as all teams are done
with what a stage had, through all the tiles of the program: while a tile ends, what the next one
begins with is on its way. Its own start takes half a microsecond, so that the first steps are asked
for before warps have parts. What the epilogue adds to each element comes by TMA, and results leave
by it, so that threads compute no address of an element.
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

from saccade.kernels.cuda.conv2d.hopper_code import _places, corner_of, known_of


@gluon.jit
def convolve_teams(
    x, w, y, extra, rows, k, p, q, steps, tiles,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, MOVED: gl.constexpr,
    TEAMS: gl.constexpr, STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, BEGUN: gl.constexpr,
    MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr = None,
):  # fmt: skip
    """Nothing is read for each element; see `take_programs`."""
    take_programs(
        x, w, y, None, extra, rows, k, p, q, steps, tiles, R, S, STRIDE_H, STRIDE_W, DILATION_H,
        DILATION_W, PAD_T, PAD_L, BN, BN2, BK, MOVED, TEAMS, STAGES, TAPS_INNER, BEGUN, MATRIX,
        EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def convolve_teams_added(
    x, w, y, e, extra, rows, k, p, q, steps, tiles,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, MOVED: gl.constexpr,
    TEAMS: gl.constexpr, STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, BEGUN: gl.constexpr,
    MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr = None,
):  # fmt: skip
    """The epilogue reads an element of `e` for each; see `take_programs`."""
    take_programs(
        x, w, y, e, extra, rows, k, p, q, steps, tiles, R, S, STRIDE_H, STRIDE_W, DILATION_H,
        DILATION_W, PAD_T, PAD_L, BN, BN2, BK, MOVED, TEAMS, STAGES, TAPS_INNER, BEGUN, MATRIX,
        EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def take_programs(
    x, w, y, e, extra, rows, k, p, q, steps, tiles,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, MOVED: gl.constexpr,
    TEAMS: gl.constexpr, STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, BEGUN: gl.constexpr,
    MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr = None,
):  # fmt: skip
    """A program takes every so manieth tile: 64 pixels a team, BN and BN2 channels (or none).

    `rows` counts output pixels of all images, `tiles` tiles, `steps` blocks of input channels; `k`
    comes divided by 8. Maps of weights, results and `e` bring so many channels that both blocks are
    multiples of them; x's brings the pixels of all teams. BEGUN steps of the first tile are asked
    for before warps have parts. MATRIX: pixels are rows of a matrix, side by side.
    """
    kind: gl.constexpr = x.dtype
    ws = gl.allocate_shared_memory(kind, [STAGES, BN, BK], w.layout)
    ys = gl.allocate_shared_memory(kind, [TEAMS, 64, MOVED], y.layout)
    ws2, ys2 = ws, ys
    if BN2 > 0:
        ws2 = gl.allocate_shared_memory(kind, [STAGES, BN2, BK], w.layout)
        if e is not None:  # what is added comes while products are made, so all at once
            ys2 = gl.allocate_shared_memory(kind, [TEAMS, 64, BN2], y.layout)
    xs = gl.allocate_shared_memory(kind, [TEAMS * STAGES, 64, BK], x.layout)
    count: gl.constexpr = 2 * STAGES + TEAMS
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        # Stages that have come, stages that all teams have done with, what is added.
        mbarrier.init(bars.index(i), count=TEAMS if i // STAGES == 1 else 1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    begun = gl.minimum(R * S * steps, BEGUN)
    col, pixels = tile_place(
        gl.program_id(0), k, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L, BN + BN2, TEAMS, MATRIX
    )
    for t in gl.static_range(BEGUN):
        ask(
            x, w, xs, ws, ws2, bars, gl.to_tensor(t), t, t < begun, pixels, col, steps, R, S,
            DILATION_H, DILATION_W, BN, BN2, BK, TEAMS, TAPS_INNER, MATRIX,
        )  # fmt: skip
    take_parts(
        x, w, y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, begun, R, S,
        STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PAD_T, PAD_L, BN, BN2, BK, TEAMS, STAGES,
        TAPS_INNER, MATRIX, EPILOGUE, KNOWN,
    )  # fmt: skip
    for i in gl.static_range(count):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def take_parts(
    x, w, y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, begun,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, MATRIX: gl.constexpr, EPILOGUE: gl.constexpr,
    KNOWN: gl.constexpr,
):  # fmt: skip
    """Each team takes its pixels of all tiles, and a warp brings what they multiply."""
    if TEAMS == 1:
        gl.warp_specialize(
            [
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 0, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (bring, (
                    x, w, xs, ws, ws2, bars, k, p, q, steps, tiles, begun, R, S, STRIDE_H, STRIDE_W,
                    DILATION_H, DILATION_W, PAD_T, PAD_L, BN, BN2, BK, TEAMS, STAGES, TAPS_INNER,
                    MATRIX,
                )),
            ],
            [1],
            [40],
        )  # fmt: skip
    elif TEAMS == 2:
        gl.warp_specialize(
            [
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 0, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 1, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (bring, (
                    x, w, xs, ws, ws2, bars, k, p, q, steps, tiles, begun, R, S, STRIDE_H, STRIDE_W,
                    DILATION_H, DILATION_W, PAD_T, PAD_L, BN, BN2, BK, TEAMS, STAGES, TAPS_INNER,
                    MATRIX,
                )),
            ],
            [4, 1],
            [232, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 0, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 1, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (take_tiles, (
                    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, 2, R * S,
                    BN, BN2, TEAMS, STAGES, EPILOGUE, KNOWN,
                )),
                (bring, (
                    x, w, xs, ws, ws2, bars, k, p, q, steps, tiles, begun, R, S, STRIDE_H, STRIDE_W,
                    DILATION_H, DILATION_W, PAD_T, PAD_L, BN, BN2, BK, TEAMS, STAGES, TAPS_INNER,
                    MATRIX,
                )),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )  # fmt: skip


@gluon.jit
def tile_place(
    tile, k, p, q, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, WIDTH: gl.constexpr, TEAMS: gl.constexpr, MATRIX: gl.constexpr,
):  # fmt: skip
    """A tile's first output channel; image, row and column of its first pixel's first tap.

    Or which pixel that is of all, where they are rows of a MATRIX.
    """
    blocks = gl.cdiv(k * 8, WIDTH)
    m = tile // blocks * (64 * TEAMS)
    pixels = (m,)
    if not MATRIX:
        pixels = corner_of(m, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L)
    return tile % blocks * WIDTH, pixels


@gluon.jit
def ask(
    x, w, xs, ws, ws2, bars, t, slot, wanted, pixels, col, steps,
    R: gl.constexpr, S: gl.constexpr, DILATION_H: gl.constexpr, DILATION_W: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, TEAMS: gl.constexpr,
    TAPS_INNER: gl.constexpr, MATRIX: gl.constexpr,
):  # fmt: skip
    """Let TMA bring what step `t` of a tile multiplies to stage `slot`, if it is wanted."""
    PART: gl.constexpr = w.block_shape[0]
    if R * S == 1:
        tap, block = 0, t
    elif TAPS_INNER:
        tap, block = t % (R * S), t // (R * S)
    else:
        tap, block = t // steps, t % steps
    bar = bars.index(slot)
    come: gl.constexpr = TEAMS * x.nbytes_per_cta + (BN + BN2) // PART * w.nbytes_per_cta
    mbarrier.expect(bar, come, pred=wanted)
    # One load for all teams, whose blocks lie side by side.
    place = xs.index(slot * TEAMS)
    if MATRIX:
        tma.async_load(x, [pixels[0], block * BK], bar, place, pred=wanted)
    else:
        image, top, left = pixels
        # TMA takes offsets of taps in 16 bits.
        dy = gl.to_tensor(tap // S * DILATION_H).to(gl.int16)
        dx = gl.to_tensor(tap % S * DILATION_W).to(gl.int16)
        tma.async_load_im2col(x, [image, top, left, block * BK], [dy, dx], bar, place, pred=wanted)
    depth = (tap * steps + block) * BK
    for i in gl.static_range(BN // PART):
        tma.async_load(
            w, [col + i * PART, depth], bar, ws.index(slot).slice(i * PART, PART), pred=wanted
        )
    for i in gl.static_range(BN2 // PART):
        tma.async_load(
            w, [col + BN + i * PART, depth], bar, ws2.index(slot).slice(i * PART, PART), pred=wanted
        )


@gluon.jit
def bring(
    x, w, xs, ws, ws2, bars, k, p, q, steps, tiles, begun,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BN: gl.constexpr, BN2: gl.constexpr, BK: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, MATRIX: gl.constexpr,
):  # fmt: skip
    """What all steps of all tiles multiply, through the ring, but what is asked for already."""
    total = R * S * steps
    first = gl.program_id(0)
    for j in range(gl.cdiv(tiles - first, gl.num_programs(0))):
        col, pixels = tile_place(
            first + j * gl.num_programs(0), k, p, q, STRIDE_H, STRIDE_W, PAD_T, PAD_L, BN + BN2,
            TEAMS, MATRIX,
        )  # fmt: skip
        for t in range(begun, total):
            at = j * total + t
            slot = at % STAGES
            # The first time round all stages are free: a barrier that was never met is in the
            # phase behind its last.
            mbarrier.wait(bars.index(STAGES + slot), ((at // STAGES) & 1) ^ 1)
            ask(
                x, w, xs, ws, ws2, bars, t, slot, True, pixels, col, steps, R, S, DILATION_H,
                DILATION_W, BN, BN2, BK, TEAMS, TAPS_INNER, MATRIX,
            )  # fmt: skip
        begun = 0


@gluon.jit
def take_tiles(
    y, e, extra, xs, ws, ws2, ys, ys2, bars, rows, k, p, q, steps, tiles, TEAM: gl.constexpr,
    TAPS: gl.constexpr, BN: gl.constexpr, BN2: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """The pixels of one team of all tiles."""
    blocks = gl.cdiv(k * 8, BN + BN2)
    total = TAPS * steps
    gl.assume(total > 0)  # or ptxas may let products wait for each other
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16]
    )
    mma2: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, max(BN2, 8), 16]
    )
    results, results2 = ys.index(TEAM), ys2.index(TEAM)
    come = bars.index(2 * STAGES + TEAM)
    first = gl.program_id(0)
    for j in range(gl.cdiv(tiles - first, gl.num_programs(0))):
        tile = first + j * gl.num_programs(0)
        col, m = tile % blocks * (BN + BN2), tile // blocks * (64 * TEAMS) + 64 * TEAM
        if e is not None:
            tma.store_wait(0)  # until the results before have left
            mbarrier.expect(come, (BN + BN2) // e.block_shape[1] * e.nbytes_per_cta)
            move_in(e, m, col, come, results)
            if BN2 > 0:
                move_in(e, m, col + BN, come, results2)
        known = known_of(col, k, extra, mma, BN, KNOWN)
        acc = gl.zeros((64, BN), gl.float32, layout=mma)
        if BN2 > 0:
            known2 = known_of(col + BN, k, extra, mma2, BN2, KNOWN)
            acc2 = gl.zeros((64, BN2), gl.float32, layout=mma2)
        for t in range(total):
            at = j * total + t
            slot = at % STAGES
            mbarrier.wait(bars.index(slot), (at // STAGES) & 1)
            a = xs.index(slot * TEAMS + TEAM)
            acc = warpgroup_mma(a, ws.index(slot).permute((1, 0)), acc, is_async=True)
            # The step before is done then.
            if BN2 > 0:
                acc2 = warpgroup_mma(a, ws2.index(slot).permute((1, 0)), acc2, is_async=True)
                acc, acc2 = warpgroup_mma_wait(num_outstanding=2, deps=(acc, acc2))
            else:
                acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            mbarrier.arrive(bars.index(STAGES + (at + STAGES - 1) % STAGES), count=1, pred=t > 0)
        if BN2 > 0:
            acc, acc2 = warpgroup_mma_wait(num_outstanding=0, deps=(acc, acc2))
        else:
            acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(bars.index(STAGES + (j * total + total - 1) % STAGES), count=1)
        if e is not None:
            mbarrier.wait(come, j & 1)
        move_out(acc, y, e, known, m, col, rows, k, p, q, results, EPILOGUE)
        if BN2 > 0:
            move_out(acc2, y, e, known2, m, col + BN, rows, k, p, q, results2, EPILOGUE)
    tma.store_wait(0)


@gluon.jit
def move_in(e, m, col, bar, place):
    """Let TMA bring what is added to a block of results to where they will lie."""
    PART: gl.constexpr = e.block_shape[1]
    for i in gl.static_range(place.shape[1] // PART):
        tma.async_load(e, [m, col + i * PART], bar, place.slice(i * PART, PART, dim=1))


@gluon.jit
def move_out(acc, y, e, extra, m, col, rows, k, p, q, place, EPILOGUE: gl.constexpr):
    """A block of sums through the epilogue, by way of shared memory, to the result."""
    layout: gl.constexpr = acc.type.layout
    fetched = (place.load(layout),) if e is not None else ()
    image, channel, line, pixel, row_mask, col_mask = _places(
        m, col, rows, k, p, q, 0, acc.shape[0], acc.shape[1], True, 1, False, layout
    )
    done = EPILOGUE(acc, image, channel, line, pixel, row_mask, col_mask, fetched, extra)
    move_block(done.to(y.dtype), y, e, m, col, place)


@gluon.jit
def move_block(done, y, e, m, col, place):
    """A block to the result, or its halves one after the other where `place` is smaller."""
    PART: gl.constexpr = y.block_shape[1]
    HALF: gl.constexpr = done.shape[1] // 2
    if place.shape[1] <= HALF:
        left, right = done.reshape((64, 2, HALF)).permute((0, 2, 1)).split()
        move_block(left, y, e, m, col, place)
        move_block(right, y, e, m, col + HALF, place)
    else:
        if e is None:
            tma.store_wait(0)  # until what lay there has left
        place.store(done)
        fence_async_shared()
        for i in gl.static_range(place.shape[1] // PART):
            tma.async_store(y, [m, col + i * PART], place.slice(i * PART, PART, dim=1))
