"""Movements of rows sink below products where others follow."""

from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.backends.cuda.passes import passes_of, sink_transposes
from saccade.ir.expr import parse
from saccade.opdefs import MatMul
from saccade.options import Options
from saccade.passes.compose_moves import PASS as COMPOSE
from saccade.passes.fuse_epilogue import PASS as EPILOGUE

SINK = sink_transposes.PASS
BIASED = MatMul(epilogue=parse("add($0, $1)"))


def test_two_transposes_around_a_product_vanish():
    b = Build()
    x = b.input(2, 5, 4)
    y = b.transpose(b.matmul(b.transpose(x, 1, 0, 2), 6), 1, 0, 2)
    after = fused(b.graph(y), COMPOSE, SINK, COMPOSE)
    assert ops(after) == "MatMul"
    assert after.nodes[0].inputs[0] is after.inputs[0]


def test_the_shortcut_behind_them_becomes_an_epilogue():
    b = Build()
    x, shortcut = b.input(2, 5, 4), b.input(2, 5, 6)
    rows = b.reshape(b.transpose(x, 1, 0, 2), 10, 4)
    y = b.op(BIASED, rows, b.weights(4, 6), b.weights(6))
    tokens = b.transpose(b.reshape(y, 5, 2, 6), 1, 0, 2)
    graph = b.graph(b.map("add($0, $1)", shortcut, tokens))
    after = fused(graph, COMPOSE, EPILOGUE, SINK, COMPOSE, EPILOGUE)
    assert ops(after) == "MatMul"


def test_what_merges_columns_stays_in_front():
    """Heads [N, H, L, E] become tokens [L · N, H · E]: the rest of the movement is a view."""
    b = Build()
    heads = b.input(2, 3, 5, 4)
    rows = b.reshape(b.transpose(heads, 2, 0, 1, 3), 10, 12)
    y = b.transpose(b.reshape(b.matmul(rows, 6), 5, 2, 6), 1, 0, 2)
    after = fused(b.graph(y), COMPOSE, SINK, COMPOSE)
    assert ops(after) == "Move MatMul"
    assert after.nodes[0].output.shape == (2, 5, 12)


def test_movements_that_share_the_result_out_do_both():
    b = Build()
    x = b.input(2, 5, 4)
    both = b.matmul(b.transpose(x, 1, 0, 2), 6)
    halves = [b.transpose(b.slice(both, 2, at, 3), 1, 0, 2) for at in (0, 3)]
    after = fused(b.graph(*halves), COMPOSE, SINK, COMPOSE)
    assert ops(after) == "MatMul Move Move"
    assert after.nodes[0].inputs[0] is after.inputs[0]


def _matrices(b, x):
    y = b.op(MatMul(), b.transpose(x, 1, 0, 2), b.weights(5, 4, 6))
    return b.transpose(y, 1, 0, 2)


def _columns(b, x):
    y = b.op(MatMul(transpose_a=True), b.transpose(x, 1, 0, 2), b.weights(2, 6))
    return b.transpose(y, 1, 0, 2)


def _by_row(b, x):
    y = b.op(BIASED, b.transpose(x, 1, 0, 2), b.weights(4, 6), b.weights(5, 2, 1))
    return b.transpose(y, 1, 0, 2)


def _computed(b, x):
    return b.map("exp($0)", b.matmul(b.transpose(x, 1, 0, 2), 6))


def _given(b, x):
    return b.matmul(b.transpose(x, 1, 0, 2), 6)


def _dropped(b, x):
    moved = b.slice(b.transpose(x, 1, 0, 2), 0, 1, 3)
    return b.transpose(b.matmul(moved, 6), 1, 0, 2)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_matrices, "there are several matrices"),
        (_columns, "rows are columns"),
        (_by_row, "an operand of the epilogue varies by row"),
        (_computed, "its result is not moved on"),
        (_given, "its result is not moved on"),
        (_dropped, "rows are dropped or repeated"),
    ],
)
def test_left_alone(make, reason):
    b = Build()
    graph = b.graph(make(b, b.input(2, 5, 4)))
    assert_refused(fused(graph, COMPOSE), SINK, reason)


def test_rows_in_their_order_do_not_match():
    b = Build()
    x = b.input(2, 5, 4)
    y = b.transpose(b.matmul(b.reshape(x, 10, 4), 6), 1, 0)
    graph = b.graph(y)
    assert fused(graph, SINK).nodes == graph.nodes


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_it_runs_once_products_have_their_epilogues(precision):
    names = [step.name for step in passes_of(Options.make(device="cuda", precision=precision))]
    at = names.index("sink_transposes")
    assert names[at - 1 : at + 3] == [
        "fuse_epilogue", "sink_transposes", "compose_moves", "fuse_epilogue",
    ]  # fmt: skip
