"""1x1 convolution on Hopper beside weights that stay in shared memory; TMA moves all the rest.

A program keeps the weights of a block of output channels as long as it runs. Its teams of warps
take tiles of pixels beside one another, each with a ring of stages for pixels and a block or two of
shared memory for results: while one team is at the end of a tile, the matrix units work for
another. What the epilogue adds to each element comes to such a block while products are made (of
two, a tile before), and results leave from it, so that threads compute no address of an element.
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
def convolve_stationary(
    x, w, y, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, RESULTS: gl.constexpr, BEGUN: gl.constexpr, MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr = None,
):  # fmt: skip
    """Nothing is read for each element; see `take_programs`."""
    take_programs(
        x, w, y, None, extra, rows, k, p, q, tiles, STRIDE_H, STRIDE_W, BM, BN, BK, STEPS, WARPS,
        TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def convolve_stationary_added(
    x, w, y, e, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, RESULTS: gl.constexpr, BEGUN: gl.constexpr, MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr = None,
):  # fmt: skip
    """The epilogue reads an element of `e` for each; see `take_programs`."""
    take_programs(
        x, w, y, e, extra, rows, k, p, q, tiles, STRIDE_H, STRIDE_W, BM, BN, BK, STEPS, WARPS,
        TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def take_programs(
    x, w, y, e, extra, rows, k, p, q, tiles,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, RESULTS: gl.constexpr, BEGUN: gl.constexpr, MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """A team, of two or three, takes every so manieth tile of BM pixels, for BN channels.

    `rows` counts output pixels of all images, `tiles` their blocks; `k` comes divided by 8. A team
    has RESULTS blocks of shared memory for results and what is added to them. BEGUN steps of each
    team are asked for before warps have parts. MATRIX: pixels are rows of a matrix, side by side.
    """
    kind: gl.constexpr = x.dtype
    xs = gl.allocate_shared_memory(kind, [TEAMS * STAGES, BM, BK], x.layout)
    ws = gl.allocate_shared_memory(kind, [STEPS, BN, BK], w.layout)
    ys = gl.allocate_shared_memory(kind, [TEAMS * RESULTS, BM, BN], y.layout)
    added: gl.constexpr = TEAMS * STAGES
    weights: gl.constexpr = added + TEAMS * RESULTS
    count: gl.constexpr = weights + STEPS
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    col, first, apart = _share(k, BN, TEAMS)
    for i in gl.static_range(STEPS):
        bar = bars.index(weights + i)
        mbarrier.expect(bar, w.nbytes_per_cta)
        tma.async_load(w, [col, i * BK], bar, ws.index(i))
        if i == 0:
            for team in gl.static_range(TEAMS):
                begin_team(
                    x, e, xs, ys, bars, team, first + team, apart, tiles, p, q, col, STRIDE_H,
                    STRIDE_W, BM, BK, STEPS, STAGES, added, RESULTS, BEGUN, MATRIX,
                )  # fmt: skip
    if TEAMS == 2:
        gl.warp_specialize(
            [
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 0, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE,
                    KNOWN,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 1, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE,
                    KNOWN,
                )),
            ],
            [WARPS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 0, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE,
                    KNOWN,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 1, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE,
                    KNOWN,
                )),
                (take_tiles, (
                    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, 2, STRIDE_H, STRIDE_W,
                    BM, BN, BK, STEPS, WARPS, TEAMS, STAGES, RESULTS, BEGUN, MATRIX, EPILOGUE,
                    KNOWN,
                )),
            ],
            [WARPS, WARPS],
        )  # fmt: skip
    for i in gl.static_range(count):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def _share(k, BN: gl.constexpr, TEAMS: gl.constexpr):
    """A program's first output channel, its first team's first tile, how far the next one is."""
    parts = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % parts * BN
    return col, gl.program_id(0) // parts * TEAMS, gl.num_programs(0) // parts * TEAMS


@gluon.jit
def begin_team(
    x, e, xs, ys, bars, TEAM: gl.constexpr, first, apart, tiles, p, q, col, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, BM: gl.constexpr, BK: gl.constexpr, STEPS: gl.constexpr,
    STAGES: gl.constexpr, added: gl.constexpr, RESULTS: gl.constexpr, BEGUN: gl.constexpr,
    MATRIX: gl.constexpr,
):  # fmt: skip
    """Ask for what a team's first tile begins with, whose number is `first`."""
    for t in gl.static_range(BEGUN):
        tile = first + t // STEPS * apart
        ask_pixels(
            x, xs, bars, t % STEPS, TEAM * STAGES + t, tile < tiles, tile, p, q, STRIDE_H, STRIDE_W,
            BM, BK, MATRIX,
        )  # fmt: skip
    if e is not None:
        ask_added(e, ys, bars, TEAM * RESULTS, added, first < tiles, first * BM, col)


