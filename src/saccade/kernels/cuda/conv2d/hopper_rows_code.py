"""Convolution on Hopper by rows of pixels that stay in shared memory for the taps of a column.

A tile is several rows of as many output pixels, STRIDE rows of input apart, with sums of their own
for each row. For a column of taps and a block of channels its rows of input come one after the
other, each shifted by the tap's column, and are multiplied for every result that they are a tap of:
a row is read once a column, not once a tap. The weights of a block of output channels stay in
shared memory for as many tiles as a program takes. Two teams of warps may take tiles beside one
another, with stages of their own: while one stores, the matrix units work for the other.
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

from saccade.kernels.cuda.conv2d.hopper_code import flat_layout, place_tile


@gluon.jit
def convolve_rows(
    x, w, y, extra, k, p, q, down, across, tiles, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, LINES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr, STAGES: gl.constexpr,
    EARLY: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr, CHANNELS: gl.constexpr,
    CRD: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """A team takes every so manieth tile of LINES rows of BM pixels, for BN channels.

    `down` and `across` count tiles of an image, `tiles` all of them; BLOCKS counts blocks of input
    channels. `k`, CHANNELS of the result and the strides of y come divided by 8. A tile's rows are
    a multiple of STAGES, so that each has its stage whatever the tile.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [TEAMS * STAGES, BM, BK], w.layout)
    ws = gl.allocate_shared_memory(kind, [R * S * BLOCKS, BN, BK], w.layout)
    bars = gl.allocate_shared_memory(gl.int64, [TEAMS * STAGES + 1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(TEAMS * STAGES + 1):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    col = gl.program_id(0) % gl.cdiv(k * 8, BN) * BN
    bar = bars.index(TEAMS * STAGES)
    mbarrier.expect(bar, R * S * BLOCKS * w.nbytes_per_cta)
    for i in gl.static_range(R * S * BLOCKS):
        tma.async_load(w, [col, i * BK], bar, ws.index(i))
    if TEAMS == 1:
        take_tiles(
            x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, y_n, y_p, y_q, 0, R, S, STRIDE,
            PAD_T, PAD_L, LINES, BM, BN, BK, BLOCKS, WARPS, TEAMS, STAGES, EARLY, EVEN, BLOCK,
            CHANNELS, CRD, EPILOGUE, FETCH,
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_tiles, (
                    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, y_n, y_p, y_q, 0, R,
                    S, STRIDE, PAD_T, PAD_L, LINES, BM, BN, BK, BLOCKS, WARPS, TEAMS, STAGES, EARLY,
                    EVEN, BLOCK, CHANNELS, CRD, EPILOGUE, FETCH,
                )),
                (take_tiles, (
                    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, y_n, y_p, y_q, 1, R,
                    S, STRIDE, PAD_T, PAD_L, LINES, BM, BN, BK, BLOCKS, WARPS, TEAMS, STAGES, EARLY,
                    EVEN, BLOCK, CHANNELS, CRD, EPILOGUE, FETCH,
                )),
            ],
            [WARPS],
        )  # fmt: skip
    for i in gl.static_range(TEAMS * STAGES + 1):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def take_tiles(
    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, y_n, y_p, y_q, TEAM: gl.constexpr,
    R: gl.constexpr, S: gl.constexpr, STRIDE: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, LINES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr, STAGES: gl.constexpr,
    EARLY: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr, CHANNELS: gl.constexpr,
    CRD: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """The tiles of one team."""
    parts = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % parts * BN
    first = gl.program_id(0) // parts * TEAMS + TEAM
    apart = gl.num_programs(0) // parts * TEAMS
    total: gl.constexpr = S * BLOCKS * ((LINES - 1) * STRIDE + R)
    ahead: gl.constexpr = STAGES - 1
    for i in gl.static_range(ahead):
        ask_row(
            x, xs, bars, i, TEAM * STAGES + i, first < tiles, first, down, across, R, STRIDE,
            PAD_T, PAD_L, LINES, BM, BK, BLOCKS,
        )  # fmt: skip
    mbarrier.wait(bars.index(TEAMS * STAGES), 0)
    count = gl.cdiv(tiles - first, apart)
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    for j in range(count):
        tile = first + j * apart
        sums = (gl.zeros((BM, BN), gl.float32, layout=mma),) * LINES
        coming = ()
        for t in gl.static_range(total):
            if line_before(t + EARLY, total, LINES, STRIDE) >= 0 and t + EARLY <= total:
                coming = coming + (fetch_line(  # noqa: RUF005 - Triton knows no stars
                    extra, tile, line_before(t + EARLY, total, LINES, STRIDE), col, k, p, q, down,
                    across, LINES, BM, BN, WARPS, EVEN, BLOCK, CHANNELS, CRD, FETCH,
                ),)  # fmt: skip
            sums = add_row(
                sums, xs, ws, bars, TEAM * STAGES + t % STAGES,
                (j * (total // STAGES) + t // STAGES) & 1, t, R, S, STRIDE, LINES, BLOCKS,
            )  # fmt: skip
            # At the end of this tile it is rows of the next one that are asked for.
            ask_row(
                x, xs, bars, (t + ahead) % total, TEAM * STAGES + (t + ahead) % STAGES,
                (t + ahead < total) | (j + 1 < count), tile + (t + ahead) // total * apart, down,
                across, R, STRIDE, PAD_T, PAD_L, LINES, BM, BK, BLOCKS,
            )  # fmt: skip
            # Once products for a row of results have begun, the one before is complete.
            if line_before(t, total, LINES, STRIDE) >= 0:
                store_line(
                    sums[line_before(t, total, LINES, STRIDE)],
                    coming[line_before(t, total, LINES, STRIDE)], y, extra, tile,
                    line_before(t, total, LINES, STRIDE), col, k, p, q, down, across, y_n, y_p,
                    y_q, LINES, WARPS, EVEN, BLOCK, CHANNELS, CRD, EPILOGUE,
                )  # fmt: skip
        if EARLY == 0:
            coming = coming + (fetch_line(  # noqa: RUF005
                extra, tile, LINES - 1, col, k, p, q, down, across, LINES, BM, BN, WARPS, EVEN,
                BLOCK, CHANNELS, CRD, FETCH,
            ),)  # fmt: skip
        sums = awaited(sums, 0)
        store_line(
            sums[LINES - 1], coming[LINES - 1], y, extra, tile, LINES - 1, col, k, p, q, down,
            across, y_n, y_p, y_q, LINES, WARPS, EVEN, BLOCK, CHANNELS, CRD, EPILOGUE,
        )  # fmt: skip


@gluon.jit
def ask_row(
    x, xs, bars, t: gl.constexpr, slot: gl.constexpr, wanted, tile, down, across,
    R: gl.constexpr, STRIDE: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    LINES: gl.constexpr, BM: gl.constexpr, BK: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """Let TMA bring row `t` of a tile to stage `slot`, if it is wanted; zeros beyond the image."""
    PATCH: gl.constexpr = (LINES - 1) * STRIDE + R
    image = tile // (down * across)
    rest = tile % (down * across)
    top = rest // across * (LINES * STRIDE) - PAD_T + t % PATCH
    left = rest % across * BM - PAD_L + t // PATCH // BLOCKS
    bar = bars.index(slot)
    mbarrier.expect(bar, x.nbytes_per_cta, pred=wanted)
    stage = xs.index(slot).reinterpret(shape=[1, 1, BM, BK], layout=x.layout)
    tma.async_load(x, [image, top, left, t // PATCH % BLOCKS * BK], bar, stage, pred=wanted)


@gluon.jit
def add_row(
    sums, xs, ws, bars, slot: gl.constexpr, phase, t: gl.constexpr, R: gl.constexpr,
    S: gl.constexpr, STRIDE: gl.constexpr, LINES: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """Row `t` of a tile to the sums of every result that it is a tap of.

    What the row before was multiplied for is done then, and its stage free.
    """
    PATCH: gl.constexpr = (LINES - 1) * STRIDE + R
    line: gl.constexpr = t % PATCH
    column: gl.constexpr = t // PATCH // BLOCKS
    block: gl.constexpr = t // PATCH % BLOCKS
    mbarrier.wait(bars.index(slot), phase)
    stage = xs.index(slot)
    for r in gl.static_range(R):
        if tapped(line, r, LINES, STRIDE):
            taps = ws.index((r * S + column) * BLOCKS + block).permute((1, 0))
            done = warpgroup_mma(stage, taps, sums[(line - r) // STRIDE], is_async=True)
            sums = replaced(sums, (line - r) // STRIDE, done)
    return awaited(sums, products(line, R, LINES, STRIDE))


@gluon.jit
def replaced(sums, at: gl.constexpr, done):
    """The sums with others in one place."""
    return sums[:at] + (done,) + sums[at + 1 :]  # noqa: RUF005 - Triton knows no stars


@gluon.constexpr_function
def tapped(line, r, LINES, STRIDE):
    """Whether row `line` of a tile is tap `r` of a row of results."""
    return line >= r and (line - r) % STRIDE == 0 and (line - r) // STRIDE < LINES


@gluon.constexpr_function
def products(line, R, LINES, STRIDE):
    """How many rows of results row `line` of a tile is a tap of."""
    taps = [r for r in range(R) if line >= r and (line - r) % STRIDE == 0]
    return len([r for r in taps if (line - r) // STRIDE < LINES])


@gluon.constexpr_function
def line_before(t, total, LINES, STRIDE):
    """The row of results whose last products are those of the row before row `t`; -1: of none."""
    whole = (total - t) % STRIDE == 0
    return LINES - 1 - (total - t) // STRIDE if whole and total - t < LINES * STRIDE else -1


@gluon.jit
def awaited(sums, begun: gl.constexpr):
    """The sums once all but so many products are done."""
    done = warpgroup_mma_wait(num_outstanding=begun, deps=sums)
    if len(sums) == 1:  # Gluon gives one back as it is
        done = (done,)
    return done


@gluon.jit
def fetch_line(
    extra, tile, line: gl.constexpr, col, k, p, q, down, across, LINES: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, WARPS: gl.constexpr, EVEN: gl.constexpr,
    BLOCK: gl.constexpr, CHANNELS: gl.constexpr, CRD: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """What the epilogue reads for each element of a row of a tile."""
    if FETCH is not None:
        image, channel, row, pixel, row_mask, col_mask = line_places(
            tile, line, col, k, p, q, down, across, LINES, BM, BN, EVEN, BLOCK, CHANNELS, CRD,
            flat_layout(BN, WARPS),
        )  # fmt: skip
        fetched = FETCH(image, channel, row, pixel, row_mask, col_mask, extra)
    else:
        fetched = ()
    return fetched


@gluon.jit
def store_line(
    acc, fetched, y, extra, tile, line: gl.constexpr, col, k, p, q, down, across, y_n, y_p, y_q,
    LINES: gl.constexpr, WARPS: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr,
    CHANNELS: gl.constexpr, CRD: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """A row of a tile through the epilogue, as far as it is on the image."""
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    image, channel, row, pixel, row_mask, col_mask = line_places(
        tile, line, col, k, p, q, down, across, LINES, BM, BN, EVEN, BLOCK, CHANNELS, CRD,
        acc.type.layout,
    )  # fmt: skip
    done = EPILOGUE(acc, image, channel, row, pixel, row_mask, col_mask, fetched, extra)
    flat: gl.constexpr = flat_layout(BN, WARPS)
    done = gl.convert_layout(done.to(y.dtype.element_ty), flat)
    image, channel, row, pixel, row_mask, col_mask = line_places(
        tile, line, col, k, p, q, down, across, LINES, BM, BN, EVEN, BLOCK, CHANNELS, CRD, flat
    )
    place_tile(
        done, y, image, row, pixel, row_mask, col_mask, col, CHANNELS, y_n, y_p, y_q, EVEN, BLOCK
    )


@gluon.jit
def line_places(
    tile, line: gl.constexpr, col, k, p, q, down, across, LINES: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr, CHANNELS: gl.constexpr,
    CRD: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """`hopper_code._places` for pixels that are all in one row of one image."""
    rest = tile % (down * across)
    image = tile // (down * across) + gl.zeros((BM,), gl.int32, gl.SliceLayout(1, layout))
    row = rest // across * LINES + line + 0 * image
    pixel = rest % across * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    there = pixel < gl.where(row < p, q, 0)
    channel = col + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    filters = channel < k * 8
    if CRD:
        channel = channel % (CHANNELS * 8) * (BLOCK * BLOCK) + channel // (CHANNELS * 8)
    if EVEN:  # pixels are numbered through all images
        pixel += (image * p + row) * q
        image, row = pixel, pixel
    return image, channel, row, pixel, there, filters
