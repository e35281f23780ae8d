"""Convolution to a few planes, whose rows of x go straight to the lanes that multiply them.

A matrix instruction takes of its second operand from lane `q` of four the terms 2q, 2q+1, 2q+8 and
2q+9 of a column. Which term is which channel is free, as long as both operands agree: with terms
numbered so that a lane's are neighbours in memory, one load is the operand, and nothing goes
through shared memory.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from saccade.kernels.cuda.conv2d.lanes_code import ask, threads


@gluon.constexpr_function
def sums_layout(WARPS):
    """Of sums [16, pixels], eight pixels an instruction."""
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[1, WARPS], instr_shape=[16, 8])


@gluon.constexpr_function
def pixels_layout(BM, BC, WARPS):
    """Of x [pixels, channels]: lane `q` of four has a fourth of the channels, side by side."""
    each = BC // 4
    channels = [[0, 1 << i] for i in range(each.bit_length() - 1)]
    beside = [[8 * WARPS << i, 0] for i in range((BM // (8 * WARPS)).bit_length() - 1)]
    lanes = [[0, each], [0, 2 * each], [1, 0], [2, 0], [4, 0]]
    warps = [[8 << i, 0] for i in range(WARPS.bit_length() - 1)]
    return gl.DistributedLinearLayout([*channels, *beside], lanes, warps, [], [BM, BC])


@gluon.jit
def operand_of(block, WARPS: gl.constexpr):
    """A block of x as `pixels_layout` has it, as second operand of products: no data moves."""
    BM: gl.constexpr = block.shape[0]
    BC: gl.constexpr = block.shape[1]
    layout: gl.constexpr = gl.DotOperandLayout(1, sums_layout(WARPS), k_width=2)
    apart = block.reshape([BM, 4, BC // 16, 2, 2]).permute([2, 3, 1, 4, 0])
    return gl.convert_layout(apart.reshape([BC, BM]), layout, assert_trivial=True)


@gluon.jit
def row_of_taps(
    x, at, left, line, h, wd, x_h, chan, channels, S: gl.constexpr, STEP: gl.constexpr,
    FULL: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Operands for each tap of row `line` of x, zeros outside of it.

    `at` says where pixels `left` are in a row. FULL: blocks have the channels that there are.
    """
    blocks = ()
    # One comparison for both edges, and for rows outside: none of their pixels is.
    there = gl.where((line >= 0) & (line < h), wd, 0).to(gl.uint32)
    row = x + line * x_h
    for s in gl.static_range(S):
        mask = ((left + s).to(gl.uint32) < there)[:, None]
        if not FULL:
            mask = mask & (chan < channels)[None, :]
        block = gl.load(row + (at + s * STEP), mask=mask, other=0.0)
        blocks = blocks + (operand_of(block, WARPS),)  # noqa: RUF005 - no Triton
    return blocks


@gluon.jit
def with_products(total, blocks, taps, S: gl.constexpr, PHASE: gl.constexpr):
    """Sums with the products of a row of x."""
    for s in gl.static_range(S):
        total = mma_v2(taps[PHASE * S + s], blocks[s], total)
    return total


