"""Convolution on Hopper by patches of pixels that serve all taps of a column.

A tile is LINES rows of WIDE output pixels. For a column of taps and a block of channels its patch
of input comes in one piece, shifted by the tap's column, and each tap of the column multiplies
another part of it: rows of WIDE pixels lie one behind the other in shared memory, so that a tap a
row further down begins WIDE pixels later. Of strides of two, even and odd rows come apart. The
weights of a block of output channels stay in shared memory for as many tiles as a program takes.
Two teams of warps may take tiles beside one another: while one stores, the matrix units work for
the other. Groups are put together until their channels fill a product; weights between different
ones are zeros.
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
def convolve_patches(
    x, w, y, extra, k, p, q, down, across, tiles, blocks, y_n, y_p, y_q,
    R: gl.constexpr, S: gl.constexpr, STRIDE: gl.constexpr, PAD_T: gl.constexpr,
    PAD_L: gl.constexpr, LINES: gl.constexpr, WIDE: gl.constexpr, BN: gl.constexpr,
    BK: gl.constexpr, DEEP: gl.constexpr, INPUTS: gl.constexpr, OUTPUTS: gl.constexpr,
    TEAMS: gl.constexpr, STAGES: gl.constexpr, EVEN: gl.constexpr, EPILOGUE: gl.constexpr,
    FETCH: gl.constexpr = None,
):  # fmt: skip
    """A team takes every so manieth tile, for a block of OUTPUTS channels.

    A block sums over DEEP times BK input channels and begins INPUTS behind the one before. `down`
    and `across` count tiles of an image, `tiles` all of them, `blocks` those of channels. `k` and
    the strides of y come divided by 8. Steps of a tile, one for each column of taps and BK
    channels, are a multiple of STAGES, so that each has its stage whatever the tile.
    """
    kind: gl.constexpr = x.dtype
    PATCH: gl.constexpr = patch_lines(LINES, R, STRIDE)
    xs = gl.allocate_shared_memory(kind, [TEAMS * STAGES * PATCH, WIDE, BK], w.layout)
    ws = gl.allocate_shared_memory(kind, [R * S * DEEP, BN, BK], w.layout)
    bars = gl.allocate_shared_memory(gl.int64, [TEAMS * STAGES + 1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(TEAMS * STAGES + 1):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    bar = bars.index(TEAMS * STAGES)
    mbarrier.expect(bar, R * S * DEEP * w.nbytes_per_cta)
    for i in gl.static_range(R * S * DEEP):
        tma.async_load(w, [gl.program_id(0) % blocks * BN, i * BK], bar, ws.index(i))
    if TEAMS == 1:
        take_patches(
            x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, blocks, y_n, y_p, y_q, 0, R, S,
            STRIDE, PAD_T, PAD_L, LINES, WIDE, BN, BK, DEEP, INPUTS, OUTPUTS, TEAMS, STAGES, EVEN,
            EPILOGUE, FETCH,
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_patches, (
                    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, blocks, y_n, y_p, y_q,
                    0, R, S, STRIDE, PAD_T, PAD_L, LINES, WIDE, BN, BK, DEEP, INPUTS, OUTPUTS,
                    TEAMS, STAGES, EVEN, EPILOGUE, FETCH,
                )),
                (take_patches, (
                    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, blocks, y_n, y_p, y_q,
                    1, R, S, STRIDE, PAD_T, PAD_L, LINES, WIDE, BN, BK, DEEP, INPUTS, OUTPUTS,
                    TEAMS, STAGES, EVEN, EPILOGUE, FETCH,
                )),
            ],
            [4],
        )  # fmt: skip
    for i in gl.static_range(TEAMS * STAGES + 1):
        mbarrier.invalidate(bars.index(i))


@gluon.constexpr_function
def patch_lines(LINES, R, STRIDE):
    """Rows of a patch: those of each remainder by the stride lie together."""
    return min(STRIDE, R) * (LINES + (R - 1) // STRIDE)


@gluon.jit
def take_patches(
    x, y, extra, xs, ws, bars, k, p, q, down, across, tiles, blocks, y_n, y_p, y_q,
    TEAM: gl.constexpr, R: gl.constexpr, S: gl.constexpr, STRIDE: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, LINES: gl.constexpr, WIDE: gl.constexpr,
    BN: gl.constexpr, BK: gl.constexpr, DEEP: gl.constexpr, INPUTS: gl.constexpr,
    OUTPUTS: gl.constexpr, TEAMS: gl.constexpr, STAGES: gl.constexpr, EVEN: gl.constexpr,
    EPILOGUE: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """The tiles of one team."""
    steps: gl.constexpr = S * DEEP
    block = gl.program_id(0) % blocks
    first = gl.program_id(0) // blocks * TEAMS + TEAM
    apart = gl.num_programs(0) // blocks * TEAMS
    ahead: gl.constexpr = STAGES - 1
    for i in gl.static_range(ahead):
        ask_patch(
            x, xs, bars, i, TEAM, first, tiles, down, across, block, R, STRIDE, PAD_T, PAD_L, LINES,
            WIDE, BK, DEEP, INPUTS, STAGES,
        )  # fmt: skip
    mbarrier.wait(bars.index(TEAMS * STAGES), 0)
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16]
    )
    flat: gl.constexpr = flat_layout(BN, 4)
    for j in range(gl.cdiv(tiles - first, apart)):
        tile = first + j * apart
        acc = gl.zeros((LINES * WIDE, BN), gl.float32, layout=mma)
        for t in gl.static_range(steps):
            acc = add_column(
                acc, xs, ws, bars, TEAM * STAGES + t % STAGES,
                (j * (steps // STAGES) + t // STAGES) & 1, t, R, steps, STRIDE, LINES,
            )  # fmt: skip
            # The products of the step before are done then, and its stage is free.
            acc = warpgroup_mma_wait(num_outstanding=R, deps=(acc,))
            ask_patch(
                x, xs, bars, (t + ahead) % steps, TEAM, tile + (t + ahead) // steps * apart, tiles,
                down, across, block, R, STRIDE, PAD_T, PAD_L, LINES, WIDE, BK, DEEP, INPUTS, STAGES,
            )  # fmt: skip
        if FETCH is not None:
            image, channel, row, pixel, there, filters = patch_places(
                tile, block, k, p, q, down, across, LINES, WIDE, BN, OUTPUTS, EVEN, flat
            )
            fetched = FETCH(image, channel, row, pixel, there, filters, extra)
        else:
            fetched = ()
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        image, channel, row, pixel, there, filters = patch_places(
            tile, block, k, p, q, down, across, LINES, WIDE, BN, OUTPUTS, EVEN, mma
        )
        done = EPILOGUE(acc, image, channel, row, pixel, there, filters, fetched, extra)
        done = gl.convert_layout(done.to(y.dtype.element_ty), flat)
        image, channel, row, pixel, there, filters = patch_places(
            tile, block, k, p, q, down, across, LINES, WIDE, BN, OUTPUTS, EVEN, flat
        )
        place_tile(
            done, y, image, row, pixel, there, filters, block * OUTPUTS, k, y_n, y_p, y_q, EVEN, 1
        )


@gluon.jit
def add_column(
    acc, xs, ws, bars, slot: gl.constexpr, phase, t: gl.constexpr, R: gl.constexpr,
    steps: gl.constexpr, STRIDE: gl.constexpr, LINES: gl.constexpr,
):  # fmt: skip
    """The products of step `t` of a tile on their way to the sums, once its patch is there."""
    PATCH: gl.constexpr = patch_lines(LINES, R, STRIDE)
    EACH: gl.constexpr = LINES + (R - 1) // STRIDE
    mbarrier.wait(bars.index(slot), phase)
    for r in gl.static_range(R):
        lines = xs.slice(slot * PATCH + r % STRIDE * EACH + r // STRIDE, LINES, dim=0)
        pixels = lines.reinterpret(shape=[LINES * xs.shape[1], xs.shape[2]], layout=ws.layout)
        taps = ws.index(r * steps + t).permute((1, 0))
        acc = warpgroup_mma(pixels, taps, acc, use_acc=r + t > 0, is_async=True)
    return acc


@gluon.jit
def ask_patch(
    x, xs, bars, t: gl.constexpr, TEAM: gl.constexpr, tile, tiles, down, across, block,
    R: gl.constexpr, STRIDE: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    LINES: gl.constexpr, WIDE: gl.constexpr, BK: gl.constexpr, DEEP: gl.constexpr,
    INPUTS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Let TMA bring the patch of step `t` of a tile, if there is one; zeros beyond the image."""
    PATCH: gl.constexpr = patch_lines(LINES, R, STRIDE)
    EACH: gl.constexpr = LINES + (R - 1) // STRIDE
    wanted = tile < tiles
    image = tile // (down * across)
    rest = tile % (down * across)
    top = rest // across * (LINES * STRIDE) - PAD_T
    left = rest % across * (WIDE * STRIDE) - PAD_L + t // DEEP
    channel = block * INPUTS + t % DEEP * BK
    slot: gl.constexpr = TEAM * STAGES + t % STAGES
    bar = bars.index(slot)
    mbarrier.expect(bar, PATCH * x.nbytes_per_cta, pred=wanted)
    for i in gl.static_range(PATCH // EACH):
        # A load brings EACH rows, of which Triton knows the first.
        line = xs.index(slot * PATCH + i * EACH).reinterpret(
            shape=[1, 1, WIDE, BK], layout=x.layout
        )
        tma.async_load(x, [image, top + i, left, channel], bar, line, pred=wanted)


@gluon.jit
def patch_places(
    tile, block, k, p, q, down, across, LINES: gl.constexpr, WIDE: gl.constexpr, BN: gl.constexpr,
    OUTPUTS: gl.constexpr, EVEN: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """Of a tile's rows and columns: n, k, p, q of the sums, and which rows and channels there are.

    EVEN: pixels are numbered through all images, as q.
    """
    rest = tile % (down * across)
    i = gl.arange(0, LINES * WIDE, layout=gl.SliceLayout(1, layout))
    image = tile // (down * across) + 0 * i
    row = rest // across * LINES + i // WIDE
    pixel = rest % across * WIDE + i % WIDE
    there = (row < p) & (pixel < q)
    at = gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    channel = block * OUTPUTS + at
    filters = (at < OUTPUTS) & (channel < k * 8)
    if EVEN:
        pixel += (image * p + row) * q
        image, row = pixel, pixel
    return image, channel, row, pixel, there, filters
