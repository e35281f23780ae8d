"""Attention on GPUs: the kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from saccade.backends.fusions.cases import ATTENTIONS
from saccade.ir import DType
from saccade.kernels.attention_axes import AttentionAxes
from saccade.kernels.base import Call
from saccade.kernels.cases.base import F16, Operand
from saccade.kernels.cuda import kernel_named
from saccade.testing.cases import hold, inputs_of, outputs_of
from saccade.testing.triton import H200, interpret

FUSED = kernel_named("attention.fused")


def call_of(case, target=H200, exact=False):
    known = tuple(operand.constant for operand in case.operands)
    return Call(case.op, inputs_of(case), outputs_of(case), known, target, 1, exact)


def named(name):
    return next(case for case in ATTENTIONS if case.name == name)


def halves(case):
    return replace(case, operands=tuple(replace(o, dtype=F16) for o in case.operands))


@pytest.mark.parametrize("case", ATTENTIONS, ids=lambda case: case.name)
def test_cases(case):
    for one in (case, halves(case)):
        call = call_of(one)
        hold(one, lambda _case, arrays, call=call: interpret(FUSED, call, arrays))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_every_tile(dtype):
    case = named("merged-heads")
    case = replace(case, operands=tuple(replace(o, dtype=dtype) for o in case.operands))
    call = call_of(case)
    variants = [*FUSED.variants(call)]
    assert len(variants) > 3
    for variant in variants:
        hold(case, lambda _case, a, v=variant: interpret(FUSED, call, a, v.launches))


def test_heads_that_lie_apart_are_read_in_whole_vectors():
    case = named("merged-heads")
    (launch,) = FUSED.launch(call_of(case))
    assert launch.config.units == "dddd"


def test_a_mask_that_begins_anew_costs_no_axis():
    axes = {}
    for name in ("windows", "mask-of-windows", "mask-of-windows-alone", "mask"):
        case = named(name)
        axes[name] = AttentionAxes.of(call_of(case))
    # Windows of all images are one axis, of which the mask has those of one.
    assert (axes["windows"].batch, axes["windows"].again) == ((6, 2), (3, 2))
    assert (axes["mask-of-windows"].batch, axes["mask-of-windows"].again) == ((1, 24), (1, 12))
    alone = axes["mask-of-windows-alone"]
    assert (alone.batch, alone.again, alone.mask[:2]) == ((12, 2), (4, 2), (9, 0))
    assert axes["mask"].batch == axes["mask"].again == (1, 6)


def test_few_keys_are_one_step():
    case = named("windows")
    configs = [v.launches[0].config for v in FUSED.variants(call_of(halves(case)))]
    assert {config.tile[1]: config.once for config in configs} == {128: True, 64: True, 32: False}


def test_what_the_kernel_refuses():
    case = named("plain")
    wide = replace(case, operands=tuple(Operand((5, 257)) for _ in range(3)))
    assert FUSED.supports(call_of(wide)) == "heads of 257"
    double = tuple(replace(o, dtype=DType.F64) for o in case.operands)
    assert FUSED.supports(call_of(replace(case, operands=double))) == "element types"
    # Each operand has one of the axes: no two of them step evenly.
    many = [(2, 1, 2, 5, 8), (1, 3, 2, 5, 8), (1, 1, 2, 5, 8)]
    apart = replace(case, operands=tuple(Operand(shape) for shape in many))
    assert FUSED.supports(call_of(apart)) == "the batch axes do not merge into two"


def test_wide_heads_are_not_split_in_two_parts():
    wide = named("wide")
    assert FUSED.launch(call_of(wide))[0].config.precision == "ieee"
    plain = named("plain")
    assert FUSED.launch(call_of(plain))[0].config.precision == "tf32x3"
