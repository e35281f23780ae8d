"""Slices that arithmetic alone reads are read where they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.backends.cuda.passes import fuse_gathers, passes_of
from saccade.ir import DType, Node, Value
from saccade.ir.expr import IDENTITY
from saccade.ir.verify import verify
from saccade.opdefs import Gather, Pointwise
from saccade.options import Options
from saccade.passes import apply

SUM = "add($0, $1)"


def test_slices_of_one_image_are_no_intermediates():
    b = Build()
    x, t = b.input(3, 6, 4), b.input(5, 1)
    places = [b.const(at, np.int64) for at in ([0, 0, 2, 5, 1], [1, 1, -1, 0, 2])]
    parts = [b.op(Gather(1), x, at) for at in places]
    y = b.map("add(mul($0, sub(1.0, $2)), mul($1, $2))", *parts, t)
    after = fused(b.graph(y), fuse_gathers.PASS)
    assert ops(after) == "GatheredPointwise"
    (node,) = after.nodes
    assert node.inputs == (x, x, t, *places)
    assert node.op.picks == ((1, 0), (1, 1), (-1, -1))


def test_indices_that_several_are_read_at_are_one_operand():
    b = Build()
    x, z, at = b.input(3, 6), b.input(9, 4), b.const([5, 1, 1, 0], np.int64)
    y = b.map(SUM, b.op(Gather(1), x, at), b.op(Gather(0), z, b.const([2, 8, 0], np.int64)))
    w = b.map(SUM, b.op(Gather(1), x, at), b.op(Gather(1), b.input(3, 7), at))
    after = fused(b.graph(y, w), fuse_gathers.PASS)
    assert ops(after) == "GatheredPointwise GatheredPointwise"
    assert [node.op.picks for node in after.nodes] == [((1, 0), (0, 1)), ((1, 0), (1, 0))]


def test_others_stay_where_one_is_taken():
    b = Build()
    x, at = b.input(3, 6), b.const([5, 1, 1, 0], np.int64)
    first, second = b.op(Gather(1), x, at), b.op(Gather(1), x, at)
    y = b.map(SUM, first, second)
    after = fused(b.graph(y, second), fuse_gathers.PASS)
    assert ops(after) == "Gather GatheredPointwise"
    assert after.nodes[-1].op.picks == ((1, 0), (-1, -1))


def halves(b, x):
    """The value, stored in float16, as a step of its own."""
    stored = Value(f"h{len(b.nodes)}", DType.F16, x.shape)
    b.nodes.append(Node(Pointwise(IDENTITY, DType.F32), (x,), (stored,), f"h{len(b.nodes)}"))
    return stored


@pytest.mark.parametrize("moved", [False, True])
def test_a_conversion_that_slices_alone_are_taken_of_goes(moved):
    b = Build()
    x, at = b.input(3, 6, dtype=DType.F32), b.input(5, dtype=DType.I64)
    h = b.reshape(halves(b, x), 18) if moved else halves(b, x)
    y = b.op(Pointwise(IDENTITY, DType.F32), b.op(Gather(0), h, at))
    graph = b.graph(y)
    after, _ = apply(fuse_gathers.PASS, graph)
    verify(after)
    assert ops(after) == ("Move GatheredPointwise" if moved else "GatheredPointwise")
    assert after.nodes[0].inputs[0] is x
    # Who else reads it keeps it.
    z = b.op(Pointwise(IDENTITY, DType.F32), h)
    kept, _ = apply(fuse_gathers.PASS, b.graph(y, z))
    assert ops(kept).startswith("Pointwise")


@pytest.mark.parametrize(
    ("shape", "why"),
    [((2, 2), "its indices have several axes, or none"), ((), "its indices have several axes")],
)
def test_indices_of_other_axes_stay(shape, why):
    b = Build()
    x, at = b.input(6, 4), b.const(np.zeros(shape), np.int64)
    y = b.map("neg($0)", b.op(Gather(0), x, at))
    assert_refused(b.graph(y), fuse_gathers.PASS, why)


def test_what_is_read_elsewhere_or_repeated_stays():
    b = Build()
    x, at, z = b.input(6, 4), b.const([0, 5], np.int64), b.input(3, 2, 4)
    slices = b.op(Gather(0), x, at)
    assert_refused(
        b.graph(b.map(SUM, slices, z)), fuse_gathers.PASS, "the result repeats its slices"
    )
    y = b.map("neg($0)", slices)
    graph = b.graph(y, slices)
    assert_refused(
        replace(graph, nodes=graph.nodes[:1] + graph.nodes[2:]),
        fuse_gathers.PASS, "its slices are read elsewhere",
    )  # fmt: skip


def test_it_comes_before_what_tells_numbers():
    names = [one.name for one in passes_of(Options(device="cuda", machine="h200"))]
    assert names[-2:] == ["fuse_gathers", "tell_numbers"]
