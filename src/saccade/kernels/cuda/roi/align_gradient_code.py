"""RoiAlignGradient: a program has some pixels and channels, and adds box after box."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import far, widened


@triton.jit
def _bin(grad, at, channel, c, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(grad + (at + channel))
    else:  # noqa: RET505 - what follows a return is compiled, too
        return tl.load(grad + (at + channel), mask=channel < c, other=0)


@triton.jit
def _fetch(
    grad, rows, columns, box, p, in_columns, row, column, channel, c,
    g_k, g_p, g_q, row_pitch, column_pitch,
    P: tl.constexpr, Q: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """What a row of bins of a box gives: two bins of it, or one and zeros, and all weights."""
    q = in_columns & 0xFFFF
    two = tl.where(q + 1 < (in_columns >> 16), 1, 0)
    at = box * g_k + p * g_p + q * g_q
    g0 = _bin(grad, at, channel, c, EVEN)
    g1 = tl.load(grad + (at + g_q + channel), mask=channel < two * c, other=0)
    at = (box * Q + q) * column_pitch
    x0 = tl.load(columns + (at + column))
    at += column_pitch
    x1 = tl.load(columns + (at + column), mask=column < two * column_pitch, other=0)
    down = tl.load(rows + ((box * P + p) * row_pitch + row))
    return g0, g1, x0, x1, down


@triton.jit
def _box_at(entries, i, number):
    return tl.load(entries + i, mask=i < number, other=0)


@triton.jit
def _ranges(of_rows, of_columns, box):
    """The rows and the columns of bins of a box that reach a tile, none or some of both."""
    in_columns = tl.load(of_columns + box)
    in_rows = tl.load(of_rows + box)
    return tl.where(in_columns != 0, in_rows, 0), in_columns


@triton.jit
def spread(
    grad, rows, columns, row_bands, column_bands, lists, begins, numbers, y, extra,
    count, c, h, w, down, along, row_pitch, column_pitch, g_k, g_p, g_q, y_n, y_c, y_h, y_w,
    P: tl.constexpr, Q: tl.constexpr, UNIT: tl.constexpr, WIDE: tl.constexpr,
    EVEN: tl.constexpr, DOUBLE: tl.constexpr, SIDE_H: tl.constexpr, SIDE_W: tl.constexpr,
    TH: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Rows of bins of the listed boxes, one after the other, each fetched one ahead."""
    pid = tl.program_id(0)
    blocks = tl.cdiv(c, BC)
    wide = tl.cdiv(w, TW)
    high = tl.cdiv(h, TH)
    tile = pid // blocks
    tx = tile % wide
    ty = tile // wide % high
    image = tile // (wide * high)
    square = image * (down * along) + ty * TH // SIDE_H * along + tx * TW // SIDE_W
    channel = (pid % blocks * BC + tl.arange(0, BC))[None, None, :]
    row = (ty * TH + tl.arange(0, TH))[:, None, None]
    column = (tx * TW + tl.arange(0, TW))[None, :, None]
    number = tl.load(numbers + square)
    entries = lists + tl.load(begins + square)
    of_rows = row_bands + ty * count
    of_columns = column_bands + tx * count
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    acc = tl.zeros((TH, TW, BC), KIND)
    if number > 0:
        box = _box_at(entries, 0, number)
        in_rows, in_columns = _ranges(of_rows, of_columns, box)
        p = in_rows & 0xFFFF
        then = _box_at(entries, 1, number)
        rows_then, columns_then = _ranges(of_rows, of_columns, then)
        after = _box_at(entries, 2, number)
        g0, g1, x0, x1, weight = _fetch(
            grad, rows, columns, box, p, in_columns, row, column, channel, c,
            g_k, g_p, g_q, row_pitch, column_pitch, P, Q, EVEN,
        )  # fmt: skip
        i = number * 0
        while i < number:
            more = p + 1 < (in_rows >> 16)
            next_box = tl.where(more, box, then)
            next_rows = tl.where(more, in_rows, rows_then)
            next_columns = tl.where(more, in_columns, columns_then)
            next_p = tl.where(more, p + 1, next_rows & 0xFFFF)
            h0, h1, z0, z1, next_weight = _fetch(
                grad, rows, columns, next_box, next_p, next_columns, row, column, channel, c,
                g_k, g_p, g_q, row_pitch, column_pitch, P, Q, EVEN,
            )  # fmt: skip
            i += tl.where(more, 0, 1)
            then = tl.where(more, then, after)
            rows_then, columns_then = _ranges(of_rows, of_columns, then)
            after = _box_at(entries, i + 2, number)

            if in_rows != 0:
                sums = x0 * widened(g0, DOUBLE)
                sums = tl.fma(x1, widened(g1, DOUBLE), sums)
                for q in range((in_columns & 0xFFFF) + 2, in_columns >> 16):
                    at = box * g_k + p * g_p + q * g_q
                    value = widened(_bin(grad, at, channel, c, EVEN), DOUBLE)
                    across = tl.load(columns + ((box * Q + q) * column_pitch + column))
                    sums = tl.fma(across, value, sums)
                acc = tl.fma(weight, sums, acc)
            box, p, in_rows, in_columns = next_box, next_p, next_rows, next_columns
            g0, g1, x0, x1, weight = h0, h1, z0, z1, next_weight

    at = row * y_h + column * (1 if WIDE else y_w) + channel * (1 if UNIT else y_c)
    mask = (row < h) & (column < w) & (channel < c)
    tl.store(y + far(image, y_n) + at, acc.to(y.dtype.element_ty), mask=mask)
