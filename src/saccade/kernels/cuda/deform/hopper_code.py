"""Deformable convolution on Hopper, in Gluon: samples are the products' operand, in registers.

A program has 128 pixels, a block of outputs and a part of the terms: some channels that have the
same offsets. Each of two teams of four warps samples its 64 pixels for a step while its
asynchronous products of the step before are made; one more warp brings weights, and where the
pixels sample. Steps go through the channels in blocks of 64, and through the taps of a block before
the next: what a tap samples lies near what the one before did, in the L1 cache.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.constexpr_function
def samples_layout():
    """Of half a team's samples, [64, 32]: a thread has eight channels of two pixels.

    Pixels are where products want them; that channels are not, weights make up for.
    """
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0]], [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]], [], [64, 32],
    )  # fmt: skip


@gluon.constexpr_function
def squares_layout():
    """Of a table [64, 4] of the same pixels."""
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]], [[0, 0], [0, 0], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [],
        [64, 4],
    )  # fmt: skip


@gluon.jit
def columns_of(table):
    """The four columns of a table in shared memory, each [64, 1]."""
    rows: gl.constexpr = gl.SliceLayout(1, samples_layout())
    both, others = table.load(squares_layout()).reshape((64, 2, 2)).split()
    a, c = both.split()
    b, d = others.split()
    return (
        gl.convert_layout(a, rows, assert_trivial=True)[:, None],
        gl.convert_layout(b, rows, assert_trivial=True)[:, None],
        gl.convert_layout(c, rows, assert_trivial=True)[:, None],
        gl.convert_layout(d, rows, assert_trivial=True)[:, None],
    )


@gluon.constexpr_function
def sum_text(half):
    """PTX of the weighted sums of two channels, twice, changed for each other in odd pixels.

    Operands: both results; whether the pixel is odd, twice; four pixels of the first sum and of the
    second, two channels each; their weights, twice each: both halves of a word, or float32.
    """
    lines = []
    for name, first in (("a", 4), ("b", 8)):
        for i in range(4):
            value, weight = f"${first + i}", f"${12 + 2 * i}"
            if half:
                sum_ = f"fma.rn.f16x2 {name}, {value}, {weight}, {name};"
                lines.append(sum_ if i else f"mul.rn.f16x2 {name}, {value}, {weight};")
                continue
            lines += [f"shl.b32 low, {value}, 16;", f"and.b32 high, {value}, 0xffff0000;"]
            for part in ("low", "high"):
                to = f"{part}_{name}"
                sum_ = f"fma.rn.f32 {to}, {part}, {weight}, {to};"
                lines.append(sum_ if i else f"mul.f32 {to}, {part}, {weight};")
        if not half:
            lines.append(f"cvt.rn.bf16x2.f32 {name}, high_{name}, low_{name};")
    registers = "a, b, low, high, low_a, high_a, low_b, high_b"
    return "\n".join(
        ("{", f".reg .b32 {registers};", ".reg .pred odd;", *lines, "setp.ne.s32 odd, $2, 0;",
         "selp.b32 $0, b, a, odd;", "selp.b32 $1, a, b, odd;", "}")
    )  # fmt: skip


@gluon.jit
def pixels_at(x, corner):
    """Eight channels of a pixel; zeros where there is none."""
    return gl.load(x + corner.to(gl.int64) * 8, mask=corner >= 0, other=0)


@gluon.jit
def sample(x, corners, weights, mma: gl.constexpr):
    """Samples of 64 channels, with which `x` begins, as the products' operand."""
    layout: gl.constexpr = samples_layout()
    # The halves of odd pixels the other way round, so that no two loads want the same banks.
    odd = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None] % 2
    lane = gl.arange(0, 32, layout=gl.SliceLayout(0, layout))[None, :]
    one, other = x + (lane + 32 * odd), x + (lane + (32 - 32 * odd))
    c0, c1, c2, c3 = columns_of(corners)
    w0, w1, w2, w3 = columns_of(weights)
    first, second = gl.inline_asm_elementwise(
        sum_text(x.dtype.element_ty == gl.float16), "=r,=r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r",
        [
            odd, pixels_at(one, c0), pixels_at(one, c1), pixels_at(one, c2), pixels_at(one, c3),
            pixels_at(other, c0), pixels_at(other, c1), pixels_at(other, c2), pixels_at(other, c3),
            w0, w1, w2, w3,
        ],
        dtype=(x.dtype.element_ty, x.dtype.element_ty), is_pure=True, pack=2,
    )  # fmt: skip
    a = gl.join(first, second).permute((0, 2, 1)).reshape((64, 2, 4, 2, 2, 2))
    a = a.permute((0, 1, 3, 4, 2, 5)).reshape((64, 64))
    return gl.convert_layout(a, gl.DotOperandLayout(0, mma, 2), assert_trivial=True)


@gluon.constexpr_function
def copy_text(nbytes):
    """PTX by which a warp's first thread lets so many bytes come to shared memory."""
    copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
    # The predicate's name is one as the compiler gives, which checked code looks for.
    return f"""{{
    .reg .pred %p70001;
    .reg .b32 lane;
    mov.u32 lane, %laneid;
    setp.eq.u32 %p70001, lane, 0;
    @%p70001 {copy} [$0], [$1], {nbytes}, [$2];
    }}"""


