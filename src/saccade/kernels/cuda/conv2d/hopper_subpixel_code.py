"""A sub-pixel convolution on Hopper and the 3x3 convolution of the image that it gives.

Two or three teams of warps share the weights. Each goes down a strip of 64 pixels, row by row, the
last R rows of input beside it in shared memory, each shifted for every column of taps; one more
warp lets TMA bring the next ones as soon as a team is done with one. A row of sums is blocks of 2x2
pixels of the image between: through the first epilogue it is the operand of the second weights, in
registers, and gives what each block adds to the 4x4 results around it. Rows of blocks add up from
one to the next; neighbours in a row give each other theirs through shared memory. Pixels at both
ends of a strip have no neighbour there: strips overlap by two.
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
def convolve_subpixel(
    x, w, v, y, extra, k, p, q, across, runs, length, parts, y_n, y_k, y_p, R: gl.constexpr,
    S: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, RING: gl.constexpr, TEAMS: gl.constexpr, M: gl.constexpr,
    CRD: gl.constexpr, Y_VEC: gl.constexpr, EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
    MIDDLE: gl.constexpr, MIDDLE_KNOWN: gl.constexpr,
):  # fmt: skip
    """A team takes one of all `parts`: `length` rows of blocks of a strip, of an image's `runs`.

    `p` and `q` are the size of the first sums, `across` counts strips, M channels of the image
    between. The strides of y come divided by Y_VEC.
    """
    kind: gl.constexpr = x.dtype
    STEPS: gl.constexpr = S * BLOCKS
    xs = gl.allocate_shared_memory(kind, [TEAMS * RING * STEPS, 64, BK], w.layout)
    ws = gl.allocate_shared_memory(kind, [R * STEPS, BN, BK], w.layout)
    vs = gl.allocate_shared_memory(kind, [1, 64, BN], v.layout)
    # Rows that have come, rows that a team is done with, the weights.
    count: gl.constexpr = 2 * TEAMS * RING + 1
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    if TEAMS == 2:
        gl.warp_specialize(
            [
                (take_strip, (
                    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k,
                    y_p, 0, R, STEPS, RING, TEAMS, M, CRD, Y_VEC, EPILOGUE, KNOWN,
                    MIDDLE, MIDDLE_KNOWN,
                )),
                (take_strip, (
                    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k,
                    y_p, 1, R, STEPS, RING, TEAMS, M, CRD, Y_VEC, EPILOGUE, KNOWN,
                    MIDDLE, MIDDLE_KNOWN,
                )),
                (bring_rows, (
                    x, w, v, xs, ws, vs, bars, across, runs, length, parts, R, S, PAD_T, PAD_L, BK,
                    BLOCKS, RING, TEAMS,
                )),
            ],
            [4, 1],
            [232, 40],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (take_strip, (
                    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k,
                    y_p, 0, R, STEPS, RING, TEAMS, M, CRD, Y_VEC, EPILOGUE, KNOWN,
                    MIDDLE, MIDDLE_KNOWN,
                )),
                (take_strip, (
                    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k,
                    y_p, 1, R, STEPS, RING, TEAMS, M, CRD, Y_VEC, EPILOGUE, KNOWN,
                    MIDDLE, MIDDLE_KNOWN,
                )),
                (take_strip, (
                    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k,
                    y_p, 2, R, STEPS, RING, TEAMS, M, CRD, Y_VEC, EPILOGUE, KNOWN,
                    MIDDLE, MIDDLE_KNOWN,
                )),
                (bring_rows, (
                    x, w, v, xs, ws, vs, bars, across, runs, length, parts, R, S, PAD_T, PAD_L, BK,
                    BLOCKS, RING, TEAMS,
                )),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )  # fmt: skip
    for i in gl.static_range(count):
        mbarrier.invalidate(bars.index(i))


@gluon.jit
def place_of(team, across, runs, length, TEAMS: gl.constexpr):
    """A team's part: its image, its first block, the pixel before its strip."""
    part = gl.program_id(0) * TEAMS + team
    return part // across // runs, part // across % runs * length, part % across * 62 - 1


