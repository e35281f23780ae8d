"""Convolution on Hopper down strips of 64 pixels, each of two teams of warps on one of its own.

The weights of a block of output channels stay in shared memory. A row of input is a tap of R rows
of results, whose sums are under way at the same time, so that it is brought once for a column of
taps. While one team's row leaves, through the epilogue and by TMA, the matrix units work for the
other's; one more warp lets TMA bring rows as soon as a team is done with others. What the epilogue
reads for each channel is read once a program, what it reads for each element comes by TMA, so that
threads compute no address.
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

TEAMS = gl.constexpr(2)


@gluon.jit
def convolve_strips(
    x, w, y, extra, k, p, across, runs, length, parts, R: gl.constexpr, S: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, RING: gl.constexpr, WIDE: gl.constexpr, CHANNELS: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """Nothing is read for each element; see `take_programs`."""
    take_programs(
        x, w, y, None, extra, k, p, across, runs, length, parts, R, S, PAD_T, PAD_L, BN, BK, BLOCKS,
        RING, WIDE, CHANNELS, EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def convolve_strips_added(
    x, w, y, e, extra, k, p, across, runs, length, parts, R: gl.constexpr, S: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, RING: gl.constexpr, WIDE: gl.constexpr, CHANNELS: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """The epilogue reads an element of `e` for each; see `take_programs`."""
    take_programs(
        x, w, y, e, extra, k, p, across, runs, length, parts, R, S, PAD_T, PAD_L, BN, BK, BLOCKS,
        RING, WIDE, CHANNELS, EPILOGUE, KNOWN,
    )  # fmt: skip


@gluon.jit
def take_programs(
    x, w, y, e, extra, k, p, across, runs, length, parts, R: gl.constexpr, S: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, RING: gl.constexpr, WIDE: gl.constexpr, CHANNELS: gl.constexpr,
    EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """A team takes every so manieth of `parts`: `length` rows of a strip, and R - 1 more.

    All of them are a multiple of R, so that each row of sums has its registers. `across` counts
    strips, `runs` parts of a strip. `k` comes divided by 8. With DepthToSpace WIDE columns of sums
    are the channels of a row of a block, else it is 0; where packing has brought those of a pixel
    together, there are CHANNELS, else 0.
    """
    kind: gl.constexpr = x.dtype
    STEPS: gl.constexpr = S * BLOCKS
    xs = gl.allocate_shared_memory(kind, [TEAMS * RING, 64, BK], w.layout)
    ws = gl.allocate_shared_memory(kind, [R * STEPS, BN, BK], w.layout)
    # What is added to a row comes while the results of the one before leave.
    PLACES: gl.constexpr = 1 if e is None else 2
    ys = gl.allocate_shared_memory(kind, [TEAMS * PLACES, 64, BN], y_layout(y))
    # Of each team: stages that have come, that it is done with, what is added; the weights.
    count: gl.constexpr = 2 * TEAMS * RING + TEAMS + 1
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()  # what TMA arrives at has to be there for it, too
    gl.warp_specialize(
        [
            (take_rows, (
                y, e, extra, xs, ws, ys, bars, k, p, across, runs, length, parts, 0, R, STEPS,
                RING, WIDE, CHANNELS, EPILOGUE, KNOWN,
            )),
            (take_rows, (
                y, e, extra, xs, ws, ys, bars, k, p, across, runs, length, parts, 1, R, STEPS,
                RING, WIDE, CHANNELS, EPILOGUE, KNOWN,
            )),
            (bring_lines, (
                x, w, xs, ws, bars, k, across, runs, length, parts, R, S, PAD_T, PAD_L, BN, BK,
                BLOCKS, RING,
            )),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip
    for i in gl.static_range(count):
        mbarrier.invalidate(bars.index(i))


@gluon.constexpr_function
def y_layout(y):
    """Of results in shared memory, as TMA takes them."""
    swizzle = y.layout.swizzle_byte_width
    return gl.NVMMASharedLayout(swizzle, y.dtype.primitive_bitwidth, 2)


@gluon.jit
def part_of(number, across, runs, length):
    """A part: its image, its first row, its first pixel."""
    return number // across // runs, number // across % runs * length, number % across * 64


@gluon.jit
def bring_lines(
    x, w, xs, ws, bars, k, across, runs, length, parts, R: gl.constexpr, S: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    BLOCKS: gl.constexpr, RING: gl.constexpr,
):  # fmt: skip
    """The weights, and the rows of input of all parts through the rings of both teams."""
    STEPS: gl.constexpr = S * BLOCKS
    blocks = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % blocks * BN
    first = gl.program_id(0) // blocks * TEAMS
    apart = gl.num_programs(0) // blocks * TEAMS
    bar = bars.index(2 * TEAMS * RING + TEAMS)
    mbarrier.expect(bar, R * STEPS * w.nbytes_per_cta)
    for i in gl.static_range(R * STEPS):
        tma.async_load(w, [col, i * BK], bar, ws.index(i))
    lines = length + R - 1
    for number in range(gl.cdiv(parts - first, apart)):
        for j in range(lines):
            for step in gl.static_range(STEPS):
                for team in gl.static_range(TEAMS):
                    part = first + number * apart + team
                    image, top, left = part_of(part, across, runs, length)
                    bring_stage(
                        x, xs, bars, (number * lines + j) * STEPS + step, team, image,
                        top - PAD_T + j, left - PAD_L + step // BLOCKS, step % BLOCKS * BK, RING,
                        BK, part < parts,
                    )  # fmt: skip


@gluon.jit
def bring_stage(
    x, xs, bars, at, TEAM: gl.constexpr, image, line, pixel, channel, RING: gl.constexpr,
    BK: gl.constexpr, wanted,
):  # fmt: skip
    """A row of input, of some channels, to a team's next stage."""
    slot = TEAM * RING + at % RING
    # The first time round all are free: a barrier that was never met is in the phase behind its
    # last.
    mbarrier.wait(bars.index(TEAMS * RING + slot), ((at // RING) & 1) ^ 1, pred=wanted)
    bar = bars.index(slot)
    mbarrier.expect(bar, x.nbytes_per_cta, pred=wanted)
    stage = xs.index(slot).reinterpret(shape=[1, 1, 64, BK], layout=x.layout)
    tma.async_load(x, [image, line, pixel, channel], bar, stage, pred=wanted)


@gluon.jit
def take_rows(
    y, e, extra, xs, ws, ys, bars, k, p, across, runs, length, parts, TEAM: gl.constexpr,
    R: gl.constexpr, STEPS: gl.constexpr, RING: gl.constexpr, WIDE: gl.constexpr,
    CHANNELS: gl.constexpr, EPILOGUE: gl.constexpr, KNOWN: gl.constexpr,
):  # fmt: skip
    """Every other part of a program."""
    BN: gl.constexpr = ws.shape[1]
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16]
    )
    blocks = gl.cdiv(k * 8, BN)
    col = gl.program_id(0) % blocks * BN
    first = gl.program_id(0) // blocks * TEAMS + TEAM
    apart = gl.num_programs(0) // blocks * TEAMS
    at = col + gl.arange(0, BN, layout=gl.SliceLayout(0, mma))
    channel = at
    if CHANNELS > 0:
        channel = at % CHANNELS * (k * 8 // CHANNELS) + at // CHANNELS
    known = KNOWN(channel, at < k * 8, extra)
    PLACES: gl.constexpr = 1 if e is None else 2
    come = bars.index(2 * TEAMS * RING + TEAM)
    turns = (length + R - 1) // R
    mbarrier.wait(bars.index(2 * TEAMS * RING + TEAMS), 0)
    sums = (gl.zeros((64, BN), gl.float32, layout=mma),) * R
    if e is not None:
        image, top, left = part_of(first, across, runs, length)
        bring_added(e, ys.index(TEAM * PLACES), come, image, top - (R - 1), left, col, BN)
    for number in range(gl.cdiv(parts - first, apart)):
        image, top, left = part_of(first + number * apart, across, runs, length)
        for turn in range(turns):
            for u in gl.static_range(R):
                line = (number * turns + turn) * R + u
                row = top + turn * R + u - (R - 1)
                sums = row_added(sums, xs, ws, bars, line, u, TEAM, R, STEPS, RING)
                place = ys.index(TEAM * PLACES + line % PLACES)
                if e is not None:
                    mbarrier.wait(come, line & 1)
                    fetched = (place.load(mma),)
                else:
                    fetched = ()
                done = EPILOGUE(
                    sums[(u + 1) % R], 0, channel, 0, 0, at < k * 8, at < k * 8, fetched, known
                )
                tma.store_wait(0)  # until the results before have left
                place.store(done.to(y.dtype))
                fence_async_shared()
                if e is not None:
                    # Beyond the last part nothing is there, and zeros come.
                    follows = first + (number + 1) * apart
                    image1, top1, left1 = part_of(follows, across, runs, length)
                    ends = turn + 1 == turns if u + 1 == R else False
                    bring_added(
                        e, ys.index(TEAM * PLACES + (line + 1) % PLACES), come,
                        gl.where(ends, image1, image), gl.where(ends, top1 - (R - 1), row + 1),
                        gl.where(ends, left1, left), col, BN,
                    )  # fmt: skip
                if (turn * R + u >= R - 1) & (row < p):
                    store_row(y, place, image, row, left, col, WIDE, BN)
    tma.store_wait(0)
    if e is not None:
        # What was asked for last has come, before the memory is another program's.
        total = gl.cdiv(parts - first, apart) * turns * R
        mbarrier.wait(come, total & 1)


@gluon.jit
def row_added(
    sums, xs, ws, bars, line, u: gl.constexpr, TEAM: gl.constexpr, R: gl.constexpr,
    STEPS: gl.constexpr, RING: gl.constexpr,
):  # fmt: skip
    """The sums with a row of input added to all those that it is a tap of; its stages are free."""
    for step in gl.static_range(STEPS):
        over = line * STEPS + step
        slot = TEAM * RING + over % RING
        mbarrier.wait(bars.index(slot), (over // RING) & 1)
        sums = begun(sums, xs.index(slot), ws, u, step, R, STEPS)
        if step > 0:
            # The products of the step before are done, and its stage is free.
            sums = awaited(sums, R)
            before = TEAM * RING + (over - 1) % RING
            mbarrier.arrive(bars.index(TEAMS * RING + before), count=1)
    sums = awaited(sums, 0)
    slot = TEAM * RING + (line * STEPS + STEPS - 1) % RING
    mbarrier.arrive(bars.index(TEAMS * RING + slot), count=1)
    return sums


@gluon.jit
def bring_added(e, place, come, image, row, left, col, BN: gl.constexpr):
    """Let TMA bring what is added to a row of results."""
    mbarrier.expect(come, e.nbytes_per_cta)
    place = place.reinterpret(shape=[1, 1, 1, 64, BN], layout=e.layout)
    tma.async_load(e, [image, row, 0, left, col], come, place)


@gluon.jit
def begun(sums, a, ws, u: gl.constexpr, step: gl.constexpr, R: gl.constexpr, STEPS: gl.constexpr):
    """The sums with a stage on its way to all those that it is a tap of."""
    for r in gl.static_range(R):
        taps = ws.index(r * STEPS + step).permute((1, 0))
        done = warpgroup_mma(a, taps, sums[(u + R - r) % R], use_acc=r + step > 0, is_async=True)
        sums = replaced(sums, (u + R - r) % R, done)
    return sums


@gluon.jit
def replaced(sums, at: gl.constexpr, done):
    """The sums with others in one place."""
    return sums[:at] + (done,) + sums[at + 1 :]  # noqa: RUF005 - Triton knows no stars


@gluon.jit
def awaited(sums, begun: gl.constexpr):
    """The sums once all but so many products are done."""
    return warpgroup_mma_wait(num_outstanding=begun, deps=sums)


@gluon.jit
def store_row(y, place, image, row, left, col, WIDE: gl.constexpr, BN: gl.constexpr):
    """Let TMA take a row of results away, as far as it is on the image."""
    PART: gl.constexpr = y.block_shape[4]
    for i in gl.static_range(BN // PART):
        part = place.slice(i * PART, PART, dim=1)
        part = part.reinterpret(shape=[1, 1, 1, 64, PART], layout=y.layout)
        at = col + i * PART
        if WIDE > 0:
            tma.async_store(y, [image, row, at // WIDE, left, at % WIDE], part)
        else:
            tma.async_store(y, [image, row, 0, left, at], part)