@gluon.jit
def bring(
    w, squares, ws, tables, bars, plane, size, steps, TAPS: gl.constexpr, STAGES: gl.constexpr
):
    """Where the pixels sample, and the weights of all steps."""
    BYTES: gl.constexpr = 2 * ws.shape[1] * ws.shape[2]
    there = bars.index(2 * STAGES)
    mbarrier.expect(there, 2 * TAPS * 128 * 16)
    for i in range(2 * TAPS):
        gl.inline_asm(
            copy_text(128 * 16), "r,l,r", [tables.index(i), squares + i * plane, there],
            is_pure=False,
        )  # fmt: skip
    for t in range(steps):
        slot = t % STAGES
        # The first time round all stages are free: see `hopper_teams_code`.
        mbarrier.wait(bars.index(STAGES + slot), ((t // STAGES) & 1) ^ 1)
        bar = bars.index(slot)
        mbarrier.expect(bar, BYTES)
        gl.inline_asm(copy_text(BYTES), "r,l,r", [ws.index(slot), w + t * size, bar], is_pure=False)


@gluon.jit
def take(
    x, parts, ws, tables, bars, row, col, pixels, k, steps, TEAM: gl.constexpr,
    TAPS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """All steps of a team, and its sums to memory."""
    BN: gl.constexpr = ws.shape[1]
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16]
    )
    acc = gl.zeros((64, BN), gl.float32, layout=mma)
    mbarrier.wait(bars.index(2 * STAGES), 0)
    a = sample(
        x, tables.index(0).slice(64 * TEAM, 64), tables.index(TAPS).slice(64 * TEAM, 64), mma
    )
    gl.assume(steps > 0)  # or ptxas may let products wait for each other
    for t in range(steps):
        slot = t % STAGES
        mbarrier.wait(bars.index(slot), (t // STAGES) & 1)
        made = warpgroup_mma(a, ws.index(slot).permute((1, 0)), acc, is_async=True)
        then = gl.minimum(t + 1, steps - 1)  # the last one again, for nothing
        tap = then % TAPS
        following = sample(
            x + then // TAPS * 64, tables.index(tap).slice(64 * TEAM, 64),
            tables.index(TAPS + tap).slice(64 * TEAM, 64), mma,
        )  # fmt: skip
        acc, a = warpgroup_mma_wait(num_outstanding=0, deps=(made, a))
        mbarrier.arrive(bars.index(STAGES + slot), count=1)
        a = following
    at = row + gl.arange(0, 64, layout=gl.SliceLayout(1, mma))
    out = col + gl.arange(0, BN, layout=gl.SliceLayout(0, mma))
    to = parts + at.to(gl.int64)[:, None] * k + out[None, :]
    gl.store(to, acc, mask=(at < pixels)[:, None] & (out < k)[None, :])


@gluon.jit
def fused(
    x, squares, w, parts, extra, pixels, first_pixel, rows, shared, k, shares,
    TAPS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Sums of some channels to `parts` [part, pixels, outputs].

    See `hopper_copies_code` for squares and weights; the pixels begin with `first_pixel` of its
    rows. `shared` counts blocks of channels that have the same offsets, `shares` parts of them.
    """
    kind: gl.constexpr = x.dtype.element_ty
    blocks = gl.cdiv(k, BN)
    tiles = gl.cdiv(pixels, BM)
    pid = gl.program_id(0)
    col = pid % blocks * BN
    row = pid // blocks % tiles * BM
    part = pid // (blocks * tiles)
    group = part // shares
    share = gl.cdiv(shared, shares)
    first = part % shares * share
    steps = gl.minimum(share, shared - first) * TAPS
    first += group * shared
    ws = gl.allocate_shared_memory(kind, [STAGES, BN, BK], gl.NVMMASharedLayout(128, 16, 2))
    rowed: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tables = gl.allocate_shared_memory(gl.int32, [2 * TAPS, BM, 4], rowed)
    bars = gl.allocate_shared_memory(gl.int64, [2 * STAGES + 1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2 * STAGES + 1):
        # Stages that have come, stages that both teams have done with, tables.
        mbarrier.init(bars.index(i), count=2 if i // STAGES == 1 else 1)
    fence_async_shared()
    x += first * BK
    w += first * TAPS * (blocks * BN * BK) + col * BK
    parts += part.to(gl.int64) * pixels * k
    gl.warp_specialize(
        [
            (take, (x, parts, ws, tables, bars, row, col, pixels, k, steps, 0, TAPS, STAGES)),
            (take, (x, parts, ws, tables, bars, row + 64, col, pixels, k, steps, 1, TAPS, STAGES)),
            (bring, (
                w, squares + (group * 2 * TAPS * rows + first_pixel + row) * 4, ws, tables, bars,
                rows * 4, blocks * BN * BK, steps, TAPS, STAGES,
            )),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip
    for i in gl.static_range(2 * STAGES + 1):
        mbarrier.invalidate(bars.index(i))
