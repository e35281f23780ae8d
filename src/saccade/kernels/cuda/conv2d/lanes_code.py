"""Convolutions whose operands go from memory straight to the lanes that multiply them, in Gluon.

A matrix instruction takes of its second operand from lane `q` of four the terms 2q, 2q+1, 2q+8 and
2q+9 of a column. Which term is which channel is free, as long as both operands agree: with terms
numbered so that a lane's are neighbours in memory, one load is the operand, and nothing goes
through shared memory.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


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


@gluon.jit
def with_products(total, blocks, taps, S: gl.constexpr, PHASE: gl.constexpr):
    """Sums with the products of a row of x."""
    for s in gl.static_range(S):
        total = mma_v2(taps[PHASE * S + s], blocks[s], total)
    return total


@gluon.jit
def convolve_to_few(
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
def channel_of_column(column, RUN: gl.constexpr):
    """Which channel a column of the products is, for `channels_together`."""
    part = column // 8
    inner = column % 8 // 2 * (2 * RUN) + part % RUN * 2 + column % 2
    return part // RUN * (8 * RUN) + inner


@gluon.jit
def convolve_few(
    x, w, y, extra, h, wd, k, p, q, x_n, x_c, x_h, x_w, y_n, y_p, y_q,
    C: gl.constexpr, R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, DILATION_H: gl.constexpr, DILATION_W: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    DEPTH: gl.constexpr, STRIP: gl.constexpr, WARPS: gl.constexpr, X_UNIT: gl.constexpr,
    EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """STRIP rows of BM results below each other, of BN channels.

    Terms are channels, then taps, DEPTH of them with zeros behind, and each element of x is loaded
    by its own address. X_UNIT: the axis of x along which neighbours lie side by side. `k` and the
    strides of y come divided by 8. Weights are packed [K', DEPTH].
    """
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8]
    )
    first_operand: gl.constexpr = gl.DotOperandLayout(0, sums, k_width=2)
    second_operand: gl.constexpr = gl.DotOperandLayout(1, sums, k_width=2)
    if X_UNIT == "w":
        x_w = 1
    blocks = gl.cdiv(k * 8, BN)
    spans = gl.cdiv(q, BM)
    strips = gl.cdiv(p, STRIP)
    pid = gl.program_id(0)
    col = pid % blocks * BN
    first = pid // blocks % spans * BM
    out_p = pid // (blocks * spans) % strips * STRIP
    image = pid // (blocks * spans * strips)
    x += image * x_n
    column = gl.arange(0, BN, layout=gl.SliceLayout(0, second_operand))
    filters = w + (col + channel_of_column(column, runs_of(BN))) * DEPTH
    inner = gl.arange(0, 16, layout=gl.SliceLayout(1, second_operand))
    own = gl.arange(0, 16, layout=gl.SliceLayout(0, first_operand))
    left = (first + gl.arange(0, BM, layout=gl.SliceLayout(1, first_operand))) * STRIDE_W - PAD_L
    weights = ()
    terms = ()
    for i in gl.static_range(DEPTH // 16):
        weights = weights + (gl.load(filters[None, :] + (i * 16 + inner)[:, None]),)  # noqa: RUF005
        term = i * 16 + own
        tap = term % (R * S)
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        # Rows outside of the image, and terms that are none, have no pixels inside.
        dy = gl.where(term < R * S * C, dy, -(1 << 30))
        at = tap // S * DILATION_H * x_h + dx * x_w + term // (R * S) * x_c
        place = (left * x_w)[:, None] + at[None, :]
        terms = terms + ((dy, (left[:, None] + dx[None, :]).to(gl.uint32), place),)  # noqa: RUF005
    for i in gl.static_range(STRIP):
        line = out_p + i
        top = line * STRIDE_H - PAD_T
        acc = gl.zeros((BM, BN), gl.float32, layout=sums)
        row = x + top * x_h
        for j in gl.static_range(DEPTH // 16):
            at_row = top + terms[j][0]
            # One comparison for both edges of a row, and for rows outside.
            there = gl.where((at_row >= 0) & (at_row < h), wd, 0).to(gl.uint32)
            a = gl.load(row + terms[j][2], mask=terms[j][1] < there[None, :], other=0.0)
            acc = mma_v2(a.to(w.dtype.element_ty), weights[j], acc)
        store_pixels(
            channels_together(acc, WARPS), y, extra, image, line, first, col, k, p, q, y_n, y_p,
            y_q, BM, EPILOGUE, FETCH,
        )  # fmt: skip


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
