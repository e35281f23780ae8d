"""Convolutions: windows, storage, prologues, epilogues, store maps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F32,
    GAPS,
    LAST,
    ROWS,
    WHOLE,
    Case,
    CaseStorage,
    Operand,
    Result,
)
from saccade.opdefs import (
    Conv2d,
    DepthToSpaceStore,
    InterleaveStore,
)

__all__ = ["CASES", "RESNET", "WINDOWS", "ConvShape"]

_SAME = (1, 1, 1, 1)
_BIAS_RELU = parse("relu(add($0, $1))")
_TRANSFORMED = 16  # a transform for tiles of 7 rounds four times as much as a sum


@dataclass(frozen=True, slots=True)
class ConvShape:
    """One convolution without epilogue.

    Attributes:
        name: For people.
        x: Shape of the input, [N, C, H, W].
        w: Shape of the weights, [K, C/groups, R, S].
        op: Stride, padding, dilation, groups.
    """

    name: str
    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    op: Conv2d = field(default_factory=Conv2d)

    @property
    def depth(self) -> int:
        """How many products each result sums."""
        return self.w[1] * self.w[2] * self.w[3]


WINDOWS = (
    ConvShape("same", (1, 17, 9, 11), (48, 17, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("stride-2", (2, 3, 13, 15), (17, 3, 3, 3), Conv2d((2, 2), (1, 1, 1, 1))),
    ConvShape("asymmetric", (1, 5, 7, 8), (19, 5, 3, 2), Conv2d((2, 1), (0, 2, 1, 1))),
    ConvShape("dilated", (1, 8, 12, 9), (16, 8, 3, 3), Conv2d((1, 1), (3, 2, 3, 2), (3, 2))),
    ConvShape("grouped", (2, 12, 8, 9), (30, 4, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=3)),
    ConvShape("grouped-wide", (1, 64, 5, 6), (48, 32, 3, 3), Conv2d(padding=_SAME, groups=2)),
    ConvShape("pointwise", (2, 96, 7, 7), (48, 96, 1, 1)),
    ConvShape("pointwise-stride", (1, 33, 9, 10), (65, 33, 1, 1), Conv2d((2, 3))),
    ConvShape("one-channel", (1, 1, 10, 10), (1, 1, 5, 5), Conv2d(padding=(2, 2, 2, 2))),
    ConvShape("depthwise", (1, 17, 8, 7), (17, 1, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=17)),
    ConvShape("multiplier", (1, 5, 6, 6), (10, 1, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=5)),
    ConvShape("one-pixel", (1, 40, 1, 1), (150, 40, 1, 1)),
    ConvShape("wide-kernel", (1, 3, 20, 18), (24, 3, 7, 7), Conv2d((2, 2), (3, 3, 3, 3))),
    ConvShape(
        "padding-only-taps", (1, 4, 2, 3), (8, 4, 3, 3), Conv2d((1, 1), (2, 2, 2, 2), (2, 2))
    ),
    ConvShape("no-images", (0, 8, 9, 9), (16, 8, 3, 3)),
)
"""Small windows of every kind."""

RESNET = tuple(
    ConvShape(
        f"{c}-{k}-{r}x{r}-{h}" + (f"-s{s}" if s > 1 else ""),
        (1, c, h, h),
        (k, c, r, r),
        Conv2d((s, s), (r // 2,) * 4),
    )
    for c, k, r, h, s in (
        (3, 64, 7, 224, 2),
        (64, 64, 1, 56, 1), (64, 64, 3, 56, 1), (64, 256, 1, 56, 1), (256, 64, 1, 56, 1),
        (256, 128, 1, 56, 1), (128, 128, 3, 56, 2), (256, 512, 1, 56, 2),
        (128, 512, 1, 28, 1), (512, 128, 1, 28, 1), (128, 128, 3, 28, 1),
        (512, 256, 1, 28, 1), (256, 256, 3, 28, 2), (512, 1024, 1, 28, 2),
        (256, 1024, 1, 14, 1), (1024, 256, 1, 14, 1), (256, 256, 3, 14, 1),
        (1024, 512, 1, 14, 1), (512, 512, 3, 14, 2), (1024, 2048, 1, 14, 2),
        (512, 2048, 1, 7, 1), (2048, 512, 1, 7, 1), (512, 512, 3, 7, 1),
    )
)  # fmt: skip
"""The layers of ResNet-50 at 224 x 224, for measurements: no cases, they are too large."""


def _weights(*shape: int) -> Operand:
    return Operand(shape, constant=True)


def _case(
    shape: ConvShape,
    *more: Operand,
    x: CaseStorage = LAST,
    y: CaseStorage = LAST,
    name: str | None = None,
) -> Case:
    """Without `more` the plain convolution, else with operands of what is fused into it."""
    operands = (Operand(shape.x, storage=x), _weights(*shape.w), *more)
    return Case(name or shape.name, shape.op, operands, (Result(y),), _TRANSFORMED * shape.depth)


def _window(name: str) -> ConvShape:
    """One of `WINDOWS`."""
    return next(shape for shape in WINDOWS if shape.name == name)


def _stored_bf16(case: Case) -> Case:
    """Small whole numbers, so that nothing is rounded before the result is."""
    x, w, *more = (replace(operand, values=WHOLE) for operand in case.operands)
    operands = (replace(x, dtype=BF16), w, *more)
    return replace(case, name=f"{case.name}-bf16", operands=operands, results=(Result(GAPS, BF16),))


def _square(name: str, x: tuple[int, int, int, int], k: int, r: int, op: Conv2d) -> ConvShape:
    return ConvShape(name, x, (k, x[1] // op.groups, r, r), op)


def _plain(name: str, epilogue: str) -> ConvShape:
    op = Conv2d(padding=_SAME, epilogue=parse(epilogue))
    return _square(name, (2, 20, 6, 5), 20, 3, op)


_BIAS = _weights(1, 20, 1, 1)
_PROLOGUE = Conv2d(prologue=parse("relu(mul($0, $1))"), n_prologue=1)
_NORMALIZED = Conv2d(
    (2, 2), prologue=parse("relu(add(mul($0, $1), $2))"), n_prologue=2,
    epilogue=parse("add($0, $1)"),
)  # fmt: skip
_BLOCKS = Conv2d(padding=_SAME, store=DepthToSpaceStore(2, "CRD"))
_PARTS = Conv2d(store=InterleaveStore(2, 1))
_FUSED = (
    _case(_plain("bias-relu", "relu(add($0, $1))"), _BIAS, x=GAPS),
    _case(
        _plain("residual", "hardswish(add(add($0, $1), $2))"),
        _BIAS, Operand((2, 20, 6, 5), storage=GAPS), y=GAPS,
    ),
    _case(_plain("image-channel", "mul($0, $1)"), Operand((2, 20, 1, 1))),
    _case(_plain("scalar", "add($0, $1)"), _weights()),
    _case(_square("prologue", (2, 33, 6, 5), 20, 1, _PROLOGUE), _weights(1, 33, 1, 1)),
    _case(_square("depth-to-space", (1, 9, 5, 4), 12, 3, _BLOCKS)),
    _case(
        _square("interleaved", (1, 16, 5, 4), 10, 1, _PARTS), Operand((1, 10, 5, 4), storage=LAST)
    ),
)  # fmt: skip

_ADDED = parse("relu(add(add($0, $1), $2))")
_EIGHTS = (
    _case(
        _square("eights-residual", (2, 24, 9, 7), 40, 3, Conv2d((2, 2), _SAME, epilogue=_ADDED)),
        _weights(1, 40, 1, 1), Operand((2, 40, 5, 4), storage=LAST),
    ),
    _case(
        _square("eights-residual-gaps", (2, 136, 6, 5), 72, 1, Conv2d(epilogue=_ADDED)),
        _weights(1, 72, 1, 1), Operand((2, 72, 6, 5), storage=GAPS),
    ),
    _case(
        _square("eights-point-residual", (2, 136, 11, 9), 264, 1, Conv2d(epilogue=_ADDED)),
        _weights(1, 264, 1, 1), Operand((2, 264, 11, 9), storage=LAST),
    ),
    _case(
        _square("eights-point-strided", (3, 72, 13, 6), 40, 1, Conv2d((2, 3), epilogue=_BIAS_RELU)),
        _weights(1, 40, 1, 1),
    ),
    _case(
        _square("eights-by-pixel", (1, 40, 5, 6), 64, 3, replace(_BLOCKS, epilogue=_BIAS_RELU)),
        _weights(1, 64, 1, 1),
    ),
    _case(
        _square("eights-prologue", (3, 72, 5, 6), 40, 1, replace(_PROLOGUE, epilogue=_BIAS_RELU)),
        Operand((3, 72, 1, 1)), _weights(1, 40, 1, 1),
    ),
    _case(
        _square("eights-prologue-strided", (2, 136, 7, 6), 24, 1, _NORMALIZED),
        _weights(1, 136, 1, 1), _weights(1, 136, 1, 1), Operand((2, 24, 4, 3), storage=LAST),
    ),
    _case(_square(
        "eights-by-channel", (3, 16, 6, 5), 72, 3,
        Conv2d(padding=(2, 1, 0, 1), store=DepthToSpaceStore(3, "DCR")),
    )),
    _case(_square("eights-dilated", (3, 72, 11, 12), 136, 3, Conv2d((1, 2), (2, 0, 1, 2), (2, 1)))),
)  # fmt: skip
"""Channels in eights, side by side: what the tensor memory accelerator loads."""

_WIDER = CaseStorage(channels_last=True, gap=8)
_PART = replace(_WIDER, gap=24, aligned=True)
_PARTS_OF_WIDER = (
    _case(
        _square("part-same", (2, 72, 11, 12), 72, 3, Conv2d(padding=_SAME, epilogue=_ADDED)),
        _weights(1, 72, 1, 1), Operand((2, 72, 11, 12), storage=_PART), x=_PART, y=_PART,
    ),
    _case(
        _square("part-narrow", (1, 16, 19, 21), 32, 3, Conv2d(padding=_SAME, epilogue=_BIAS_RELU)),
        _weights(1, 32, 1, 1), x=_PART, y=_PART,
    ),
    _case(
        _square("part-strided", (2, 40, 9, 13), 64, 3, Conv2d((2, 2), _SAME)), x=_PART, y=_PART
    ),
    _case(
        _square("part-point", (1, 136, 11, 9), 264, 1, Conv2d(epilogue=_ADDED)),
        _weights(1, 264, 1, 1), Operand((1, 264, 11, 9), storage=_PART), x=_PART, y=_PART,
    ),
    _case(
        _square("part-groups", (1, 64, 9, 11), 64, 3, Conv2d(padding=_SAME, groups=4)),
        x=_PART, y=_PART,
    ),
)  # fmt: skip
"""Parts of wider pixels that begin at multiples of 16 bytes."""

_FAR = Conv2d(padding=(3, 3, 3, 3), dilation=(3, 3))
_STRIDED = Conv2d((2, 2), (2, 1, 0, 3))
_SPECIAL = (
    # Three channels in planes, as models are given their images.
    _case(_window("stride-2"), x=ROWS, name="first-layer"),
    _case(_window("wide-kernel"), x=ROWS, name="stem"),
    _case(_plain("row-major", "$0"), x=ROWS, y=ROWS),
    _case(_square("few-filters", (2, 16, 6, 19), 3, 3, Conv2d(padding=_SAME)), x=GAPS, y=ROWS),
    _case(
        _square("few-planes", (2, 16, 11, 38), 3, 3, Conv2d(padding=_SAME, epilogue=_BIAS_RELU)),
        _weights(1, 3, 1, 1),
        x=_WIDER,
        y=ROWS,
    ),
    _case(
        _square(
            "few-planes-added", (1, 32, 5, 35), 4, 3, Conv2d(padding=(0, 2, 1, 1), epilogue=_ADDED)
        ),
        _weights(1, 4, 1, 1),
        Operand((1, 4, 4, 36), storage=ROWS),
        x=LAST,
        y=ROWS,
    ),
    _case(
        _square("few-planes-5x5", (1, 12, 9, 11), 2, 5, Conv2d(padding=(2, 2, 2, 2))),
        x=CaseStorage(strides=(1584, 1, 176, 16)),
        y=ROWS,
    ),
    _case(_square("few-filters-stride-2", (1, 8, 11, 12), 2, 5, _STRIDED), y=GAPS),
    _case(_square("taps-far-apart", (2, 17, 7, 5), 20, 3, _FAR), x=GAPS, y=GAPS),
    _case(_square("one-pixel-same", (3, 1, 1, 1), 1, 3, Conv2d(padding=_SAME))),
    _case(_square("many-tiles", (1, 48, 15, 13), 48, 3, Conv2d(padding=_SAME))),
)

_STEMS = (
    _case(
        _square(
            "stem-wide", (1, 3, 23, 151), 72, 7, Conv2d((2, 2), (3, 3, 3, 3), epilogue=_BIAS_RELU)
        ),
        _weights(1, 72, 1, 1), x=ROWS,
    ),
    _case(ConvShape("stem-of-four", (2, 4, 13, 19), (40, 4, 5, 2), Conv2d((3, 2), (1, 0, 2, 1)))),
    _case(
        _square(
            "stem-residual", (2, 2, 9, 21), 32, 3, Conv2d((1, 2), _SAME, epilogue=_ADDED)
        ),
        _weights(1, 32, 1, 1), Operand((2, 32, 9, 11), storage=LAST),
    ),
    _case(
        _square(
            "stem-by-pixel", (1, 1, 10, 12), 32, 3,
            Conv2d((2, 4), _SAME, store=DepthToSpaceStore(2, "CRD")),
        )
    ),
)  # fmt: skip
"""Few channels, strides that leave the taps of a row at multiples of 16 bytes."""


def _depthwise(
    name: str, x: tuple[int, int, int, int], taps: int, op: Conv2d, storage: CaseStorage = GAPS
) -> Case:
    shape = _square(name, x, x[1], taps, replace(op, groups=x[1]))
    # `$0` is the convolution itself.
    bias = (_weights(1, x[1], 1, 1),) * (op.epilogue.operands - 1)
    return _case(shape, *bias, x=storage, y=storage)


_DEPTHWISE = (
    _depthwise("depthwise-5x5", (2, 48, 7, 7), 5, Conv2d(padding=(2, 2, 2, 2)), LAST),
    _depthwise("depthwise-dilated", (1, 20, 15, 14), 3, Conv2d((1, 1), (4, 4, 4, 4), (4, 4)), LAST),
    _depthwise("depthwise-borders", (2, 3, 10, 9), 3, Conv2d((2, 2), (1, 0, 2, 3))),
    _depthwise("depthwise-bias", (2, 33, 9, 13), 3, Conv2d(padding=_SAME, epilogue=_BIAS_RELU)),
)


def _narrow(
    name: str, groups: int, channels: int, filters: int, size: tuple[int, int], op: Conv2d
) -> Case:
    shape = ConvShape(
        name, (1, groups * channels, *size), (groups * filters, channels, 3, 3),
        replace(op, groups=groups),
    )  # fmt: skip
    bias = (_weights(1, groups * filters, 1, 1),) * (op.epilogue.operands - 1)
    return _case(shape, *bias, x=GAPS, y=GAPS)


_NARROW = (
    _narrow("narrow-fours", 9, 4, 4, (7, 13), Conv2d(padding=_SAME, epilogue=_BIAS_RELU)),
    _narrow("narrow-eights", 13, 8, 8, (9, 10), Conv2d((2, 2), _SAME, epilogue=_BIAS_RELU)),
    _narrow("narrow-24", 3, 24, 24, (6, 5), Conv2d((1, 1), (2, 0, 1, 3), (2, 1))),
    _narrow("narrow-multiplier", 7, 2, 4, (5, 6), Conv2d(padding=_SAME)),
)
"""Groups of fewer filters than vectors have lanes, or of another number than they fill."""


def _grouped(
    name: str, x: tuple[int, int, int, int], k: int, taps: int, op: Conv2d, *more: Operand
) -> Case:
    return _case(_square(name, x, k, taps, op), *more)


_GROUPS = (
    _grouped(
        "groups-fours", (2, 80, 9, 19), 80, 3,
        Conv2d(padding=_SAME, groups=20, epilogue=_BIAS_RELU), _weights(1, 80, 1, 1),
    ),
    _grouped(
        "groups-eights", (2, 72, 11, 9), 72, 3,
        Conv2d((2, 2), _SAME, groups=9, epilogue=_ADDED),
        _weights(1, 72, 1, 1), Operand((2, 72, 6, 5), storage=LAST),
    ),
    _grouped("groups-24", (2, 72, 8, 17), 72, 3, Conv2d(padding=(0, 2, 1, 0), groups=3)),
    _grouped("groups-48", (1, 96, 20, 12), 96, 3, Conv2d((2, 2), _SAME, groups=2)),
    _grouped("groups-5x5", (1, 32, 10, 21), 32, 5, Conv2d(padding=(2, 2, 2, 2), groups=4)),
    _grouped("groups-5x5-strided", (1, 64, 11, 14), 64, 5, Conv2d((2, 2), (2, 1, 0, 2), groups=8)),
    _grouped(
        "groups-multiplier", (1, 64, 6, 20), 128, 3,
        Conv2d(padding=_SAME, groups=8, epilogue=_ADDED),
        _weights(1, 128, 1, 1), Operand((1, 128, 6, 20), storage=GAPS),
    ),
)  # fmt: skip
"""Groups that fill products together, in multiples of eight channels."""


def _computed(case: Case, storage: CaseStorage = ROWS, dtype: DType = F32) -> Case:
    """The case with weights that a run computes."""
    x, w, *more = case.operands
    w = replace(w, constant=False, storage=storage, dtype=dtype)
    if dtype is BF16:
        w = replace(w, values=WHOLE)
    how = "-last" if storage == LAST else ""
    name = f"{case.name}{how}-computed{'-bf16' if dtype is BF16 else ''}"
    return replace(case, name=name, operands=(x, w, *more))


_ACROSS = CaseStorage(strides=(1, 20, 17 * 20 * 3, 17 * 20))
"""Weights [20, 17, 3, 3] as a transposition leaves them."""
_COMPUTED = (
    *(_computed(_case(_window(name))) for name in ("same", "pointwise", "grouped", "stride-2")),
    *(_computed(_case(_window(name)), LAST) for name in ("same", "grouped")),
    replace(
        _computed(_case(_square("across", (2, 17, 7, 5), 20, 3, _FAR), x=GAPS), _ACROSS),
        name="across-computed",
    ),
    _computed(_case(_plain("computed-bias", "relu(add($0, $1))"), _BIAS, x=GAPS)),
    _computed(_case(_square("computed-planes", (1, 3, 6, 5), 9, 3, Conv2d()), x=ROWS, y=ROWS)),
    _computed(_DEPTHWISE[0]),
    _computed(_DEPTHWISE[3], LAST),
    _computed(_stored_bf16(_case(_window("same"))), dtype=BF16),
)

CASES = (
    *(_case(shape) for shape in WINDOWS),
    *_SPECIAL,
    *_FUSED,
    *_EIGHTS,
    *_PARTS_OF_WIDER,
    *_STEMS,
    *_DEPTHWISE,
    *_NARROW,
    *_GROUPS,
    *(_stored_bf16(_case(_window(name))) for name in ("same", "pointwise", "depthwise")),
    *_COMPUTED,
)
