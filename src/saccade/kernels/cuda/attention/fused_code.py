"""Attention with a softmax that runs along the keys: no score is stored."""

import triton
import triton.language as tl

from saccade.kernels.cuda.precision_code import dot_type

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend(
    q, k, v, y, extra,
    n1, rows, keys, q_0, q_1, q_m, q_d, k_0, k_1, k_s, k_d, v_0, v_1, v_s, v_e, y_0, y_1, y_m, y_e,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr, MASK: tl.constexpr,
    UNITS: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, REST: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, ONCE: tl.constexpr,
    HIDDEN: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """HIDDEN: rows without weights, which are NaN, are zeros.

    ONCE: no more than BN keys, so that there is one block of them.

    UNITS names for q, k, v, y and the mask the axis of stride 1: `d` the last one, `s` k's keys.

    MASK says along which axes the mask varies: `rows`, `keys` or `both`; empty without a mask.
    """
    kind: tl.constexpr = dot_type(OPERAND)
    blocks = tl.cdiv(rows, BM)
    pid = tl.program_id(0)
    image = pid // blocks // n1
    head = pid // blocks % n1
    row = pid % blocks * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    row_mask = row < rows
    q_at = image * q_0 + head * q_1 + (row * q_m)[:, None]
    left = tl.load(
        q + q_at + (d * (1 if UNITS[0] == "d" else q_d))[None, :],
        mask=row_mask[:, None] & (d < HEAD)[None, :], other=0.0,
    ).to(kind)  # fmt: skip
    k_at = image * k_0 + head * k_1 + (d * (1 if UNITS[1] == "d" else k_d))[:, None]
    v_at = image * v_0 + head * v_1 + (e * (1 if UNITS[2] == "d" else v_e))[None, :]
    k_step = 1 if UNITS[1] == "s" else k_s
    m_at = 0
    m_row = row
    m_step = 0
    if MASK != "":
        m_at = image % extra[5] * extra[1] + head % extra[6] * extra[2]
        m_row = row * extra[3]
        m_step = 1 if UNITS[4] == "d" else extra[4]
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BE), tl.float32)
    if ONCE:
        best, total, acc = weigh(
            left, k + k_at, v + v_at, extra, m_at, m_row, m_step, row_mask, best, total, acc,
            tl.arange(0, BN), keys, k_step, v_s, False, HEAD, WIDTH, SCALE, MASK, OPERAND,
            PRECISION, BD, BE,
        )  # fmt: skip
    else:
        # Blocks of keys alone; then one of which most are, or the few left in small ones.
        whole = keys // BN * BN
        small = whole if keys - whole <= BN // 2 else keys
        for s in range(0, whole, BN):
            best, total, acc = weigh(
                left, k + k_at, v + v_at, extra, m_at, m_row, m_step, row_mask, best, total, acc,
                s + tl.arange(0, BN), keys, k_step, v_s, True, HEAD, WIDTH, SCALE, MASK, OPERAND,
                PRECISION, BD, BE,
            )  # fmt: skip
        for s in range(whole, small, BN):
            best, total, acc = weigh(
                left, k + k_at, v + v_at, extra, m_at, m_row, m_step, row_mask, best, total, acc,
                s + tl.arange(0, BN), keys, k_step, v_s, False, HEAD, WIDTH, SCALE, MASK, OPERAND,
                PRECISION, BD, BE,
            )  # fmt: skip
        for s in range(small, keys, REST):
            best, total, acc = weigh(
                left, k + k_at, v + v_at, extra, m_at, m_row, m_step, row_mask, best, total, acc,
                s + tl.arange(0, REST), keys, k_step, v_s, False, HEAD, WIDTH, SCALE, MASK, OPERAND,
                PRECISION, BD, BE,
            )  # fmt: skip
    # Rows without keys are sums of nothing; rows whose scores are all -inf are NaN.
    result = acc / tl.where(keys == 0, 1.0, total)[:, None]
    if HIDDEN:
        seen = total > 0.0  # not where it is NaN, either
        result = tl.where(seen[:, None], result, 0.0)
    result = EPILOGUE(result, image, head, row, e, row_mask, e < WIDTH, extra)
    to = image * y_0 + head * y_1 + (row * y_m)[:, None]
    tl.store(
        y + to + (e * (1 if UNITS[3] == "d" else y_e))[None, :], result.to(y.dtype.element_ty),
        mask=row_mask[:, None] & (e < WIDTH)[None, :],
    )  # fmt: skip


@triton.jit
def weigh(
    left, k_at, v_at, extra, m_at, m_row, m_step, row_mask, best, total, acc, s, keys, k_step, v_s,
    WHOLE: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr,
    MASK: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr, BD: tl.constexpr,
    BE: tl.constexpr,
):  # fmt: skip
    """A block of keys `s`: the largest scores, sums of weights and of weighted values with it.

    WHOLE says that all of them are keys.
    """
    kind: tl.constexpr = dot_type(OPERAND)
    d_mask = (tl.arange(0, BD) < HEAD)[:, None]
    e_mask = (tl.arange(0, BE) < WIDTH)[None, :]
    inside = s < keys
    if not WHOLE:
        d_mask &= inside[None, :]
        e_mask &= inside[:, None]
    if WHOLE and HEAD == BD:
        right = tl.load(k_at + (s * k_step)[None, :])
    else:
        right = tl.load(k_at + (s * k_step)[None, :], mask=d_mask, other=0.0)
    # Powers of two, whose scale is that of the scores: one instruction for each weight.
    scores = tl.dot(left, right.to(kind), input_precision=PRECISION) * (SCALE * _LOG2E)
    if MASK != "":
        # What does not vary along an axis is loaded once for it: pointers take registers.
        if MASK == "rows":
            added = tl.load(extra[0] + m_at + m_row[:, None], mask=row_mask[:, None], other=0.0)
        elif MASK == "keys":
            m_key = (s * m_step)[None, :]
            added = tl.load(extra[0] + m_at + m_key, mask=inside[None, :], other=0.0)
        else:
            both = row_mask[:, None] & inside[None, :]
            m_key = (s * m_step)[None, :]
            added = tl.load(extra[0] + m_at + m_row[:, None] + m_key, mask=both, other=0.0)
        scores += added.to(tl.float32) * _LOG2E
    if not WHOLE:
        scores = tl.where(inside[None, :], scores, float("-inf"))
    high = tl.maximum(best, tl.max(scores, 1))
    # Where every score so far is -inf, weights are 0, not NaN: later ones may be finite.
    shift = tl.where(high == float("-inf"), 0.0, high)
    weights = tl.exp2(scores - shift[:, None])
    shrink = tl.exp2(best - shift)
    total = total * shrink + tl.sum(weights, 1)
    acc = acc * shrink[:, None]
    if WHOLE and WIDTH == BE:
        values = tl.load(v_at + (s * v_s)[:, None])
    else:
        values = tl.load(v_at + (s * v_s)[:, None], mask=e_mask, other=0.0)
    acc = tl.dot(weights.to(kind), values.to(kind), acc, input_precision=PRECISION)
    return high, total, acc
