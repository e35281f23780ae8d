from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, assert_same, ops, run

from saccade.errors import CompileError
from saccade.frontend import onnx as frontend
from saccade.ir import Node
from saccade.ir.printer import format_graph
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore, MatMul, Move
from saccade.passes import BFLOAT16, STANDARD, Note, Pass, Rule, apply
from saccade.passes import run as run_passes
from saccade.passes._operands import first_epilogue_operand


def test_every_pass_runs_after_those_that_it_names():
    names = [step.name for step in BFLOAT16]
    for step in BFLOAT16:
        for earlier in step.after:
            assert earlier in names, f"{step.name} names {earlier}, which is not a pass"
            assert names.index(earlier) < names.index(step.name), (earlier, step.name)


def test_names_are_those_of_the_files():
    folder = Path(importlib.util.find_spec("saccade.passes").origin).parent
    files = {path.stem for path in folder.glob("[a-z]*.py")}
    assert files == {step.name for step in BFLOAT16}


def test_the_trace_sees_every_pass_and_every_note():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 4)
    graph = b.graph(b.map("relu($0)", x), x)
    seen = []
    after = run_passes(graph, STANDARD, lambda *step: seen.append(step), check=True)
    assert [name for name, _, _ in seen] == [step.name for step in STANDARD]
    assert seen[-1][1] is after
    notes = [note for _, _, notes in seen for note in notes]
    assert notes == [Note("n1", "fuse_epilogue", "%v0 is an output of the graph")]


def test_the_graph_that_goes_in_is_not_changed():
    b = Build()
    graph = b.graph(b.map("relu($0)", b.map("mul($0, 1.0)", b.conv(b.input(1, 3, 4, 4), 4))))
    text = format_graph(graph)
    assert ops(run_passes(graph, check=True)) == "Conv2d"
    assert format_graph(graph) == text


def _rule(rewrite):
    match = lambda _editor, node: node if node.op.family == "Pointwise" else None  # noqa: E731
    return Rule(match, lambda _editor, _node: None, rewrite)


def test_errors_name_the_pass():
    def fail(_editor, _node):
        raise ValueError("no such thing")

    b = Build()
    graph = b.graph(b.map("exp($0)", b.input(3)))
    with pytest.raises(CompileError, match="pass broken: no such thing"):
        run_passes(graph, [Pass("broken", (_rule(fail),))])


def test_a_pass_that_breaks_the_graph_is_found():
    def shrink(editor, node):
        if node.op.expr.op == "exp":
            new = Build().reshape(Build().input(4), 2, 2)
            editor.replace(node, Move(_map_of(new)), node.inputs)

    def _map_of(_value):
        b = Build()
        b.reshape(b.input(4), 2, 2)
        return b.nodes[0].op.map

    b = Build()
    graph = b.graph(b.map("exp($0)", b.input(4)))
    with pytest.raises(CompileError, match="pass broken"):
        run_passes(graph, [Pass("broken", (_rule(shrink),))], check=True)


def test_rules_that_undo_each_other_are_found():
    def again(editor, node: Node):
        editor.replace(node, replace(node.op), node.inputs)

    b = Build()
    graph = b.graph(b.map("exp($0)", b.input(4)))
    with pytest.raises(RuntimeError, match="does not come to an end at 'n0'"):
        apply(Pass("circle", (_rule(again),)), graph)


def test_a_refusal_that_changes_the_graph_fails_the_helper():
    """The helper of the other tests has teeth."""
    b = Build()
    graph = b.graph(b.map("relu($0)", b.conv(b.input(1, 3, 4, 4), 4)))
    (fuse,) = {step for step in STANDARD if step.name == "fuse_epilogue"}
    with pytest.raises(AssertionError, match="the graph was changed"):
        assert_refused(graph, fuse, "")


def test_a_residual_block():
    b = Build()
    x = b.input(2, 8, 6, 6)
    y = b.conv(x, 4)
    y = b.map("add(mul($0, $1), $2)", y, b.weights(4, 1, 1), b.weights(4, 1, 1))
    y = b.conv(b.map("clip($0, 0.0, inf)", y), 4, 3, padding=(1,) * 4, groups=2)
    y = b.map("mul($0, $1)", y, b.map("sigmoid($0)", y))
    y = b.map("add($0, $1)", b.conv(y, 8, bias=True), x)
    graph = b.graph(b.map("relu($0)", y))
    after = run_passes(graph, check=True)
    assert [str(node.op.epilogue) for node in after.nodes][:2] == [
        "relu(add($0, $1))",
        "silu($0)",
    ]
    assert ops(after) == "Conv2d Conv2d Conv2d"
    assert_same(graph, after)