@gluon.jit
def convolve(
    x, w, y, extra, h, wd, c, k, p, q, x_n, x_h, y_n, y_k, y_p,
    R: gl.constexpr, S: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BC: gl.constexpr, STEP: gl.constexpr, FULL: gl.constexpr,
    ROOM: gl.constexpr, STRIP: gl.constexpr, AHEAD: gl.constexpr, ASK: gl.constexpr,
    WARPS: gl.constexpr, Y_VEC: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """STRIP rows of BM results below each other.

    Each row of x is loaded once, at the shift of each tap, AHEAD rows before its products; with ASK
    the L2 cache is asked for all of them first. R rows of results are under way, ROOM sums of each:
    a row's products with all of them are one instruction for each tap of a row. `c` comes divided
    by the channels of a lane, the strides of x by 8, `q` and the strides of y by Y_VEC; from a
    pixel of x to the next are STEP elements. Weights are packed [R, S, 16, BC].
    """
    sums: gl.constexpr = sums_layout(WARPS)
    pixels: gl.constexpr = pixels_layout(BM, BC, WARPS)
    first_operand: gl.constexpr = gl.DotOperandLayout(0, sums, k_width=2)
    q = q * Y_VEC
    spans = gl.cdiv(q, BM)
    strips = gl.cdiv(p, STRIP)
    pid = gl.program_id(0)
    out_p = pid // spans % strips * STRIP
    image = pid // (spans * strips)
    first = pid % spans * BM
    left = first + gl.arange(0, BM, layout=gl.SliceLayout(1, pixels)) - PAD_L
    top = out_p - PAD_T
    x += image * (x_n * 8)
    if ASK:
        begin = gl.maximum(first - PAD_L, 0)
        nbytes = (gl.minimum(first - PAD_L + BM + S - 1, wd) - begin) * (STEP * 2)
        each = threads(WARPS)
        line = top + each
        wanted = (line >= 0) & (line < h) & (each < STRIP + R - 1)
        ask(x + (line * (x_h * 8) + begin * STEP), gl.where(wanted, nbytes, 0))
        gl.barrier()  # or the compiler puts it off
    chan = gl.arange(0, BC, layout=gl.SliceLayout(0, pixels))
    at = (left * STEP)[:, None] + chan[None, :]
    own = gl.arange(0, 16, layout=gl.SliceLayout(1, first_operand))
    term = gl.arange(0, BC, layout=gl.SliceLayout(0, first_operand))
    taps = ()
    for tap in gl.static_range(R * S):
        place = (tap * 16 + own)[:, None] * BC + term[None, :]
        taps = taps + (gl.load(w + place),)  # noqa: RUF005
    acc = gl.zeros((16, BM), gl.float32, layout=sums)
    out_q = first + gl.arange(0, BM, layout=gl.SliceLayout(0, sums))
    row = gl.arange(0, 16, layout=gl.SliceLayout(1, sums))
    channels = c * (BC // 4)
    rows = ()
    for i in gl.static_range(AHEAD + STRIP + R - 1):
        if i < STRIP + R - 1:
            rows = rows + (  # noqa: RUF005
                row_of_taps(
                    x, at, left, top + i, h, wd, x_h * 8, chan, channels, S, STEP, FULL, WARPS
                ),
            )
        if i >= AHEAD:
            acc = with_products(acc, rows[i - AHEAD], taps, S, (i - AHEAD) % R)
            # The row of results that has all of its products now; at first there is none.
            if i - AHEAD >= R - 1:
                store_row(
                    acc, y, extra, image, out_p + i - AHEAD - (R - 1), out_q, k, p, q,
                    y_n * Y_VEC, y_k * Y_VEC, y_p * Y_VEC, (i - AHEAD + 1) % R, ROOM, EPILOGUE,
                    FETCH,
                )  # fmt: skip
            acc = gl.where((row // ROOM == (i - AHEAD + 1) % R)[:, None], 0.0, acc)


@gluon.jit
def store_row(
    acc, y, extra, image, line, out_q, k, p, q, y_n, y_k, y_p, PLACE: gl.constexpr,
    ROOM: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr,
):  # fmt: skip
    """The sums at PLACE of those under way through the epilogue to the result."""
    transposed = acc.permute([1, 0])
    BM: gl.constexpr = transposed.shape[0]
    pixels: gl.constexpr = gl.SliceLayout(1, transposed.type.layout)
    column = gl.arange(0, 16, layout=gl.SliceLayout(0, transposed.type.layout))
    channel = column % ROOM
    pixel = gl.convert_layout(out_q, pixels, assert_trivial=True)
    images = image + gl.zeros((BM,), gl.int32, layout=pixels)
    lines = line + gl.zeros((BM,), gl.int32, layout=pixels)
    row_mask = (pixel < q) & (line < p)
    there = (column // ROOM == PLACE) & (channel < k)
    fetched = ()
    if FETCH is not None:
        fetched = FETCH(images, channel, lines, pixel, row_mask, there, extra)
    done = EPILOGUE(transposed, images, channel, lines, pixel, row_mask, there, fetched, extra)
    place = (image * y_n + line * y_p + pixel)[:, None] + (channel * y_k)[None, :]
    gl.store(y + place, done.to(y.dtype.element_ty), mask=row_mask[:, None] & there[None, :])
