"""Attention in one launch: `softmax(scale · q kᵀ + mask) v`.

A program holds a block of rows of q, goes through all keys in blocks and keeps the largest score,
the sum of the weights and the weighted sum of the values, which it rescales when a larger score
comes (Milakov and Gimelshein 2018, Dao et al. 2022). Scores and weights stay in registers, float32;
weights are rounded to the type of the products before they meet the values.

Layouts: q, k, v, the mask and y with any strides, so that splitting and merging heads are views;
the mask may begin anew along a batch axis, as windows' masks do from image to image;
wide loads and stores where the last axis (of k either of the two) has neighbours side by side.
Floor: 2·L·S·(D + E) operations for each head at the rate of the matrix units; at batch 1 the steps
through the keys, one after the other.
Refuses: element types other than floats up to 32 bits, heads wider than 256, batch axes that do not
merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.backends.fusions import Attention
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.attention_axes import AttentionAxes, Steps, heads_of
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.epilogue import source_of
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes
from saccade.kernels.cuda.precision import dot_precision, product_dtype

__all__ = ["ATTENTION_FUSED", "AttentionConfig"]

Tile = tuple[int, int, int, int]
"""Rows, keys of a step, warps, stages."""
_REST = 16  # keys of a step where half of a whole one or fewer are left

_AXES = {"q": "01md", "k": "01sd", "v": "01se", "y": "01me"}
_INTEGERS = (
    "n1", "rows", "keys", *(f"{name}_{axis}" for name, axes in _AXES.items() for axis in axes),
)  # fmt: skip
_MASK_INTEGERS = ("mask_0", "mask_1", "mask_m", "mask_s")
_AGAIN = ("mask_n0", "mask_n1")
# Of 16-bit elements.
_TILES: tuple[Tile, ...] = (
    (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 3), (64, 64, 4, 3),
    (64, 32, 4, 3), (32, 64, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 32, 4, 2),
)  # fmt: skip
_WIDE_TILES: tuple[Tile, ...] = (
    (128, 32, 8, 2), (64, 32, 8, 2), (64, 32, 4, 2), (32, 32, 4, 2), (16, 64, 4, 2),
    (16, 32, 4, 2), (16, 16, 4, 2),
)  # fmt: skip
"""Of float32."""
_HELD = {"fp16": 128, "tf32": 96, "tf32x3": 96, "ieee": 44}
"""Elements that a thread may hold of scores and sums, of float32 also of q, before others spill."""
_LOADED = 48  # elements of k and v of float32 that a thread may load for a step, in two parts each
_SLIM = 64  # width of heads up to which `_HELD` tells; of wider ones only small blocks do not spill
_SPLIT_WIDEST = 128  # of three TF32 products: wider heads are not held in two parts
_WIDEST = 256  # width of heads
_LEAST = 16  # of any side of a product on the matrix units
_MOST = 2**31  # elements that offsets of 32 bits reach
# Microseconds of two products and a softmax that wait for each other (an estimate, not measured).
_STEP_LATENCY = 0.9


@dataclass(frozen=True)
class AttentionConfig:
    """What the code depends on.

    Attributes:
        elements: Of q, k, v and the result, and of the mask, if there is one.
        operand: What products are made of.
        head, width: D and E.
        scale: Of the scores.
        units: For each of `elements` the axis of stride 1: `d` the last one, `s` the other one of
            k, `-` none.
        precision: How products of float32 are made, for `tl.dot`.
        mask: Along which axes the mask varies: `rows`, `keys` or `both`; empty without one.
        tile: Rows, keys of a step, warps, stages.
        once: Whether all keys are one step.
        hidden: `Attention.hidden`.
        epilogue: Of each result.
    """

    elements: tuple[str, ...]
    operand: str
    head: int
    width: int
    scale: float
    units: str
    precision: str
    mask: str
    tile: Tile
    once: bool = False
    hidden: bool = False
    epilogue: str = str(IDENTITY)


def _supports(call: CudaCall) -> str | None:
    views = (*call.inputs, *call.outputs)
    if any(view.dtype not in FLOATS for view in views):
        return "element types"
    if any(view.extent >= _MOST for view in views):
        return "2^31 elements or more"
    axes = AttentionAxes.of(call)
    if axes is None:
        return "the batch axes do not merge into two"
    wide = max(axes.head, axes.width)
    return f"heads of {wide}" if wide > _WIDEST else None


def _side(size: int) -> int:
    """The power of two that holds an axis."""
    return max(_LEAST, 1 << (size - 1).bit_length())


def _precision(call: CudaCall, axes: AttentionAxes) -> str:
    found = dot_precision(call)
    wide = max(axes.head, axes.width) > _SPLIT_WIDEST
    return "ieee" if wide and found == "tf32x3" else found


def _tiles(call: CudaCall, axes: AttentionAxes) -> Iterator[Tile]:
    """Those whose operands fit in shared memory and whose sums fit in registers."""
    tiles = _WIDE_TILES if product_dtype(call) is DType.F32 else _TILES
    for tile in tiles:
        if tile == tiles[-1] or _fits(call, axes, tile):
            yield tile


def _fits(call: CudaCall, axes: AttentionAxes, tile: Tile) -> bool:
    rows, keys, warps, stages = tile
    operand, both = product_dtype(call), _mask(axes) == "both"
    narrow = operand is not DType.F32
    d, e = _side(axes.head), _side(axes.width)
    if max(d, e) > _SLIM and (not narrow or (both and rows < 64)):
        return rows * keys <= (1024 if narrow else 512)
    shared = (rows * d + stages * keys * (d + e)) * operand.itemsize
    pointers = 2 * keys if both else 0
    held = rows * (keys + pointers + e + (0 if narrow else d)) / (32 * warps)
    if not narrow and keys * (d + e) / (32 * warps) > _LOADED:
        return False
    most = _HELD["fp16" if narrow else _precision(call, axes)]
    return shared <= call.target.shared and held <= most


def _mask(axes: AttentionAxes) -> str:
    """Along which axes the mask varies."""
    if axes.mask is None:
        return ""
    along = (axes.mask[2] != 0, axes.mask[3] != 0)
    return {(True, False): "rows", (False, True): "keys"}.get(along, "both")


def _micros(call: CudaCall, axes: AttentionAxes, tile: Tile) -> float:
    """Arithmetic of the programs of a multiprocessor, their steps, or bytes."""
    machine = gpu(call.target.machine)
    rows, keys, warps, _ = tile
    programs = axes.matrices * -(-axes.rows // rows)
    steps = -(-axes.keys // keys)
    rate = machine.matrix_flops
    if product_dtype(call) is DType.F32:
        precision = _precision(call, axes)
        rate = {"ieee": machine.flops, "tf32": rate / 2}.get(precision, rate / 6)
    flops = 2.0 * rows * keys * (_side(axes.head) + _side(axes.width))
    weights = 12.0 * rows * keys  # operations of the softmax
    each = (flops / (0.6 * rate) + weights / (0.5 * machine.flops)) * machine.multiprocessors
    fill: float = min(1.0, rows / 64) ** 0.3
    busy = ceil(programs / machine.multiprocessors) * steps * each / fill
    waves = ceil(programs / (machine.multiprocessors * max(1, 12 // warps)))
    latency = waves * (1.0 + steps * _STEP_LATENCY)
    nbytes = moved_bytes(call)
    return LAUNCH + max(busy, latency, nbytes / (0.8 * machine.bandwidth))


def _variants(call: CudaCall) -> Iterator[Variant]:
    axes = heads_of(call)
    for micros, tile in sorted((_micros(call, axes, tile), tile) for tile in _tiles(call, axes)):
        yield Variant(micros, partial(_launches, call, tile), tile[1:])


def _unit(steps: Steps, sizes: tuple[int, int], other: str = "-") -> str:
    """The axis of stride 1; one of a single element may count as it."""
    if steps[3] == 1:
        return "d"
    return other if steps[2] == 1 and sizes[0] > 1 else "-"


def _units(axes: AttentionAxes) -> str:
    found = _unit(axes.q, (axes.rows, axes.head))
    found += _unit(axes.k, (axes.keys, axes.head), "s")
    found += _unit(axes.v, (axes.keys, axes.width)) + _unit(axes.y, (axes.rows, axes.width))
    return found + (_unit(axes.mask, (axes.rows, axes.keys)) if axes.mask else "")


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    op: Attention = call.op
    axes = heads_of(call)
    stored: tuple[View, ...] = (*call.inputs[:3], call.outputs[0], *call.inputs[3:])
    config = AttentionConfig(
        tuple(element_of(view) for view in stored), ELEMENTS[product_dtype(call)],
        axes.head, axes.width, op.scale, _units(axes), _precision(call, axes), _mask(axes), tile,
        axes.keys <= tile[1], op.hidden, str(op.epilogue),
    )  # fmt: skip
    integers = {"n1": axes.batch[1], "rows": axes.rows, "keys": axes.keys}
    for name, steps in (("q", axes.q), ("k", axes.k), ("v", axes.v), ("y", axes.y)):
        integers |= {f"{name}_{axis}": s for axis, s in zip(_AXES[name], steps, strict=True)}
    operands: dict[str, Operand] = {"q": In(0), "k": In(1), "v": In(2), "y": Out(0)}
    if axes.mask is not None:
        integers |= dict(zip(_MASK_INTEGERS, axes.mask, strict=True))
        integers |= dict(zip(_AGAIN, axes.again, strict=True))
        operands["mask"] = In(3)
    programs = axes.matrices * -(-axes.rows // tile[0])
    return (Launch(config, operands, integers, programs),)


def _entry(config: AttentionConfig) -> Entry:
    rows, keys, warps, stages = config.tile
    masked = config.mask != ""
    constants: dict[str, int | float | bool | str] = {
        "HEAD": config.head, "WIDTH": config.width, "SCALE": config.scale, "MASK": config.mask,
        "UNITS": config.units, "OPERAND": config.operand, "PRECISION": config.precision,
        "BM": rows, "BN": keys, "REST": min(_REST, keys),
        "BD": _side(config.head), "BE": _side(config.width), "ONCE": config.once,
        "HIDDEN": config.hidden,
    }  # fmt: skip
    return Entry(
        "attention.fused_code:attend",
        tuple(zip("qkvy", config.elements[:4], strict=True)),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of((config.epilogue,))},
        extra_pointers=(("mask", config.elements[4]),) if masked else (),
        extra_integers=(*_MASK_INTEGERS, *_AGAIN) if masked else (),
        multiples=(*_INTEGERS[2:], *(_MASK_INTEGERS if masked else ())),
        warps=warps,
        stages=stages,
    )


ATTENTION_FUSED = CudaKernel(
    "attention.fused", (Attention,), AttentionConfig, _supports, _variants, _entry
)
