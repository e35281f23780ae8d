"""Cases of what only GPUs have, as `saccade.kernels.cases` has those of every device's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from types import MappingProxyType

from saccade.backends.cuda.fusions.conv_point import Conv2dPoint
from saccade.backends.cuda.fusions.conv_subpixel import Conv2dSubPixel
from saccade.backends.cuda.fusions.conv_sum import Conv2dSum
from saccade.backends.fusions.cases import ATTENTIONS, CHAINS, COUNTED, SLICES
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    F64,
    GAPS,
    I32,
    I64,
    LAST,
    NORMAL,
    ROWS,
    SPECIAL,
    WHOLE,
    Case,
    CaseStorage,
    Given,
    Normal,
    Operand,
    Result,
    ResultOf,
    Whole,
)
from saccade.opdefs import Conv2d, DepthToSpaceStore, MatMul, TiedNorm, TopK, VectorNormGrad

__all__ = ["CASES"]

_Shape = tuple[int, ...]


def _whole(name: str, dtype: DType, known: bool) -> Case:
    a = Operand((2, 3, 20, 17), dtype, values=WHOLE)
    b = Operand((3, 17, 33), dtype, constant=known, values=WHOLE)
    return Case(name, MatMul(), (a, b), terms=0)


# Every sum is far beyond 8 bits.
_WRAPPING = tuple(Operand(shape, DType.I8, values=Whole(90, 127)) for shape in ((3, 90), (90, 5)))
_PRODUCTS = (
    _whole("int64", DType.I64, False),
    _whole("int32", DType.I32, True),
    _whole("uint8", DType.U8, False),
    _whole("float64", DType.F64, True),
    Case("wraps", MatMul(), _WRAPPING, terms=0),
    Case(
        "odd-columns", MatMul(epilogue=parse("add($0, $1)")),
        (Operand((2, 37, 72)), Operand((72, 91), constant=True), Operand((91,))), terms=72,
    ),
    Case(
        "wider-columns", MatMul(),
        (Operand((150, 64), BF16), Operand((64, 40), BF16, constant=True)), terms=64,
    ),
)  # fmt: skip

_SAME = (1, 1, 1, 1)  # padding that keeps sizes under windows of 3x3
_ADDED = parse("relu(add(add($0, $1), $2))")


def _sum(
    name: str, first: Conv2d, stride: tuple[int, int], *shapes: _Shape, whole: bool = False
) -> Case:
    """Two convolutions of `shapes`: x, w, x2, w2, operands of the epilogue."""
    weights, values = (1, 3), WHOLE if whole else NORMAL
    operands = tuple(
        Operand(
            shape, constant=i in weights, values=values,
            storage=LAST if len(shape) == 4 and i not in weights else ROWS,
        )
        for i, shape in enumerate(shapes)
    )  # fmt: skip
    terms = 0 if whole else prod(shapes[1][1:]) + shapes[3][1]
    return Case(name, Conv2dSum(first, Conv2d(stride=stride)), operands, (Result(LAST),), terms)


_SUMS = (
    _sum(
        "shortcut", Conv2d(), (2, 2), (2, 64, 7, 9), (96, 64, 1, 1), (2, 48, 13, 17), (96, 48, 1, 1)
    ),
    _sum(
        "branch", Conv2d(padding=_SAME, epilogue=_ADDED), (1, 1), (3, 72, 11, 5), (40, 72, 3, 3),
        (3, 136, 11, 5), (40, 136, 1, 1), (40, 1, 1), (3, 40, 11, 5),
    ),
    _sum(
        "strides", Conv2d(stride=(2, 1), padding=(1, 0, 0, 2), dilation=(1, 2)), (3, 2),
        (2, 40, 10, 12), (136, 40, 3, 3), (2, 200, 13, 20), (136, 200, 1, 1),
    ),
    _sum(
        "few-channels", Conv2d(), (1, 1), (2, 8, 3, 5), (8, 8, 1, 1), (2, 16, 3, 5), (8, 16, 1, 1)
    ),
    _sum(
        "many-pixels", Conv2d(), (1, 1), (5, 64, 33, 31), (264, 64, 1, 1), (5, 64, 33, 31),
        (264, 64, 1, 1), whole=True,
    ),
)  # fmt: skip


def _point(name: str, first: Conv2d, second: Conv2d, *shapes: _Shape, own: int = 0) -> Case:
    """A convolution and a 1x1 one of `shapes`: x, w, w2, the `own` of the first epilogue."""
    operands = tuple(
        Operand(
            shape, constant=i in (1, 2),
            storage=LAST if len(shape) == 4 and i not in (1, 2) else ROWS,
        )
        for i, shape in enumerate(shapes)
    )  # fmt: skip
    # What lies between is rounded as a result is, and multiplied as often as it has channels.
    terms = prod(shapes[1][1:]) * shapes[2][1]
    return Case(name, Conv2dPoint(first, second, own), operands, (Result(LAST),), terms)


_BIAS_RELU = parse("relu(add($0, $1))")
_POINTS = (
    _point(
        "point", Conv2d(padding=_SAME, epilogue=_BIAS_RELU), Conv2d(epilogue=_ADDED),
        (2, 72, 9, 11), (64, 72, 3, 3), (136, 64, 1, 1), (64, 1, 1), (136, 1, 1), (2, 136, 9, 11),
        own=1,
    ),
    _point(
        "point-strided", Conv2d(stride=(2, 1), padding=(1, 0, 0, 2), dilation=(1, 2)), Conv2d(),
        (3, 64, 10, 12), (128, 64, 3, 3), (40, 128, 1, 1),
    ),
    _point(
        "point-many", Conv2d(epilogue=parse("clip($0, 0.0, 6.0)")), Conv2d(epilogue=_BIAS_RELU),
        (1, 40, 13, 17), (256, 40, 1, 1), (520, 256, 1, 1), (520, 1, 1),
    ),
    _point(
        "point-by-pixel", Conv2d(padding=_SAME, epilogue=_BIAS_RELU),
        Conv2d(store=DepthToSpaceStore(2, "CRD")), (1, 16, 12, 20), (64, 16, 3, 3), (96, 64, 1, 1),
        (64, 1, 1), own=1,
    ),
)  # fmt: skip


def _upscaled(
    name: str, first: Conv2d, *shapes: _Shape, own: int = 0, second: Conv2d | None = None,
    whole: bool = False,
) -> Case:  # fmt: skip
    """A sub-pixel convolution and one of its image: x, w, w2, the `own` of the first epilogue."""
    operands = tuple(
        Operand(
            shape, constant=i in (1, 2), values=WHOLE if whole else NORMAL,
            storage=LAST if len(shape) == 4 and i not in (1, 2) else ROWS,
        )
        for i, shape in enumerate(shapes)
    )  # fmt: skip
    terms = 0 if whole else prod(shapes[1][1:]) * prod(shapes[2][1:])
    op = Conv2dSubPixel(first, second or Conv2d(padding=_SAME), own)
    return Case(name, op, operands, terms=terms)


_BLOCKS = DepthToSpaceStore(2, "CRD")
_UPSCALED = (
    _upscaled(
        "upscaled", Conv2d(padding=_SAME, epilogue=_BIAS_RELU, store=_BLOCKS), (2, 32, 9, 70),
        (64, 32, 3, 3), (3, 16, 3, 3), (64, 1, 1), (3, 1, 1), own=1,
        second=Conv2d(padding=_SAME, epilogue=_BIAS_RELU),
    ),
    _upscaled(
        "upscaled-blocks-apart",
        Conv2d(padding=_SAME, epilogue=_BIAS_RELU, store=DepthToSpaceStore(2, "DCR")),
        (1, 16, 13, 62), (32, 16, 3, 3), (1, 8, 3, 3), (32, 1, 1), own=1,
    ),
    _upscaled(
        "upscaled-ones", Conv2d(padding=_SAME, epilogue=parse("add($0, 1.0)"), store=_BLOCKS),
        (1, 32, 5, 129), (64, 32, 3, 3), (4, 16, 3, 3),
    ),
    _upscaled(
        "upscaled-by-points", Conv2d(store=_BLOCKS), (3, 24, 7, 5), (96, 24, 1, 1), (2, 24, 3, 3)
    ),
    _upscaled(
        "upscaled-two-rows", Conv2d(padding=(1, 2, 0, 0), store=_BLOCKS), (1, 8, 40, 63),
        (32, 8, 2, 3), (3, 8, 3, 3), whole=True,
    ),
    _upscaled(
        "upscaled-tall", Conv2d(padding=_SAME, store=_BLOCKS), (1, 24, 300, 4), (64, 24, 3, 3),
        (3, 16, 3, 3),
    ),
)  # fmt: skip


def _strip(
    name: str, op: Conv2d, *shapes: _Shape, whole: bool = False, dtype: DType = F32,
    storage: CaseStorage = LAST,
) -> Case:  # fmt: skip
    """A convolution of many pixels in a row: x, w, operands of the epilogue."""
    operands = tuple(
        Operand(
            shape, dtype, constant=i == 1, values=WHOLE if whole else NORMAL,
            storage=LAST if len(shape) == 4 and i != 1 else ROWS,
        )
        for i, shape in enumerate(shapes)
    )  # fmt: skip
    terms = 0 if whole else prod(shapes[1][1:])
    return Case(name, op, operands, (Result(storage),), terms)


_STRIPS = (
    _strip(
        "strip-added", Conv2d(padding=_SAME, epilogue=_ADDED), (2, 64, 9, 150), (64, 64, 3, 3),
        (64, 1, 1), (2, 64, 9, 150),
    ),
    _strip(
        "strip-as-pixels",
        Conv2d(padding=_SAME, epilogue=_BIAS_RELU, store=DepthToSpaceStore(2, "DCR")),
        (1, 32, 7, 66), (128, 32, 3, 3), (128, 1, 1),
    ),
    _strip(
        "strip-as-packed-pixels",
        Conv2d(padding=_SAME, epilogue=_BIAS_RELU, store=DepthToSpaceStore(2, "CRD")),
        (2, 16, 5, 65), (64, 16, 3, 3), (64, 1, 1),
    ),
    _strip(
        "strip-of-many-channels", Conv2d(padding=(1, 2, 0, 0), epilogue=parse("sigmoid($0)")),
        (1, 24, 30, 70), (136, 24, 2, 3),
    ),
    _strip(
        "strip-tall", Conv2d(padding=(2, 0, 2, 0)), (1, 8, 701, 3), (8, 8, 5, 1), whole=True
    ),
)  # fmt: skip

# Channels that do not come in eights, and results that are wider than what they are made of.
_LOOSE = (
    _strip(
        "odd-channels", Conv2d(padding=_SAME, epilogue=_ADDED), (2, 64, 9, 15), (91, 64, 3, 3),
        (91, 1, 1), (2, 91, 9, 15),
    ),
    _strip("odd-channels-many", Conv2d(), (1, 72, 11, 13), (819, 72, 1, 1), whole=True),
    _strip(
        "odd-channels-few", Conv2d(epilogue=_BIAS_RELU), (2, 256, 30, 41), (3, 256, 1, 1), (3, 1, 1)
    ),
    _strip(
        "odd-channels-apart", Conv2d((2, 2), _SAME, epilogue=parse("sigmoid($0)")),
        (2, 40, 12, 17), (21, 40, 3, 3), storage=GAPS,
    ),
    _strip(
        "wider-results", Conv2d(padding=_SAME, epilogue=_BIAS_RELU), (2, 64, 9, 15), (48, 64, 3, 3),
        (48, 1, 1), dtype=BF16,
    ),
    _strip(
        "wider-results-odd", Conv2d(epilogue=_BIAS_RELU), (1, 256, 25, 33), (12, 256, 1, 1),
        (12, 1, 1), dtype=BF16, storage=GAPS,
    ),
)  # fmt: skip

_QUARTERS = Whole(-8, 8, 0.25)  # so that magnitudes are equal


def _tied(
    name: str, p: float, shape: _Shape, axes: tuple[int, ...], dtype: DType = F32, *,
    keepdims: bool = False, values: Normal | Whole = _QUARTERS,
) -> Case:  # fmt: skip
    op = TiedNorm(p, axes, keepdims, F64 if dtype is F64 else F32)
    return Case(name, op, (Operand(shape, dtype, values=values),), terms=0)


def _flowing(
    name: str, p: float, shape: _Shape, axes: tuple[int, ...], *, grad: DType = F32, x: DType = F32
) -> Case:
    """Gradients of a norm whose ties are known."""
    op = TiedNorm(p, axes, False, F32)
    left = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    operands = (
        Operand(left, grad),
        Operand(shape, x, values=_QUARTERS),
        Operand(left, values=ResultOf(op, (1,))),
        Operand(left, I32, values=ResultOf(op, (1,), 1)),
    )
    return Case(name, VectorNormGrad(p, axes, False), operands, (Result(dtype=x),), 1)


_NORMS = (
    _tied("tied-largest", inf, (37, 41), (1,)),
    _tied("tied-smallest", -inf, (37, 41), (1,)),
    _tied("tied-across", inf, (37, 41), (0,)),
    _tied("tied-between", -inf, (3, 70, 5), (1,), keepdims=True),
    _tied("tied-around", inf, (3, 7, 5), (0, 2)),
    _tied("tied-of-many", inf, (3, 50_000), (1,)),
    _tied("tied-of-many-across", -inf, (16_000, 3), (0,)),
    _tied("tied-of-all", inf, (70_001,), (0,)),
    _tied("tied-special", inf, (31, 43), (1,), values=SPECIAL),
    _tied("tied-special-smallest", -inf, (31, 43), (1,), values=SPECIAL),
    _tied("tied-f64", inf, (13, 21), (0,), F64),
    _tied("tied-f16", inf, (11, 35), (1,), F16),
    _tied("tied-one", inf, (1, 1), (1,)),
    _tied("tied-nothing", inf, (0, 7), (1,)),
    _flowing("flow-largest", inf, (37, 41), (1,)),
    _flowing("flow-smallest", -inf, (37, 41), (1,)),
    _flowing("flow-across", inf, (37, 41), (0,)),
    _flowing("flow-between", inf, (3, 70, 5), (1,)),
    _flowing("flow-halves", inf, (37, 41), (1,), grad=F16, x=F16),
    _flowing("flow-halves-across", inf, (3, 7, 35), (1,), grad=F16, x=F16),
)


def _counted(
    name: str, shape: _Shape, op: TopK, number: int, dtype: DType = F32,
    values: Normal | Whole = _QUARTERS,
) -> Case:  # fmt: skip
    """The best of as many elements as are said to be there."""
    operands = Operand(shape, dtype, values=values), Operand((1,), I64, values=Given((number,)))
    return Case(name, replace(op, counted=True), operands, (Result(dtype=dtype),), 0)


_RANKED = (
    _counted("counted", (3, 37), TopK(5, 1), 11),
    _counted("counted-few", (3, 37), TopK(5, 1), 3),
    _counted("counted-none", (2, 37), TopK(5, 1, False), 0),
    _counted("counted-all", (2, 1031), TopK(100, 1), 2000),
    _counted("counted-of-many", (2, 1031), TopK(100, 1), 500, values=SPECIAL),
    _counted("counted-fewer-than-wanted", (2, 1031), TopK(100, 1), 60),
    _counted("counted-of-thousands", (1, 70001), TopK(100, 1), 30011, values=Whole(-5000, 5000)),
    _counted("counted-few-of-thousands", (70001,), TopK(100, 0, False), 40),
    _counted("counted-across", (2, 700, 3), TopK(9, 1), 400, F16),
    _counted("counted-i64", (2, 900), TopK(50, 1, False), 77, I64, Whole(-20, 20)),
)

CASES: Mapping[str, tuple[Case, ...]] = MappingProxyType(
    {
        "attention": ATTENTIONS,
        "conv2d": (*_SUMS, *_POINTS, *_UPSCALED, *_STRIPS, *_LOOSE),
        "matmul": _PRODUCTS,
        "norm": _NORMS,
        "pointwise": (*CHAINS, *COUNTED, *SLICES),
        "select": _RANKED,
    }
)
"""For each family."""
