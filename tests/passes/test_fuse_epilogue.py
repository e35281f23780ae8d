from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import (
    Conv2d,
    ConvTranspose2d,
    DepthToSpaceStore,
    MatMul,
    Pool2d,
    Reduce,
    Resize,
)
from saccade.passes import apply
from saccade.passes.fuse_epilogue import PASS as FUSE
from saccade.passes.merge_activations import PASS as MERGE


def test_bias_activation_and_residual_sum():
    b = Build()
    x = b.input(2, 3, 5, 4)
    y = b.map("relu($0)", b.map("add($0, $1)", x, b.conv(x, 3, 3, bias=True, padding=(1,) * 4)))
    after = fused(b.graph(y), FUSE)
    assert ops(after) == "Conv2d"
    assert str(after.nodes[0].op.epilogue) == "relu(add($2, add($0, $1)))"
    assert after.nodes[0].inputs[3] is x, "which is $2 to the epilogue"


def test_of_two_convolutions_the_later_takes_the_sum():
    b = Build()
    x = b.input(1, 3, 5, 4)
    one, two = b.conv(x, 6, bias=True), b.conv(x, 6, bias=True)
    for pair in ((one, two), (two, one)):
        after = fused(b.graph(b.map("add($0, $1)", *pair)), FUSE)
        assert ops(after) == "Conv2d Conv2d"
        assert after.nodes[0].output is one
        assert one in after.nodes[1].inputs


def test_the_earlier_takes_it_if_the_later_cannot():
    b = Build()
    x = b.input(1, 3, 4, 4)
    one, two = b.conv(x, 6), b.conv(x, 6)
    after = fused(b.graph(b.map("add($0, $1)", one, two), two), FUSE)
    assert [str(node.op.epilogue) for node in after.nodes] == ["$0", "add($0, $1)"]
    assert after.nodes[0].output is two


def test_a_gate_of_the_result_itself():
    b = Build()
    x = b.conv(b.input(1, 3, 4, 4), 6, bias=True)
    y = b.map("mul($0, $1)", x, b.map("sigmoid($0)", x))
    after = fused(b.graph(y), MERGE, FUSE)
    assert ops(after) == "Conv2d"
    assert str(after.nodes[0].op.epilogue) == "mul(add($0, $1), sigmoid(add($0, $1)))"


@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (6, 1, 1), (2, 6, 1, 1), (2, 6, 4, 4)])
def test_operands_per_channel_per_image_and_of_full_size(shape):
    b = Build()
    x = b.conv(b.input(2, 3, 4, 4), 6)
    after = fused(b.graph(b.map("leaky_relu($0, $1)", x, b.input(*shape))), FUSE)
    assert ops(after) == "Conv2d"


def test_operands_of_prologue_and_epilogue_stay_apart():
    b = Build()
    w, p, c = b.weights(6, 3, 1, 1), b.weights(1, 3, 1, 1), b.weights(1, 6, 1, 1)
    op = Conv2d(prologue=parse("mul($0, $1)"), n_prologue=1, epilogue=parse("add($0, $1)"))
    x = b.op(op, b.input(2, 3, 4, 4), w, p, c)
    after = fused(b.graph(b.map("mul(add($0, $1), $1)", x, c)), FUSE)
    assert after.nodes[0].inputs[1:] == (w, p, c)


def test_other_families_take_epilogues():
    b = Build()
    x = b.input(2, 4, 3, 3)
    t = b.op(ConvTranspose2d(groups=2), x, b.weights(4, 3, 2, 2))
    t = b.map("add($0, $1)", t, b.weights(6, 1, 1))
    m = b.map("gelu(add($0, $1))", b.op(MatMul(), b.input(2, 5, 3), b.weights(3, 4)), b.weights(4))
    pool, mean = b.op(Pool2d("max", (2, 2)), x), b.op(Reduce("mean", (2, 3)), x)
    size = b.op(Resize((2, 4, 6, 6)), x)
    others = [b.map("relu($0)", value) for value in (pool, mean, size)]
    after = fused(b.graph(t, m, *others), FUSE)
    assert ops(after) == "ConvTranspose2d MatMul Pool2d Reduce Resize"


def _conv(b, k=6):
    return b.conv(b.input(2, 3, 4, 4), k)


def _output(b):
    x = _conv(b)
    return x, b.map("relu($0)", x)


def _shared(b):
    x = _conv(b)
    return b.map("relu($0)", x), b.op(Pool2d("max", (2, 2)), x)


def _wider(b):
    return (b.map("add($0, $1)", _conv(b, 1), b.weights(1, 5, 1, 1)),)


def _cast(b):
    return (b.map("relu($0)", _conv(b), dtype=DType.F32),)


def _stored(b):
    x = b.conv(b.input(2, 3, 4, 4), 8, store=DepthToSpaceStore(2))
    return (b.map("relu($0)", x),)


def _rows(b):
    return (b.map("add($0, $1)", _conv(b), b.weights(4, 1)),)


def _images(b):
    return (b.map("add($0, $1)", _conv(b), b.input(2, 1, 1, 1)),)


def _pooled(b):
    x = b.input(2, 4, 3, 3)
    return (b.map("add($0, $1)", b.op(Pool2d("max", (1, 1)), x), x),)


def _many(b):
    total = _conv(b)
    text = "add(add(add(add(add(add(add($0, $1), $2), $3), $4), $5), $6), $7)"
    return (b.map(text, total, *(b.weights(6, 1, 1) for _ in range(7))),)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_output, "is an output of the graph"),
        (_shared, "is also read elsewhere"),
        (_wider, "broadcast to a larger shape"),
        (_cast, "changes from float64 to float32"),
        (_stored, "is stored by a map"),
        (_rows, "neither per channel"),
        (_images, "neither per channel"),
        (_pooled, "epilogue of Pool2d takes no tensors"),
        (_many, "more than 6 epilogue operands"),
    ],
)
def test_what_stays_a_step_of_its_own(build, reason):
    b = Build()
    assert_refused(b.graph(*build(b)), FUSE, reason)


def test_a_bias_of_another_type_stays():
    b = Build()
    flag = b.input(2, 6, 4, 4, dtype=DType.BOOL)
    after = fused(b.graph(b.map("where($1, $0, 0.0)", _conv(b), flag)), FUSE)
    assert ops(after) == "Conv2d"


def test_a_residual_that_is_known_only_later_moves_the_convolution():
    b = Build()
    x = b.input(1, 3, 4, 4)
    early = b.conv(x, 6)
    late = b.op(Pool2d("max", (1, 1)), b.map("exp($0)", b.input(1, 6, 4, 4)))
    graph = b.graph(b.map("add($0, $1)", early, late))
    after, _ = apply(FUSE, graph)
    assert ops(after) == "Pointwise Pool2d Conv2d"
    fused(graph, FUSE)
