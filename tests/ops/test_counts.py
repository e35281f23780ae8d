"""Another number of boxes: the same plan, and tables that are what they would be without it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import saccade.ops  # noqa: F401 - registers the operators
from saccade import ops
from saccade.backends.cpu.runtime.driver import PHASE_WORDS
from saccade.backends.cpu.runtime.operation import _ExecutionContext
from saccade.errors import OperandError
from saccade.ops import _execute, _plan

LIMIT = 60
COUNTS = (16, 0, 1, 2, 15, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 500, 1000, 1023, 4097, 20000)


def module(name):
    return sys.modules[f"saccade.ops.{name}"]  # functions of the same names hide some


def regions(count):
    random = torch.Generator().manual_seed(count)
    corner = 20 * torch.rand(count, 2, generator=random)
    size = 12 * torch.rand(count, 2, generator=random)
    image = torch.arange(count)[:, None] % 2
    return torch.cat([image, corner, corner + size], 1)


def images(channels, layout=torch.contiguous_format):
    random = torch.Generator().manual_seed(1)
    return torch.randn(2, channels, 24, 20, generator=random).contiguous(memory_format=layout)


def pooled(count, channels, layout):
    return torch.ones(count, channels, 3, 2).contiguous(memory_format=layout)


def align(count, layout):
    return module("roi_align")._ON_MEMORY, [images(8, layout), regions(count)], (
        0.5, 3, 2, 2, False,
    )  # fmt: skip


def align_back(count, layout):
    operands = [pooled(count, 8, layout), regions(count)]
    last = layout is torch.channels_last
    return module("roi_align")._GRADIENT_ON_MEMORY, operands, (0.5, (2, 24, 20), 0, True, last)


def pool(count, layout, *, places=True):
    operands = [images(8, layout), regions(count)]
    return module("roi_pool")._ON_MEMORY, operands, (0.5, 3, 2, places)


def pool_values(count, layout):
    return pool(count, layout, places=False)


def pool_back(count, layout):
    grad = pooled(count, 8, layout)
    operands = [grad, torch.zeros_like(grad, dtype=torch.int32), regions(count)]
    last = layout is torch.channels_last
    return module("roi_pool")._GRADIENT_ON_MEMORY, operands, (3, 2, 2, 8, 24, 20, last)


def ps_align(count, layout):
    return module("ps_roi")._ALIGN_ON_MEMORY, [images(12, layout), regions(count)], (
        0.5, 3, 2, 2,
    )  # fmt: skip


def ps_pool_back(count, layout):
    operands = [pooled(count, 2, layout), regions(count)]
    last = layout is torch.channels_last
    return module("ps_roi")._POOL_GRADIENT_ON_MEMORY, operands, (
        0.5, 3, 2, None, 2, 12, 24, 20, last,
    )  # fmt: skip


def suppress(count, layout):
    del layout
    classes = torch.arange(count) % 3
    return module("nms")._ON_MEMORY, [regions(count)[:, 1:], torch.rand(count), classes], (0.4,)


CASES = (align, align_back, pool, pool_values, pool_back, ps_align, ps_pool_back, suppress)


@pytest.fixture(params=[1, 2, 48])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def contents(operation, count):
    """All words of an execution context but addresses in it; what is needed beside them."""
    context = _ExecutionContext(operation)
    assert context.fill(operation._fill, count)
    codes = context.words[operation.table : operation.starts[0] : PHASE_WORDS]
    return codes, context.words[operation.starts[0] :], context.busy, context.nbytes


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_tables_for_another_count_are_those_of_that_count(case, layout, threads):
    operator, operands, parameters = case(COUNTS[0], layout)
    operator._plans.clear()
    operator._ready.clear()
    operator(operands, parameters)
    (plan,) = operator._plans.values()
    for count in COUNTS:
        direct = contents(plan._make(count), count)
        assert contents(plan.at(count).operation, count) == direct, count
    for count in range(3000):
        plan.at(count)
    assert plan._traces == len(plan._operations) <= 12, "few traces serve all counts"


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_new_count_gives_what_a_new_plan_gives(layout, monkeypatch):
    counts = (7, 40, 3, 90)
    found = [list(zip(*[case(n, layout) for n in counts], strict=True)) for case in CASES[:-1]]
    for operators, operands, parameters in found:
        seen = [operators[0](list(o), p) for o, p in zip(operands, parameters, strict=True)]
        for given, how, wanted in zip(operands, parameters, seen, strict=True):
            fresh = _execute.Operator(
                "fresh", operators[0]._describe, counted=operators[0]._counted
            )
            with monkeypatch.context() as patch:
                patch.setattr(_plan, "_TRACES", 0)
                again = fresh(list(given), how)
            assert all(map(torch.equal, again, wanted))


def test_what_no_formula_follows_is_made_count_by_count(monkeypatch):
    operator, *call = align(16, torch.contiguous_format)
    fresh = _execute.Operator("fresh", operator._describe, counted=1)

    class Opaque:
        def __init__(self, _count):
            self.count = object()

    monkeypatch.setattr(_plan, "SymbolicTrace", Opaque)
    assert torch.equal(fresh(*call)[0], operator(*call)[0])


def test_plans_and_counts_that_are_kept_are_few(monkeypatch):
    monkeypatch.setattr(_execute, "_KEPT", 2)
    operator, *_ = align(1, torch.contiguous_format)
    fresh = _execute.Operator("fresh", operator._describe, counted=1)
    for scale in (1.0, 0.5, 0.25):
        for count in (1, 2, 3, 4, 1):
            _, operands, (_, *rest) = align(count, torch.contiguous_format)
            fresh(operands, (scale, *rest))
            assert len(fresh._plans) <= 2
            assert len(fresh._ready) <= 2


def test_many_callers_with_counts_of_their_own():
    x = images(8)
    wanted = {n: ops.roi_align(x, regions(n), 3, 0.5, 2) for n in range(1, 33)}

    def call(i):
        return all(
            torch.equal(ops.roi_align(x, regions(n), 3, 0.5, 2), wanted[n])
            for n in range(1 + i, 33, 4)
        )

    with ThreadPoolExecutor(8) as pool_:
        assert all(pool_.map(call, [0, 1, 2, 3] * 4, timeout=LIMIT))


def test_errors_are_raised_in_every_call():
    x, good = images(8), regions(4)
    bad = good.clone()
    bad[2, 0] = 2
    for _ in range(2):
        with pytest.raises(OperandError, match="is not in 1 of them"):
            ops.roi_align(x, bad, 3)
        assert ops.roi_align(x, good, 3).isfinite().all()
        with pytest.raises(OperandError, match="same number of elements"):
            ops.nms(good[:, 1:], torch.rand(3), 0.5)
        with pytest.raises(OperandError, match="not floating point"):
            ops.roi_align(x, good.long(), 3)
