"""ONNX Runtime's attention of encoders: scores, their softmax and the values, as products.

What only generating text needs is refused: past keys and values, rotary embeddings, shared buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers.contrib._forms import only, optional
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.dim import mul
from saccade.ir.expr import IDENTITY, apply, arg, const
from saccade.opdefs import MatMul, Softmax

__all__ = ["import_attention", "import_multi_head_attention"]

_ADD = apply("add", arg(0), arg(1))
_MASKED = -10000.0
"""ONNX Runtime's `mask_filter_value`: added to the scores of what is masked."""


class _Heads(NamedTuple):
    """Queries, keys and values, [B, heads, length, size]."""

    q: Value
    k: Value
    v: Value


def import_attention(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.Attention 1: of one sequence with itself, without a past."""
    only(
        call, "mask_filter_value", "num_heads", "qkv_hidden_sizes", "scale", "unidirectional",
        "do_rotary", "past_present_share_buffer", "rotary_embedding_dim", inputs=6,
    )  # fmt: skip
    for name in ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"):
        if call.integer(name, 0):
            raise Refusal(f"attribute {name!r}")
    if call.has(4):
        raise Refusal("past keys and values")
    x, weights = call.value(0), call.value(1)
    total = weights.shape[-1] if weights.rank == 2 else None
    if x.rank != 3 or not isinstance(total, int):
        raise call.broken(f"x of {x.rank} axes, weights {list(weights.shape)}")
    sizes = call.integers("qkv_hidden_sizes") or (total // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != total or min(sizes) < 1 or sizes[0] != sizes[1]:
        raise call.broken(f"qkv_hidden_sizes {list(sizes)} of {total} columns")
    bias = [call.value(2)] if call.has(2) else []
    both = call.emit(MatMul(epilogue=_ADD if bias else IDENTITY), x, weights, *bias)
    parts = [
        _split(call, move(call, both, slice_map(both.shape, {2: (sum(sizes[:i]), size, 1)})))
        for i, size in enumerate(sizes)
    ]
    return [_attended(call, _Heads(*parts), (optional(call, 3), optional(call, 5)))]


def import_multi_head_attention(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.MultiHeadAttention 1: packed or apart, without a past."""
    only(call, "mask_filter_value", "num_heads", "scale", "unidirectional", inputs=6)
    bias = optional(call, 3)
    heads = _packed(call) if call.value(0).rank == 5 else _apart(call, bias)
    if call.value(0).rank == 5 and bias is not None:
        raise Refusal("a bias of packed queries, keys and values")
    return [_attended(call, heads, (optional(call, 4), optional(call, 5)))]


def _count(call: OnnxNode) -> int:
    count = call.integer("num_heads", 0)
    if count < 1:
        raise call.broken(f"{count} heads")
    return count


def _split(call: OnnxNode, x: Value) -> Value:
    """[B, L, heads · size] as [B, heads, L, size]."""
    count, width = _count(call), x.shape[-1] if x.rank == 3 else None
    if not isinstance(width, int) or width % count:
        raise call.broken(f"{list(x.shape)} in {count} heads")
    apart = reshaped(call, x, (*x.shape[:2], count, width // count))
    return move(call, apart, transpose_map(apart.shape, (0, 2, 1, 3)))


def _packed(call: OnnxNode) -> _Heads:
    """Of [B, L, heads, 3, size]."""
    if call.has(1) or call.has(2):
        raise call.broken("keys or values beside packed ones")
    q, k, v = _unpacked(call, call.value(0), 3)
    return _Heads(q, k, v)


def _unpacked(call: OnnxNode, x: Value, count: int) -> list[Value]:
    """The parts of [B, L, heads, count, size], each [B, heads, L, size]."""
    if x.rank != 5 or x.shape[3] != count or x.shape[2] != _count(call):
        raise call.broken(f"{count} values packed in {list(x.shape)}")
    found = []
    for index in range(count):
        part = move(call, x, slice_map(x.shape, {3: (index, 1, 1)}, drop=(3,)))
        found.append(move(call, part, transpose_map(part.shape, (0, 2, 1, 3))))
    return found


def _apart(call: OnnxNode, bias: Value | None) -> _Heads:
    """Queries of their own, with keys and values packed, of their own, or in heads already."""
    q = call.value(0)
    pieces: list[Value | None] = [None] * 3
    if bias is not None:
        pieces = list(_biases(call, bias, q.shape[-1]))
    query = _split(call, _sum(call, q, pieces[0]))
    key = call.value(1)
    if key.rank == 5:
        if bias is not None or call.has(2):
            raise Refusal("a bias of packed keys and values")
        return _Heads(query, *_unpacked(call, key, 2))
    value = call.value(2)
    if key.rank == 4:
        # What a decoder has of its encoder; no bias is for these.
        return _Heads(query, key, value)
    return _Heads(
        query,
        _split(call, _sum(call, key, pieces[1])),
        _split(call, _sum(call, value, pieces[2])),
    )


def _biases(call: OnnxNode, bias: Value, width: Dim) -> Sequence[Value]:
    """The parts of one bias for queries, keys and values."""
    size = bias.shape[0] if bias.rank == 1 else None
    if not isinstance(size, int) or not isinstance(width, int) or size <= 2 * width:
        raise call.broken(f"a bias {list(bias.shape)} for queries of {width}")
    ranges = ((0, width), (width, width), (2 * width, size - 2 * width))
    return [move(call, bias, slice_map(bias.shape, {0: (*one, 1)})) for one in ranges]


def _sum(call: OnnxNode, x: Value, bias: Value | None) -> Value:
    return x if bias is None else pointwise(call, partial(apply, "add"), [x, bias], x.dtype)


def _attended(call: OnnxNode, heads: _Heads, masks: tuple[Value | None, Value | None]) -> Value:
    """[B, L, heads · size] of the values.

    Args:
        call: The node.
        heads: Its operands.
        masks: Which keys there are, and what is added to the scores.
    """
    q, k, v = heads
    if not q.rank == k.rank == v.rank == 4:
        raise call.broken(f"keys {list(k.shape)}, values {list(v.shape)}")
    size = q.shape[3]
    if not isinstance(size, int):
        raise Refusal("heads whose size varies")
    scale = call.finite("scale", 0.0) or 1 / float(np.sqrt(size))
    mask, bias = masks
    added = [
        *([] if mask is None else [_mask(call, mask, q.dtype)]),
        *([] if bias is None else [bias]),
        *([_causal(call, q.shape[2], k.shape[2], q.dtype)] if call.flag("unidirectional") else []),
    ]
    scaled = apply("mul", arg(0), const(scale))
    epilogue = apply("add", scaled, arg(1)) if added else scaled
    if len(added) > 1:
        added = [pointwise(call, lambda *e: reduce(partial(apply, "add"), e), added, q.dtype)]
    scores = call.emit(MatMul(transpose_b=True, epilogue=epilogue), q, k, *added)
    result = call.emit(MatMul(), call.emit(Softmax(3), scores), v)
    ordered = move(call, result, transpose_map(result.shape, (0, 2, 1, 3)))
    b, length, count, each = ordered.shape
    return reshaped(call, ordered, (b, length, mul(count, each)))


def _mask(call: OnnxNode, mask: Value, dtype: DType) -> Value:
    """What a mask of keys, [B, S] or [B, L, S] with 0 for those that are not there, adds."""
    if mask.rank == 1:
        raise Refusal("masks as lengths of sequences")
    if mask.rank not in (2, 3):
        raise Refusal(f"masks of {mask.rank} axes")
    shape = mask.shape
    spread = reshaped(call, mask, (shape[0], 1, 1 if mask.rank == 2 else shape[1], shape[-1]))
    low = const(call.finite("mask_filter_value", _MASKED))
    there = cast_to(call, spread, DType.F32)
    return pointwise(
        call,
        lambda e: apply("where", apply("equal", e, const(0)), low, const(0)),
        [there],
        dtype,
    )


def _causal(call: OnnxNode, queries: Dim, keys: Dim, dtype: DType) -> Value:
    """What keeps queries from keys behind them."""
    if not isinstance(queries, int) or not isinstance(keys, int) or queries != keys:
        raise Refusal("attribute 'unidirectional' for lengths that vary or differ")
    behind = np.triu(np.ones((queries, keys), bool), 1)
    # The least number of the type, and no infinity, as ONNX Runtime has it.
    low = np.float32(np.finfo(np.float16 if dtype is DType.F16 else np.float32).min)
    return call.build.known(np.where(behind, low, np.float32(0)), dtype, "causal")
