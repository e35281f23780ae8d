"""1x1 convolution on Hopper beside weights that stay in shared memory; TMA moves all the rest.

A program keeps the weights of a block of output channels as long as it runs. Its teams of warps
take tiles of pixels beside one another, each with a ring of stages for pixels and a block of shared
memory for results: while one team is at the end of a tile, the matrix units work for another. What
the epilogue adds to each element comes to that block while products are made, and results leave
from it, so that threads compute no address of an element.
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

from saccade.kernels.cuda.conv2d.hopper_code import _places, corner_of


@gluon.jit
def convolve_stationary(
    x, w, y, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """Nothing is read for each element; see `take_programs`."""
    take_programs(
        x, w, y, None, extra, rows, k, p, q, tiles, STRIDE_H, STRIDE_W, BM, BN, BK, STEPS, WARPS,
        TEAMS, STAGES, EPILOGUE,
    )  # fmt: skip


@gluon.jit
def convolve_stationary_added(
    x, w, y, e, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """The epilogue reads an element of `e` for each; see `take_programs`."""
    take_programs(
        x, w, y, e, extra, rows, k, p, q, tiles, STRIDE_H, STRIDE_W, BM, BN, BK, STEPS, WARPS,
        TEAMS, STAGES, EPILOGUE,
    )  # fmt: skip


@gluon.jit
def take_programs(
    x, w, y, e, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """A team, of two or three, takes every so manieth tile of BM pixels, for BN channels.

    `rows` counts output pixels of all images, `tiles` their blocks; `k` comes divided by 8.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [TEAMS * STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [STEPS, BN, BK], w.layout)
    ys = gl.allocate_shared_memory(kind, [TEAMS, BM, BN], y.layout)
    count: gl.constexpr = TEAMS * STAGES + TEAMS + STEPS
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    col = gl.program_id(0) % gl.cdiv(k * 8, BN) * BN
    for i in gl.static_range(STEPS):
        bar = bars.index(TEAMS * STAGES + TEAMS + i)
        mbarrier.expect(bar, w.nbytes_per_cta)
        tma.async_load(w, [col, i * BK], bar, ws.index(i))
    if TEAMS == 2:
        gl.warp_specialize(
            [
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 0, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, EPILOGUE,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 1, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, EPILOGUE,
                )),
            ],
            [WARPS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 0, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, EPILOGUE,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 1, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, EPILOGUE,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 2, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, EPILOGUE,
                )),
            ],
            [WARPS, WARPS],
        )  # fmt: skip
    for i in gl.static_range(count):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def take_tiles(
    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, TEAM: gl.constexpr,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, EPILOGUE: gl.constexpr,
):  # fmt: skip
    """The tiles of one team."""
    parts = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % parts * BN
    first = gl.program_id(0) // parts * TEAMS + TEAM
    apart = gl.num_programs(0) // parts * TEAMS
    ahead: gl.constexpr = STAGES - 1
    count = gl.cdiv(tiles - first, apart)
    for i in gl.static_range(ahead):
        ask_pixels(
            x, xs, bars, i % STEPS, TEAM * STAGES + i, i // STEPS < count,
            first + i // STEPS * apart, p, q, STRIDE_H, STRIDE_W, BM, BK,
        )  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    results = ys.index(TEAM)
    come = bars.index(TEAMS * STAGES + TEAM)
    for j in range(count):
        tile = first + j * apart
        m = tile * BM
        if e is not None:
            tma.store_wait(0)  # until the results before have left
            mbarrier.expect(come, e.nbytes_per_cta)
            tma.async_load(e, [m, col], come, results)
        acc = gl.zeros((BM, BN), gl.float32, layout=mma)
        for t in gl.static_range(STEPS):
            at = j * STEPS + t
            slot = at % STAGES
            mbarrier.wait(bars.index(TEAMS * STAGES + TEAMS + t), 0)  # once, for the weights
            mbarrier.wait(bars.index(TEAM * STAGES + slot), (at // STAGES) & 1)
            acc = warpgroup_mma(
                xs.index(TEAM * STAGES + slot), ws.index(t).permute((1, 0)), acc, is_async=True
            )
            # The step before is done then, and its stage free.
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            ask_pixels(
                x, xs, bars, (t + ahead) % STEPS, TEAM * STAGES + (at + ahead) % STAGES,
                j + (t + ahead) // STEPS < count, tile + (t + ahead) // STEPS * apart, p, q,
                STRIDE_H, STRIDE_W, BM, BK,
            )  # fmt: skip
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        if e is not None:
            mbarrier.wait(come, j & 1)
            fetched = (results.load(mma),)
        else:
            fetched = ()
        image, channel, line, pixel, row_mask, col_mask = _places(
            m, col, rows, k, p, q, 0, BM, BN, True, 1, False, mma
        )
        done = EPILOGUE(acc, image, channel, line, pixel, row_mask, col_mask, fetched, extra)
        if e is None:
            tma.store_wait(0)
        results.store(done.to(y.dtype))
        fence_async_shared()
        tma.async_store(y, [m, col], results)
    tma.store_wait(0)


@gluon.jit
def ask_pixels(
    x, xs, bars, t: gl.constexpr, slot, wanted, tile, p, q, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, BM: gl.constexpr, BK: gl.constexpr,
):  # fmt: skip
    """Let TMA bring block `t` of a tile's input channels to stage `slot`, if it is wanted."""
    image, top, left = corner_of(tile * BM, p, q, STRIDE_H, STRIDE_W, 0, 0)
    none = gl.to_tensor(0).to(gl.int16)
    bar = bars.index(slot)
    mbarrier.expect(bar, x.nbytes_per_cta, pred=wanted)
    tma.async_load_im2col(
        x, [image, top, left, t * BK], [none, none], bar, xs.index(slot), pred=wanted
    )