@gluon.jit
def take_tiles(
    x, y, e, extra, xs, ws, ys, bars, rows, k, p, q, tiles, TEAM: gl.constexpr,
    STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, STEPS: gl.constexpr, WARPS: gl.constexpr, TEAMS: gl.constexpr,
    STAGES: gl.constexpr, RESULTS: gl.constexpr, BEGUN: gl.constexpr, MATRIX: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """The tiles of one team."""
    col, begin, apart = _share(k, BN, TEAMS)
    first = begin + TEAM
    ahead: gl.constexpr = STAGES - 1
    added: gl.constexpr = TEAMS * STAGES
    weights: gl.constexpr = added + TEAMS * RESULTS
    count = gl.cdiv(tiles - first, apart)
    for i in gl.static_range(BEGUN, ahead):
        ask_pixels(
            x, xs, bars, i % STEPS, TEAM * STAGES + i, i // STEPS < count,
            first + i // STEPS * apart, p, q, STRIDE_H, STRIDE_W, BM, BK, MATRIX,
        )  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    known = known_of(col, k, extra, mma, BN, KNOWN)
    for j in range(count):
        tile = first + j * apart
        m = tile * BM
        place = TEAM * RESULTS + j % RESULTS
        results = ys.index(place)
        if e is not None and RESULTS == 1:  # noqa: SIM102 - the inner one runs
            if j > 0:
                tma.store_wait(0)  # until the results before have left
                ask_added(e, ys, bars, place, added, True, m, col)
        acc = gl.zeros((BM, BN), gl.float32, layout=mma)
        for t in gl.static_range(STEPS):
            at = j * STEPS + t
            slot = at % STAGES
            mbarrier.wait(bars.index(weights + t), 0)  # once, for the weights
            mbarrier.wait(bars.index(TEAM * STAGES + slot), (at // STAGES) & 1)
            acc = warpgroup_mma(
                xs.index(TEAM * STAGES + slot), ws.index(t).permute((1, 0)), acc, is_async=True
            )
            # The step before is done then, and its stage free.
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            ask_pixels(
                x, xs, bars, (t + ahead) % STEPS, TEAM * STAGES + (at + ahead) % STAGES,
                j + (t + ahead) // STEPS < count, tile + (t + ahead) // STEPS * apart, p, q,
                STRIDE_H, STRIDE_W, BM, BK, MATRIX,
            )  # fmt: skip
        if e is not None and RESULTS == 2:
            tma.store_wait(0)  # until the results before have left, where the next ones will lie
            ask_added(
                e, ys, bars, TEAM * RESULTS + (j + 1) % RESULTS, added, j + 1 < count,
                m + apart * BM, col,
            )  # fmt: skip
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        if e is not None:
            mbarrier.wait(bars.index(added + place), (j // RESULTS) & 1)
            fetched = (results.load(mma),)
        else:
            fetched = ()
        image, channel, line, pixel, row_mask, col_mask = _places(
            m, col, rows, k, p, q, 0, BM, BN, True, 1, False, mma
        )
        done = EPILOGUE(acc, image, channel, line, pixel, row_mask, col_mask, fetched, known)
        if e is None:
            tma.store_wait(0)
        results.store(done.to(y.dtype))
        fence_async_shared()
        tma.async_store(y, [m, col], results)
    tma.store_wait(0)


@gluon.jit
def ask_added(e, ys, bars, place, added: gl.constexpr, wanted, m, col):
    """Let TMA bring what is added to a block of results to where they will lie."""
    bar = bars.index(added + place)
    mbarrier.expect(bar, e.nbytes_per_cta, pred=wanted)
    tma.async_load(e, [m, col], bar, ys.index(place), pred=wanted)


@gluon.jit
def ask_pixels(
    x, xs, bars, t: gl.constexpr, slot, wanted, tile, p, q, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, BM: gl.constexpr, BK: gl.constexpr, MATRIX: gl.constexpr,
):  # fmt: skip
    """Let TMA bring block `t` of a tile's input channels to stage `slot`, if it is wanted."""
    bar = bars.index(slot)
    mbarrier.expect(bar, x.nbytes_per_cta, pred=wanted)
    if MATRIX:
        tma.async_load(x, [tile * BM, t * BK], bar, xs.index(slot), pred=wanted)
    else:
        image, top, left = corner_of(tile * BM, p, q, STRIDE_H, STRIDE_W, 0, 0)
        none = gl.to_tensor(0).to(gl.int16)
        tma.async_load_im2col(
            x, [image, top, left, t * BK], [none, none], bar, xs.index(slot), pred=wanted
        )
