"""What a value never exceeds: held against what it is, for data of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, Graph, Node, TensorType, Value
from saccade.ir.body import embed
from saccade.ir.expr import parse
from saccade.opdefs import Concat, Highest, Pointwise

RNG = np.random.default_rng(3)
NONE = int(np.iinfo(np.int64).max)


def _values(names, dtype=DType.F32):
    return [Value(name, dtype, (1,)) for name in names]


def _highest(*steps, known, inputs, dtype=DType.F32):
    """Of the last of some expressions, each over the inputs and the steps before it."""
    values = _values([f"x{i}" for i in range(inputs)], dtype)
    nodes, made = [], list(values)
    for number, text in enumerate(steps):
        (out,) = _values([f"y{number}"], dtype)
        nodes.append(Node(Pointwise(parse(text), dtype), tuple(made), (out,)))
        made.append(out)
    return Highest(embed(Graph(tuple(values), (made[-1],), tuple(nodes)), {}), known)


@pytest.mark.parametrize(
    "steps",
    [
        ["clip($2, $0, $1)"],
        ["clip($2, $0, $1)", "mul($3, div($1, max($0, 1)))", "floor(sub($4, max($2, $3)))"],
        ["max(min($2, $1), 0)", "div($3, max($1, 1))", "add(mul($4, 30), 0.5)"],
        ["min($1, abs(clip($2, -9, $1)))", "where(less($2, $0), $3, $1)"],
        ["relu(min($2, $1))", "mul(sigmoid($2), $3)", "ceil($4)"],
    ],
)
@pytest.mark.parametrize("dtype", [DType.F32, DType.I64])
def test_nothing_exceeds_it(steps, dtype):
    if dtype is DType.I64 and any("sigmoid" in step or "0.5" in step for step in steps):
        steps = steps[:1]
    op = _highest(*steps, known=2, inputs=3, dtype=dtype)
    for low, high in ((0, 224), (3, 7), (5, 5)):
        ends = [np.array([low], dtype.numpy), np.array([high], dtype.numpy)]
        ((most,),) = op.reference(*ends)
        data = RNG.normal(0, 300, 4096).astype(dtype.numpy)
        found = op.body.run((), [*(np.full(4096, e[0], e.dtype) for e in ends), data])[0]
        assert np.floor(found.max()) <= most < NONE


def test_what_nothing_bounds():
    assert _highest("add($1, $0)", known=1, inputs=2).reference(np.float32([3])) == (NONE,)
    assert _highest("exp(min($1, $0))", known=1, inputs=2).reference(np.float32([3])) == (NONE,)
    # No size is negative.
    assert _highest("min($1, $0)", known=1, inputs=2).reference(np.float32([-3])) == (0,)


def test_side_by_side():
    a, b, y = (*_values(["a", "b"]), *_values(["y"]))
    graph = Graph((a, b), (y,), (Node(Concat(axis=0), (a, b), (y,)),))
    op = Highest(embed(graph, {}), 2)
    assert op.reference(np.float32([3, 9]), np.float32([-1, 12.5])) == (12,)


def test_least_and_largest_elements_are_enough():
    op = _highest("min($1, $0)", known=1, inputs=2)
    assert op.reference(np.float32([3, 9, 4])) == op.reference(np.float32([3, 9])) == (9,)


def test_operands_that_are_not_there():
    with pytest.raises(ModelError, match="Highest"):
        _highest("min($1, $0)", known=1, inputs=2).infer([])
    with pytest.raises(ModelError, match="2 inputs"):
        _highest("min($1, $0)", known=3, inputs=2).infer([TensorType(DType.F32, (1,))] * 3)
