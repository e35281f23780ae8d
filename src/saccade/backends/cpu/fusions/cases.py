"""Cases of the operators that only the CPU has, as `saccade.kernels.cases` has those of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from saccade.backends.cpu.fusions import Excite, ExpandDepthwise, RowSums, SeparableConv2d
from saccade.backends.fusions.cases import ATTENTIONS, COUNTED, SLICES
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import BF16, F32, GAPS, LAST, Case, CaseStorage, Operand, Result
from saccade.opdefs import Conv2d

__all__ = ["CASES"]

_BIAS_RELU = parse("relu(add($0, $1))")


def _weights(*shape: int) -> Operand:
    return Operand(shape, constant=True)


def _expanded(
    name: str, x: tuple[int, int, int, int], channels: int, taps: int, stride: int, pad: int
) -> Case:
    """A 1x1 convolution, then a depthwise one, biases and relu after either."""
    second = Conv2d((stride, stride), (pad,) * 4, groups=channels, epilogue=_BIAS_RELU)
    op = ExpandDepthwise(Conv2d(epilogue=_BIAS_RELU), second, 1)
    bias = _weights(1, channels, 1, 1)
    weights = (_weights(channels, x[1], 1, 1), _weights(channels, 1, taps, taps))
    operands = (Operand(x, storage=GAPS), *weights, bias, bias)
    return Case(name, op, operands, (Result(GAPS),), x[1] * taps * taps)


def _separable(
    name: str, x: tuple[int, int, int, int], filters: int, taps: int, stride: int, pad: int
) -> Case:
    """A depthwise convolution, then a 1x1 one, biases and relu after either."""
    channels = x[1]
    first = Conv2d((stride, stride), (pad,) * 4, groups=channels, epilogue=_BIAS_RELU)
    op = SeparableConv2d(first, Conv2d(epilogue=_BIAS_RELU), 1, F32)
    weights = (_weights(channels, 1, taps, taps), _weights(filters, channels, 1, 1))
    biases = (_weights(1, channels, 1, 1), _weights(1, filters, 1, 1))
    operands = (Operand(x, storage=GAPS), *weights, *biases)
    return Case(name, op, operands, (Result(GAPS),), channels * taps * taps)


def _with_row_sums(case: Case) -> Case:
    conv = case.op
    assert isinstance(conv, Conv2d | ExpandDepthwise)
    columns = case.operands[0].shape[3]
    results = (*case.results, Result(LAST))
    return replace(
        case, name=f"{case.name}-row-sums", op=RowSums(conv), results=results,
        terms=case.terms * columns,
    )  # fmt: skip


def _gates(
    name: str,
    x: tuple[int, int, int, int],
    hidden: int,
    gates: int,
    outer: str = "relu(add($0, $1))",
    kinds: tuple[DType, DType] = (F32, F32),
    storage: CaseStorage = GAPS,
) -> Case:
    inner = Conv2d(epilogue=parse("relu(add($0, $1))"))
    op = Excite(x[2] * x[3], inner, Conv2d(epilogue=parse(outer)), 1)
    shapes = ((hidden, x[1], 1, 1), (gates, hidden, 1, 1), (1, hidden, 1, 1), (1, gates, 1, 1))
    constants = (Operand(shape, constant=True) for shape in shapes)
    # Weights may be rounded like the gates are: a sum of halves has as many such errors.
    terms = x[1] * hidden * (1 if BF16 not in kinds else 4)
    result = Result(dtype=kinds[1])
    return Case(name, op, (Operand(x, kinds[0], storage), *constants), (result,), terms)


_DEPTHWISE = Case(
    "depthwise",
    Conv2d((1, 1), (1, 1, 1, 1), groups=33, epilogue=_BIAS_RELU),
    (Operand((2, 33, 9, 13), storage=GAPS), _weights(33, 1, 3, 3), _weights(1, 33, 1, 1)),
    (Result(GAPS),),
    9,
)
_NARROW = Case(
    "narrow-groups",
    Conv2d((1, 1), (1, 1, 1, 1), groups=13, epilogue=_BIAS_RELU),
    (Operand((2, 104, 6, 9), storage=GAPS), _weights(104, 8, 3, 3), _weights(1, 104, 1, 1)),
    (Result(GAPS),),
    72,
)
_EXPANDED = (
    _expanded("expand", (1, 5, 9, 13), 33, 3, 1, 1),
    _expanded("expand-stride-2", (2, 16, 12, 10), 64, 5, 2, 2),
    _expanded("expand-no-image", (0, 8, 5, 5), 16, 3, 1, 1),
)

_CONVOLUTIONS = (
    *_EXPANDED,
    _separable("separable", (1, 17, 9, 13), 33, 3, 1, 1),
    _separable("separable-5x5", (2, 48, 7, 7), 24, 5, 1, 2),
    _separable("separable-stride-2", (1, 1, 8, 30), 17, 5, 2, 2),
    _separable("separable-one-pixel", (1, 16, 1, 1), 100, 3, 1, 1),
    _separable("separable-no-images", (0, 8, 5, 5), 16, 3, 1, 1),
    _with_row_sums(_DEPTHWISE),
    _with_row_sums(_NARROW),
    _with_row_sums(_EXPANDED[0]),
)

_GATES = (
    _gates("one-column", (1, 40, 5, 1), 7, 40),
    _gates("two-images", (2, 65, 4, 3), 20, 33),
    _gates("one-channel", (1, 1, 1, 1), 1, 1),
    _gates("more-hidden-than-seen", (1, 96, 3, 1), 300, 150),
    _gates("no-image", (0, 16, 2, 2), 4, 16),
    _gates("tails", (2, 272, 6, 2), 33, 271),
    _gates("dense", (1, 48, 7, 7), 12, 48, "sigmoid(add($0, $1))", storage=LAST),
    _gates("hard-gates", (1, 24, 9, 5), 8, 24, "hard_sigmoid(add($0, $1), 0.2, 0.5)"),
    _gates("bf16-image", (1, 40, 2, 1), 7, 20, kinds=(BF16, F32)),
)

CASES: Mapping[str, tuple[Case, ...]] = MappingProxyType(
    {
        "attention": ATTENTIONS,
        "conv2d": _CONVOLUTIONS,
        "excite": _GATES,
        "movement": SLICES,
        "pointwise": COUNTED,
    }
)
"""For each family."""