def test_a_gelu_between_two_products_stays_whole():
    b = Build()
    x = b.matmul(b.input(2, 5, 4), 8)
    y = b.map("add(erf(div($0, 1.4142135381698608)), 1.0)", x)
    y = b.map("mul($0, 0.5)", b.map("mul($0, $1)", x, y))
    after = run_passes(b.graph(b.matmul(y, 4)), check=True)
    assert [str(node.op.epilogue) for node in after.nodes] == ["gelu($0)", "$0"]


def test_the_scaling_of_attention_goes_to_the_scores():
    b = Build()
    q, k = (b.map("mul($0, 0.5)", b.transpose(b.input(2, 5, 4, 3), 0, 2, 1, 3)) for _ in range(2))
    graph = b.graph(b.op(MatMul(transpose_b=True), q, k))
    after = run_passes(graph, check=True)
    assert ops(after) == "Move Move MatMul"
    assert str(after.nodes[-1].op.epilogue) == "mul($0, 0.25)"
    assert_same(graph, after)


@cache
def _load(path):
    return frontend.load(path)


def _optimised(path):
    return run_passes(_load(path), check=True)


EXPECTED = {
    "resnet50": {"Conv2d": 53, "Pool2d": 1, "Reduce": 1, "MatMul": 1},
    "shufflenet_v2_x1_0": {"Conv2d": 56, "Pool2d": 1, "Move": 26, "Reduce": 1, "MatMul": 1},
    "subpixel_x4": {"Conv2d": 9},
    "mobilenet_v3_large": {"Conv2d": 62, "Reduce": 9, "MatMul": 2},
    "densenet121": {
        "Conv2d": 120,
        "Pool2d": 4,
        "Concat": 58,
        "Reduce": 1,
        "MatMul": 1,
        "Pointwise": 1,
    },
    "vgg16": {"Conv2d": 14, "Pool2d": 5, "Move": 1, "MatMul": 2},
}
"""Operators after all passes. VGG's movement is the free squeeze of its first Gemm; what is left
in DenseNet is the last norm, in front of a reduction."""


@pytest.mark.parametrize("name", EXPECTED)
def test_models_become_these_operators(filled, name):
    graph = _optimised(filled(name))
    assert Counter(node.op.family for node in graph.nodes) == EXPECTED[name]


def test_the_movements_of_shufflenet_are_slices_of_interleaved_stores(filled):
    graph = _optimised(filled("shufflenet_v2_x1_0"))
    moves = [node.op.map for node in graph.nodes if isinstance(node.op, Move)]
    assert len(moves) == 26
    assert all(len(m.factors) == 4 and m.factors[1].size * 2 == m.in_shape[1] for m in moves)
    stores = Counter(node.op.store for node in graph.nodes if isinstance(node.op, Conv2d))
    assert stores[InterleaveStore(2, 1)] == 16


def test_the_subpixel_layers_are_stores(filled):
    graph = _optimised(filled("subpixel_x4"))
    stores = Counter(node.op.store for node in graph.nodes)
    assert sum(n for store, n in stores.items() if isinstance(store, DepthToSpaceStore)) == 2


@pytest.mark.parametrize("name", ["densenet121", "mobilenet_v3_large"])
def test_prologues_are_on_plain_1x1_convolutions(filled, name):
    nodes = [node for node in _optimised(filled(name)).nodes if isinstance(node.op, Conv2d)]
    taking = [node for node in nodes if str(node.op.prologue) != "$0"]
    assert len(taking) == {"densenet121": 61, "mobilenet_v3_large": 8}[name]
    for node in taking:
        assert node.inputs[1].shape[2:] == (1, 1)
        assert first_epilogue_operand(node.op) == 2 + node.op.n_prologue


@pytest.mark.parametrize("name", ["shufflenet_v2_x1_0", "subpixel_x4"])
def test_small_models_compute_the_same(filled, name):
    before = _load(filled(name))
    sizes = {"N": 2, "H": 40, "W": 35}
    bound = [_bind(graph, sizes) for graph in (before, _optimised(filled(name)))]
    shape = [d if isinstance(d, int) else sizes[str(d)] for d in before.inputs[0].shape]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    (left,), (right,) = (run(graph, [x]) for graph in bound)
    np.testing.assert_allclose(right, left, rtol=0, atol=1e-5 * np.abs(left).max())


def _bind(graph, sizes):
    nodes = tuple(replace(node, op=node.op.bind(sizes)) for node in graph.nodes)
    return replace(graph, nodes=nodes)
