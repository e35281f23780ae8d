"""Convolution on Hopper by rows of pixels that stay in shared memory for the taps of a column.

A tile is several rows of as many output pixels, with sums of their own for each row. For a column
of taps and a block of channels its rows of input come one after the other, each shifted by the
tap's column, and are multiplied for every result that they are a tap of: a row is read once a
column, not once a tap. The weights of a block of output channels stay in shared memory for as many
tiles as a program takes.
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

from saccade.kernels.cuda.conv2d.hopper_code import fetch_tile, store_tile


@gluon.jit
def convolve_rows(
    x, w, y, extra, k, p, q, channels, down, across, tiles, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    LINES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, WARPS: gl.constexpr, STAGES: gl.constexpr, EVEN: gl.constexpr,
    BLOCK: gl.constexpr, CRD: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """A program takes every so manieth tile of LINES rows of BM pixels, for BN channels.

    `down` and `across` count tiles of an image, `tiles` all of them; BLOCKS counts blocks of input
    channels. `k`, `channels` and the strides of y come divided by 8. A tile has at least STAGES - 1
    rows to wait for.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [STAGES, BM, BK], w.layout)
    ws = gl.allocate_shared_memory(kind, [R * S * BLOCKS, BN, BK], w.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES + 1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES + 1):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    parts = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % parts * BN
    first = gl.program_id(0) // parts
    apart = gl.num_programs(0) // parts
    mbarrier.expect(bars.index(STAGES), R * S * BLOCKS * w.nbytes_per_cta)
    for i in gl.static_range(R * S * BLOCKS):
        tma.async_load(w, [col, i * BK], bars.index(STAGES), ws.index(i))
    total: gl.constexpr = S * BLOCKS * (LINES + R - 1)
    ahead: gl.constexpr = STAGES - 1
    for i in gl.static_range(ahead):
        ask_row(
            x, xs, bars, i, gl.to_tensor(i), first < tiles, first, down, across,
            R, PAD_T, PAD_L, LINES, BM, BK, BLOCKS,
        )  # fmt: skip
    mbarrier.wait(bars.index(STAGES), 0)
    count = gl.cdiv(tiles - first, apart)
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    for j in range(count):
        tile = first + j * apart
        sums = (gl.zeros((BM, BN), gl.float32, layout=mma),) * LINES
        for t in gl.static_range(total):
            at = j * total + t
            sums = add_row(sums, xs, ws, bars, at, t, R, S, LINES, BLOCKS, STAGES)
            # At the end of this tile it is rows of the next one that are asked for.
            ask_row(
                x, xs, bars, (t + ahead) % total, (at + ahead) % STAGES,
                (t + ahead < total) | (j + 1 < count), tile + (t + ahead) // total * apart, down,
                across, R, PAD_T, PAD_L, LINES, BM, BK, BLOCKS,
            )  # fmt: skip
            sums = store_done(
                sums, y, extra, tile, t - total + LINES, col, k, p, q, channels, down, across,
                y_n, y_p, y_q, LINES, BM, BN, WARPS, EVEN, BLOCK, CRD, EPILOGUE, FETCH,
            )  # fmt: skip
    for i in gl.static_range(STAGES + 1):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def ask_row(
    x, xs, bars, t: gl.constexpr, slot, wanted, tile, down, across,
    R: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr, LINES: gl.constexpr,
    BM: gl.constexpr, BK: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    """Let TMA bring row `t` of a tile to stage `slot`, if it is wanted; zeros beyond the image."""
    PATCH: gl.constexpr = LINES + R - 1
    image = tile // (down * across)
    rest = tile % (down * across)
    top = rest // across * LINES - PAD_T + t % PATCH
    left = rest % across * BM - PAD_L + t // PATCH // BLOCKS
    bar = bars.index(slot)
    mbarrier.expect(bar, x.nbytes_per_cta, pred=wanted)
    stage = xs.index(slot).reinterpret(shape=[1, 1, BM, BK], layout=x.layout)
    tma.async_load(x, [image, top, left, t // PATCH % BLOCKS * BK], bar, stage, pred=wanted)


@gluon.jit
def add_row(
    sums, xs, ws, bars, at, t: gl.constexpr, R: gl.constexpr, S: gl.constexpr,
    LINES: gl.constexpr, BLOCKS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Row `t` of a tile to the sums of every result that it is a tap of.

    What the row before was multiplied for is done then, and its stage free.
    """
    PATCH: gl.constexpr = LINES + R - 1
    line: gl.constexpr = t % PATCH
    column: gl.constexpr = t // PATCH // BLOCKS
    block: gl.constexpr = t // PATCH % BLOCKS
    mbarrier.wait(bars.index(at % STAGES), (at // STAGES) & 1)
    stage = xs.index(at % STAGES)
    for r in gl.static_range(R):
        if line - r >= 0 and line - r < LINES:
            taps = ws.index((r * S + column) * BLOCKS + block).permute((1, 0))
            done = warpgroup_mma(stage, taps, sums[line - r], is_async=True)
            # Triton knows no stars.
            sums = sums[: line - r] + (done,) + sums[line - r + 1 :]  # noqa: RUF005
    begun: gl.constexpr = min(line, LINES - 1) - max(line - R + 1, 0) + 1
    return warpgroup_mma_wait(num_outstanding=begun, deps=sums)


@gluon.jit
def store_done(
    sums, y, extra, tile, line: gl.constexpr, col, k, p, q, channels, down, across, y_n, y_p, y_q,
    LINES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, WARPS: gl.constexpr,
    EVEN: gl.constexpr, BLOCK: gl.constexpr, CRD: gl.constexpr, EPILOGUE: gl.constexpr,
    FETCH: gl.constexpr,
):  # fmt: skip
    """Store the results that are complete when products for result `line` have begun.

    The one before is, and is stored beside these products; the tile's last one waits for its own.
    """
    if line > 0:
        store_line(
            sums[line - 1], y, extra, tile, line - 1, col, k, p, q, channels, down, across,
            y_n, y_p, y_q, LINES, WARPS, EVEN, BLOCK, CRD, EPILOGUE, FETCH,
        )  # fmt: skip
    if line == LINES - 1:
        sums = warpgroup_mma_wait(num_outstanding=0, deps=sums)
        store_line(
            sums[line], y, extra, tile, line, col, k, p, q, channels, down, across,
            y_n, y_p, y_q, LINES, WARPS, EVEN, BLOCK, CRD, EPILOGUE, FETCH,
        )  # fmt: skip
    return sums


@gluon.jit
def store_line(
    acc, y, extra, tile, line: gl.constexpr, col, k, p, q, channels, down, across, y_n, y_p, y_q,
    LINES: gl.constexpr, WARPS: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """One row of a tile, as far as it is on the image."""
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    rest = tile % (down * across)
    row = rest // across * LINES + line
    begin = (tile // (down * across) * p + row) * q
    m = begin + rest % across * BM
    end = gl.where(row < p, begin + q, 0)
    fetched = fetch_tile(
        extra, m, col, end, k, p, q, channels, BM, BN, WARPS, EVEN, BLOCK, CRD, FETCH
    )
    store_tile(
        acc, fetched, y, extra, m, col, end, k, p, q, channels, y_n, y_p, y_q, WARPS, EVEN, BLOCK,
        CRD, EPILOGUE,
    )  # fmt: skip
