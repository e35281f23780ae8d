from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import MatMul
from saccade.passes.fold_factors import PASS as FOLD


@pytest.mark.parametrize("epilogue", ["$0", "relu(add($0, 1.0))"])
def test_the_factors_of_both_operands_scale_the_sums(epilogue):
    b = Build()
    x = b.map("mul($0, 0.25)", b.input(2, 3, 4))
    y = b.map("div($0, -3.0)", b.input(2, 4, 5))
    after = fused(b.graph(b.op(MatMul(epilogue=parse(epilogue)), x, y)), FOLD)
    assert ops(after) == "MatMul"


def _product(b, text, dtype=DType.F64, source=DType.F64):
    x = b.map(text, b.input(3, 4, dtype=source), dtype=dtype)
    return x, b.op(MatMul(), x, b.input(4, 5, dtype=dtype))


@pytest.mark.parametrize(
    ("text", "types", "reason"),
    [
        ("mul($0, 0.0)", (), "could overflow"),
        ("div($0, 0.0)", (), "could overflow"),
        ("mul($0, 1e-9)", (), "could overflow"),
        ("mul($0, 2.0)", (DType.I32, DType.I32), "not floating point"),
        ("mul($0, 2.0)", (DType.F32, DType.F64), "not floating point"),
    ],
)
def test_factors_that_stay(text, types, reason):
    b = Build()
    assert_refused(b.graph(_product(b, text, *types)[1]), FOLD, reason)


def test_scaled_operands_that_others_read_stay():
    b = Build()
    x, y = _product(b, "mul($0, 0.5)")
    assert_refused(b.graph(x, y), FOLD, "also read elsewhere")
    b = Build()
    x = b.map("mul($0, 0.5)", b.input(4, 4))
    assert_refused(b.graph(b.op(MatMul(), x, x)), FOLD, "also read elsewhere")


def test_other_arithmetic_is_no_factor():
    b = Build()
    graph = b.graph(_product(b, "add($0, 2.0)")[1])
    assert fused(graph, FOLD).nodes == graph.nodes
