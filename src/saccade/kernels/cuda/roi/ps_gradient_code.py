"""PsRoiGradient: a program has some pixels of the channels that are one bin's own."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import far, widened
from saccade.kernels.cuda.roi.tables_code import overlaps


@triton.jit
def spread(
    grad, rows, columns, row_spans, column_spans, owners, y, extra,
    count, c, h, w, row_pitch, column_pitch, g_k, g_c, g_p, g_q, y_n, y_c, y_h, y_w,
    P: tl.constexpr, Q: tl.constexpr, WIDE: tl.constexpr, DOUBLE: tl.constexpr,
    TH: tl.constexpr, TW: tl.constexpr, BC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the boxes whose bin reaches the pixels, in their order; bins go fastest."""
    pid = tl.program_id(0)
    q = pid % Q
    p = pid // Q % P
    blocks = tl.cdiv(c, BC)
    wide = tl.cdiv(w, TW)
    high = tl.cdiv(h, TH)
    channel = pid // (P * Q) % blocks * BC + tl.arange(0, BC)
    tile = pid // (P * Q) // blocks
    left = tile % wide * TW
    top = tile // wide % high * TH
    image = tile // (wide * high)
    row = top + tl.arange(0, TH)
    column = left + tl.arange(0, TW)
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    values = grad + p * g_p + q * g_q + channel * g_c
    acc = tl.zeros((BC, TH, TW), KIND)
    for start in range(0, count, BLOCK):
        box = start + tl.arange(0, BLOCK)
        owner = tl.load(owners + box, mask=box < count, other=-1)
        in_rows = tl.load(row_spans + p * count + box, mask=box < count, other=0)
        in_columns = tl.load(column_spans + q * count + box, mask=box < count, other=0)
        hit = overlaps(in_rows, top, top + TH) & overlaps(in_columns, left, left + TW)
        hit = hit & (owner == image)
        one = tl.min(tl.where(hit, box, count), 0)
        while one < count:
            value = tl.load(values + one * g_k, mask=channel < c, other=0)
            down = tl.load(rows + (one * P + p) * row_pitch + row)
            across = tl.load(columns + (one * Q + q) * column_pitch + column)
            one = tl.min(tl.where(hit & (box > one), box, count), 0)
            weight = down[:, None] * across[None, :]
            acc = tl.fma(widened(value, DOUBLE)[:, None, None], weight[None, :, :], acc)
    plane = ((channel * P + p) * Q + q) * y_c
    at = row[:, None] * y_h + column[None, :] * (1 if WIDE else y_w)
    mask = (row < h)[:, None] & (column < w)[None, :]
    mask = (channel < c)[:, None, None] & mask[None, :, :]
    place = y + far(image, y_n) + plane[:, None, None] + at[None, :, :]
    tl.store(place, acc.to(y.dtype.element_ty), mask=mask)
