"""What kernels share whose operands go straight to lanes: asking ahead, storing sums."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def threads(WARPS: gl.constexpr):
    """Each thread's number."""
    return gl.arange(0, 32 * WARPS, layout=gl.BlockedLayout([1], [32], [WARPS], [0]))


@gluon.jit
def ask(addresses, nbytes):
    """Each thread asks the L2 cache for bytes: whole sixteens, of which none need be there."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 n; .reg .b64 a; and.b32 n, $2, -16; setp.gt.s32 p, n, 0; "
        "and.b64 a, $1, -16; @p cp.async.bulk.prefetch.L2.global [a], n; mov.b32 $0, 0; }",
        "=r,l,r",
        [addresses, nbytes],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.constexpr_function
def runs_of(BN):
    """Columns of eight that a lane's neighbours come from: four, for sixteen bytes a lane."""
    return min(BN // 8, 4)


@gluon.constexpr_function
def together_layout(BM, BN, WARPS):
    """Of sums [pixels, channels], runs of neighbours of a pixel in a lane."""
    run = 2 * runs_of(BN)
    channels = [[0, 1 << i] for i in range(run.bit_length() - 1)]
    channels += [[0, 4 * run << i] for i in range((BN // (4 * run)).bit_length() - 1)]
    below = [[16 * WARPS << i, 0] for i in range((BM // (16 * WARPS)).bit_length() - 1)]
    lanes = [[0, run], [0, 2 * run], [1, 0], [2, 0], [4, 0]]
    warps = [[16 << i, 0] for i in range(WARPS.bit_length() - 1)]
    return gl.DistributedLinearLayout([*channels, [8, 0], *below], lanes, warps, [], [BM, BN])


@gluon.jit
def channels_together(acc, WARPS: gl.constexpr):
    """Sums [pixels, columns] with columns in the order of channels: no data moves."""
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    RUN: gl.constexpr = runs_of(BN)
    apart = acc.reshape([BM, BN // (8 * RUN), RUN, 4, 2]).permute([0, 1, 3, 2, 4])
    layout: gl.constexpr = together_layout(BM, BN, WARPS)
    return gl.convert_layout(apart.reshape([BM, BN]), layout, assert_trivial=True)


@gluon.jit
def store_pixels(
    acc, y, extra, image, line, first, col, k, p, q, y_n, y_p, y_q, WIDE: gl.constexpr,
    EPILOGUE: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """Sums [pixels, channels] of WIDE pixels a line through the epilogue to the result.

    As they lie in lanes; `line` and `first` are the first one's.
    """
    BM: gl.constexpr = acc.shape[0]
    BN: gl.constexpr = acc.shape[1]
    rows: gl.constexpr = gl.SliceLayout(1, acc.type.layout)
    channel = col + gl.arange(0, BN, layout=gl.SliceLayout(0, acc.type.layout))
    row = gl.arange(0, BM, layout=rows)
    pixel = first + row % WIDE
    lines = line + row // WIDE
    images = image + gl.zeros((BM,), gl.int32, layout=rows)
    row_mask = (pixel < q) & (lines < p)
    there = channel < k * 8
    fetched = ()
    if FETCH is not None:
        fetched = FETCH(images, channel, lines, pixel, row_mask, there, extra)
    done = EPILOGUE(acc, images, channel, lines, pixel, row_mask, there, fetched, extra)
    place = (image * (y_n * 8) + lines * (y_p * 8) + pixel * (y_q * 8))[:, None]
    place = place + channel[None, :]
    gl.store(y + place, done.to(y.dtype.element_ty), mask=row_mask[:, None] & there[None, :])