@gluon.jit
def bring_rows(
    x, w, v, xs, ws, vs, bars, across, runs, length, parts, R: gl.constexpr, S: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BK: gl.constexpr, BLOCKS: gl.constexpr,
    RING: gl.constexpr, TEAMS: gl.constexpr,
):  # fmt: skip
    """All weights, and the rows of input of all teams through their rings."""
    STEPS: gl.constexpr = S * BLOCKS
    bar = bars.index(2 * TEAMS * RING)
    mbarrier.expect(bar, R * STEPS * w.nbytes_per_cta + v.nbytes_per_cta)
    for i in gl.static_range(R * STEPS):
        tma.async_load(w, [0, i * BK], bar, ws.index(i))
    tma.async_load(v, [0, 0], bar, vs.index(0))
    for j in range(length + R):
        for team in gl.static_range(TEAMS):
            image, block, left = place_of(team, across, runs, length, TEAMS)
            slot = team * RING + j % RING
            # The first time round all are free: a barrier that was never met is in the phase
            # behind its last.
            wanted = gl.program_id(0) * TEAMS + team < parts
            mbarrier.wait(bars.index(TEAMS * RING + slot), ((j // RING) & 1) ^ 1, pred=wanted)
            bar = bars.index(slot)
            mbarrier.expect(bar, STEPS * x.nbytes_per_cta, pred=wanted)
            for step in gl.static_range(STEPS):
                stage = xs.index(slot * STEPS + step)
                stage = stage.reinterpret(shape=[1, 1, 64, BK], layout=x.layout)
                tma.async_load(
                    x,
                    [
                        image, block - 1 - PAD_T + j, left - PAD_L + step // BLOCKS,
                        step % BLOCKS * BK,
                    ],
                    bar, stage, pred=wanted,
                )  # fmt: skip


@gluon.jit
def take_strip(
    y, extra, xs, ws, vs, bars, k, p, q, across, runs, length, parts, y_n, y_k, y_p,
    TEAM: gl.constexpr, R: gl.constexpr, STEPS: gl.constexpr, RING: gl.constexpr,
    TEAMS: gl.constexpr, M: gl.constexpr, CRD: gl.constexpr, Y_VEC: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr, MIDDLE: gl.constexpr, MIDDLE_KNOWN: gl.constexpr,
):  # fmt: skip
    """The part of one team."""
    BN: gl.constexpr = ws.shape[1]
    image, block, left = place_of(TEAM, across, runs, length, TEAMS)
    # The row above the first is needed for what it adds to this one's results.
    count = gl.where(gl.program_id(0) * TEAMS + TEAM < parts, length + 1, 0)
    first: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16]
    )
    second: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16]
    )
    column = gl.arange(0, BN, layout=gl.SliceLayout(0, first))
    channel = column % M * 4 + column // M if CRD else column
    channels = MIDDLE_KNOWN(channel, column < M * 4, extra)
    at = gl.arange(0, 16, layout=gl.SliceLayout(0, results_layout()))
    plane, lower = at // 2 % 4, at // 8
    planes = KNOWN(plane, plane < k, extra)
    within = gl.arange(0, 64, layout=gl.SliceLayout(1, results_layout()))
    inside = (within > 0) & (within < 63) & (left + within < q)
    inside = inside[:, None] & (plane < k)[None, :]
    across_planes = plane * (y_k * Y_VEC) + lower * (y_p * Y_VEC) + at % 2
    place = (within * 2)[:, None] + across_planes[None, :]
    corner = y + image * (y_n * Y_VEC) + left * 2
    mbarrier.wait(bars.index(2 * TEAMS * RING), 0)
    for j in gl.static_range(R - 1):
        mbarrier.wait(bars.index(TEAM * RING + j), 0, pred=count > 0)
    below = gl.zeros((64, 64), gl.float32, layout=second)
    _, below = halves(below)
    for i in range(count):
        last = i + R - 1
        mbarrier.wait(bars.index(TEAM * RING + last % RING), (last // RING) & 1)
        acc = gl.zeros((64, BN), gl.float32, layout=first)
        for r in gl.static_range(R):
            for step in gl.static_range(STEPS):
                stage = xs.index((TEAM * RING + (i + r) % RING) * STEPS + step)
                taps = ws.index(r * STEPS + step).permute((1, 0))
                acc = warpgroup_mma(stage, taps, acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(bars.index((TEAMS + TEAM) * RING + i % RING), count=1)
        row = block - 1 + i
        operand = operand_of(
            acc, channels, row, left, p, q, channel, M * 4, second, xs.dtype, MIDDLE
        )  # fmt: skip
        around = gl.zeros((64, 64), gl.float32, layout=second)
        # Registers must stay until the product is done.
        around = warpgroup_mma(operand, vs.index(0).permute((1, 0)), around, is_async=False)
        above, after = halves(around)
        store_rows(
            above + below, corner, place, inside & (i > 0), planes, plane, lower, row * 2 - 1, p,
            y_p * Y_VEC, EPILOGUE,
        )  # fmt: skip
        below = after


@gluon.jit
def operand_of(
    acc, channels, row, left, p, q, channel, SUMS: gl.constexpr, second: gl.constexpr,
    kind: gl.constexpr, MIDDLE: gl.constexpr,
):  # fmt: skip
    """A row of sums through the first epilogue, as products take it; zeros beyond the image."""
    pixel = left + gl.arange(0, 64, layout=gl.SliceLayout(1, acc.type.layout))
    there = (pixel >= 0) & (pixel < gl.where((row >= 0) & (row < p), q, 0))
    done = MIDDLE(acc, 0, channel, 0, pixel, there, channel < SUMS, (), channels)
    if (left < 0) | (left + 64 > q) | (row < 0) | (row >= p):
        # An epilogue may make anything of zeros.
        done = gl.where(there[:, None], done, 0.0)
    layout: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=second, k_width=2)
    return gl.convert_layout(done.to(kind), layout)


@gluon.jit
def halves(around):
    """Sums [pixels, 64] as the upper and the lower two rows of results."""
    return around.reshape([64, 2, 32]).permute([0, 2, 1]).split()


@gluon.constexpr_function
def results_layout():
    """Of results [pixels, two neighbours of four planes of two rows], where their sums lie."""
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]],
        [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 16],
    )


