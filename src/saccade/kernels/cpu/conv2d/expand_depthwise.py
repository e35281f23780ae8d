"""A 1x1 convolution and the depthwise convolution of its result in one pass.

`wide[n,h,w,c] = f(Σ_d x[n,h,w,d] · v[d,c])`, `y[n,p,q,c] = g(Σ_r,s wide[n, p·stride + r, …, c] ·
u[r,s,c])`

Chunks are (image, band of rows of the result, block of channels). A chunk computes the rows of the
wide feature map under its windows into the thread's scratch, which stays in the core's L2 cache,
and then the windows over them; neighbouring bands compute the rows that they share twice. Refused:
feature maps whose rows are not evenly apart or not channels-last, stores other than plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from saccade.backends.cpu.fusions import ExpandDepthwise, RowSums
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Packed, Packing, Scratch, Variant, View, per_call
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.depthwise_code import any_groups, groups_of, testing_micros
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, epilogue_of, static_sums
from saccade.kernels.cpu.conv2d.expand_depthwise_code import ExpandConfig, emit_expand
from saccade.kernels.cpu.conv2d.microkernel import Reduction, in_pairs, steps_of
from saccade.kernels.cpu.conv2d.row_bands import band_integers
from saccade.kernels.cpu.conv2d.row_groups import RowGroups
from saccade.kernels.cpu.conv2d.row_sums import SumsSpec, conv_call
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_EXPAND"]

_REACHED = 0.75  # share of the peak (by eye: depthwise layers alone reach 73 to 91% on Zen 4)
_EXPONENTIAL = 24  # operations that one of them counts for (an estimate)


def _supports(call: CpuCall) -> str | None:
    sums, call = SumsSpec(call), conv_call(call)
    if not isinstance(call.op, ExpandDepthwise):
        return "another convolution's sums"
    op, (x, inner, outer) = call.op, call.inputs[:3]
    if not all(call.constant[1:3]):
        return "the weights are not constant"
    if any(view.dtype not in FLOATS for view in (x, inner, outer)):
        return "elements are neither float32 nor bfloat16"
    if not x.channels_last or x.strides[2] != x.shape[3] * x.strides[3]:
        return "x is not channels-last with rows evenly apart"
    if op.depthwise.groups != outer.shape[0] or outer.shape[3] > 15:
        return "not one filter for each channel, or more than 15 taps along a row"
    first, second = _inner(call), _outer(call)
    if second.kind != "plain" or second.store is not None:
        return "the result is not stored plainly, channels-last"
    if any("full" in word or "image" in word for word in first.code()[3:]):
        return "an operand of the 1x1 convolution varies from image to image or pixel to pixel"
    if _groups(call) is None:
        return "too many windows leave the image"
    return first.refuse() or second.refuse() or sums.refuse()


def _wide(call: CpuCall) -> tuple[int, ...]:
    n, _, h, w = call.inputs[0].shape
    return n, call.inputs[1].shape[0], h, w


@per_call
def _inner(call: CpuCall) -> EpilogueSpec:
    """The epilogue of the 1x1 convolution, whose result is the scratch of one block."""
    shape, op = _wide(call), call.op
    out = View(DType.F32, shape, (0, 1, 0, _tile(call)[0] * call.target.lanes))
    return epilogue_of(call, op.expand, shape, range(3, 3 + op.n_expand), out)


@per_call
def _outer(call: CpuCall) -> EpilogueSpec:
    op: Conv2d = call.op.depthwise
    sums = static_sums(op, _wide(call), call.inputs[2].shape)
    operands = range(3 + call.op.n_expand, len(call.inputs))
    return epilogue_of(call, op, sums, operands, call.outputs[0])


def _groups(call: CpuCall) -> RowGroups | None:
    columns, (_, _, _, taps) = _outer(call).shape[3], call.inputs[2].shape
    return groups_of(call.op.depthwise, columns, call.inputs[0].shape[3], taps, call.target)


def _any_groups(call: CpuCall) -> RowGroups:
    return any_groups(_outer(call).shape[3], call.inputs[2].shape[3], call.target)


def _tile(call: CpuCall) -> tuple[int, int]:
    """Vectors and pixels of a tile: sums, vectors and a broadcast fit the registers."""
    vectors = min(2, -(-call.inputs[1].shape[0] // call.target.lanes))
    return vectors, (call.target.registers - vectors - 2) // vectors


def _variants(call: CpuCall) -> Iterator[Variant]:
    """One for each height of bands that fits a third of the L2 cache, the fastest first.

    Beside the fastest, one whose code serves every width.
    """
    sums, call = SumsSpec(call), conv_call(call)
    cut, outer = _groups(call), _outer(call)
    assert cut is not None
    n, _, rows, _ = outer.shape
    counts = [n * call.threads for n in (1, 2, 3, 4, 6, 8, 12, 16)]
    bands = sorted({max(1, -(-rows // n)) for n in counts}, reverse=True)
    fitting = [b for b in bands if _scratch(call, b) <= call.target.l2 // 3] or bands[-1:]
    timed = sorted((_micros(call, band), band) for band in fitting)
    variants = [
        Variant(micros, partial(_launch, call, sums, band, cut), code="bands")
        for micros, band in timed
    ]
    yield variants[0]
    micros, band = timed[0]
    free = _any_groups(call)
    tests = n * rows * outer.vectors * testing_micros(free, call.inputs[2].shape[2:], call.target)
    any_width = partial(_launch, call, sums, band, free)
    variants.append(Variant(micros + tests / call.threads, any_width))
    yield from sorted(variants[1:], key=lambda variant: variant.micros)


def _generic_configs(call: CpuCall) -> tuple[ExpandConfig, ...]:
    sums, call = SumsSpec(call), conv_call(call)
    return (_config(call, sums, _any_groups(call)),)


def _rows(call: CpuCall, band: int) -> int:
    """Rows of the wide feature map under the windows of a band."""
    op: Conv2d = call.op.depthwise
    reach = (call.inputs[2].shape[2] - 1) * op.dilation[0] + 1
    return min(call.inputs[0].shape[2], (band - 1) * op.stride[0] + reach)


def _scratch(call: CpuCall, band: int) -> int:
    pixels = _rows(call, band) * call.inputs[0].shape[3]
    return 4 * pixels * _tile(call)[0] * call.target.lanes


def _micros(call: CpuCall, band: int) -> float:
    n, channels, _, width = _wide(call)
    _, _, rows, columns = _outer(call).shape
    depth, (_, _, taps_r, taps_s) = call.inputs[1].shape[1], call.inputs[2].shape
    bands, op = -(-rows // band), call.op
    wide = n * bands * _rows(call, band) * width * channels
    first = 2 * depth + 2 + _heavy(op.expand)
    second = 2 * taps_r * taps_s + 2 + _heavy(op.depthwise)
    # A thread's share is whole bands of neighbouring rows.
    uneven = -(-n * bands // call.threads) * band * call.threads / max(1, n * rows)
    flops = (wide * first + n * rows * columns * channels * second) * uneven
    moved = float(call.inputs[0].nbytes + call.outputs[0].nbytes)
    return machine(call.target).roofline(flops, moved, call.threads, _REACHED)


def _heavy(op: Conv2d) -> int:
    """Operations of an epilogue."""
    text = str(op.epilogue)
    steep = any(name in text for name in ("silu", "sigmoid", "tanh", "exp"))
    return expr_flops(op.epilogue) + _EXPONENTIAL * steep


def _config(call: CpuCall, sums: SumsSpec, cut: RowGroups) -> ExpandConfig:
    (x, w, u), conv = call.inputs[:3], call.op.depthwise
    (vectors, pixels), pairs = _tile(call), in_pairs(call)
    reduction = Reduction.of(w.shape[1], pairs)
    return ExpandConfig(
        x.dtype.value, pixels, vectors, reduction.unroll, reduction.shape, pairs, reduction.odd,
        u.shape[3], conv.stride[1], conv.dilation[1], *cut.code(), _inner(call).code(vectors),
        _outer(call).code(), sums.code,
    )  # fmt: skip


def _launch(call: CpuCall, sums: SumsSpec, band: int, cut: RowGroups) -> tuple[Launch, ...]:
    conv, spec, inner = call.op.depthwise, _outer(call), _inner(call)
    x, w, u = call.inputs[:3]
    config, lanes, depth = _config(call, sums, cut), call.target.lanes, w.shape[1]
    blocks, width = -(-spec.vectors // config.vectors), config.vectors * lanes
    pairs = config.pairs
    first = Packing(
        "pack_conv_weights", (1, "natural", width, pairs), (1,),
        4 * steps_of(depth, pairs) * width * blocks,
    )  # fmt: skip
    size = 4 * u.shape[2] * u.shape[3] * spec.vectors * lanes
    second = Packing("pack_depthwise", (lanes,), (2,), size)
    n, _, rows, _ = spec.shape
    bands = band_integers(conv, x, u.shape[2], spec.shape, band)
    operands = {
        "x": In(0),
        "expand": Packed(first),
        "depthwise": Packed(second),
        "wide": Scratch(_scratch(call, band)),
        **inner.reads("inner_"),
        **spec.pointers(),
        **sums.pointers(),
    }
    integers = {
        **bands,
        "repeats": cut.repeats,
        "depth": depth,
        "vectors": spec.vectors,
        **inner.integers(prefix="inner_"),
        **spec.integers(),
        **sums.integers(),
    }
    return (Launch(config, operands, integers, n * -(-rows // band) * blocks),)


CONV2D_EXPAND = CpuKernel(
    "conv2d.expand_depthwise",
    (ExpandDepthwise, RowSums),
    ExpandConfig,
    _supports,
    _variants,
    emit_expand,
    generic_configs=_generic_configs,
)