@gluon.jit
def store_rows(
    sums, corner, place, wanted, planes, plane, lower, line, p, y_p, EPILOGUE: gl.constexpr
):
    """Sums [pixels, 32] of rows `line` and `line + 1` through the second epilogue."""
    # Of each pixel four places, of which the outer ones are its neighbours'.
    even, odd = sums.reshape([64, 2, 2, 8]).permute([0, 3, 1, 2]).split()
    leftmost, near = even.split()  # places 0 and 2
    here, rightmost = odd.split()  # places 1 and 3
    outer = gl.join(rightmost, leftmost).reshape([64, 16])
    at = gl.arange(0, 64, layout=gl.SliceLayout(1, outer.type.layout))[:, None]
    side = gl.arange(0, 16, layout=gl.SliceLayout(0, outer.type.layout))[None, :] % 2
    at = gl.minimum(gl.maximum(at + side * 2 - 1, 0), 63)
    acc = gl.join(here, near).reshape([64, 16]) + gl.gather(outer, at, axis=0)
    acc = gl.convert_layout(acc, results_layout(), assert_trivial=True)
    done = EPILOGUE(acc, 0, plane, 0, 0, wanted, wanted, (), planes)
    there = (line + lower >= 0) & (line + lower < p * 2)
    gl.store(
        corner + line * y_p + place, done.to(corner.dtype.element_ty), mask=wanted & there[None, :]
    )
