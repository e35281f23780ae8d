"""Index maps, Concat, Pad and Gather against NumPy and onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.errors import InputError, ModelError
from saccade.ir import DType, Factor, IndexMap, TensorType
from saccade.ir.dim import add, floordiv, mul, symbol
from saccade.opdefs import Concat, Gather, GatherNd, Move, Pad
from saccade.testing.tolerance import assert_exact

F32 = DType.F32
X = np.arange(2 * 6 * 5, dtype=np.float32).reshape(2, 6, 5)


def factored(*groups):
    """A map of X with its channels split in two by three, given output axes as lists of factors."""
    factors = [f for group in groups for f in group]
    return IndexMap(((2,), (2, 3), (5,)), tuple(factors), tuple(map(len, groups)))


def whole(*groups):
    """A map of X with one factor an axis."""
    factors = [f for group in groups for f in group]
    return IndexMap(((2,), (6,), (5,)), tuple(factors), tuple(map(len, groups)))


A, C, E = Factor(2, 0), Factor(6, 1), Factor(5, 2)  # the axes of X
OUTER, INNER, LAST = Factor(2, 1), Factor(3, 2), Factor(5, 3)  # channels split, the last axis then
MAPS = {
    "transpose": (whole([E], [A], [C]), X.transpose(2, 0, 1)),
    "split and merge": (factored([A, OUTER], [INNER, LAST]), X.reshape(4, 15)),
    "shuffle": (
        factored([A], [INNER, OUTER], [LAST]),
        X.reshape(2, 2, 3, 5).swapaxes(1, 2).reshape(2, 6, 5),
    ),
    "slice and flip": (whole([A], [Factor(2, 1, 1, 3)], [Factor(5, 2, 4, -1)]), X[:, 1:5:3, ::-1]),
    "one element": (
        whole([], [Factor(1, 0, 1), C], [Factor(1, 2, 2)]),
        X[1:, :, 2:3].reshape(1, 6, 1),
    ),
    "tile": (whole([Factor(3, None), A], [C], [E]), np.tile(X, (3, 1, 1))),
    "nearest resize": (whole([A], [C], [E, Factor(2, None)]), X.repeat(2, axis=2)),
    "nothing left": (whole([A], [Factor(0, 1, 6)], [E]), X[:, 6:]),
}


@pytest.mark.parametrize("case", MAPS)
def test_maps(case):
    index_map, want = MAPS[case]
    op = Move(index_map)
    (got,) = op.reference(X)
    assert_exact(got, np.ascontiguousarray(want))
    assert not np.shares_memory(got, X)
    (inferred,) = op.infer([TensorType(F32, X.shape)])
    assert inferred.shape == want.shape
    work = op.work([TensorType(F32, X.shape)], [inferred])
    assert work.bytes == 4 * (want.size + min(want.size, X.size))


def test_axes_of_one_need_no_factors():
    x = np.arange(3.0).reshape(1, 3, 1)
    expand = IndexMap(((), (3,), ()), (Factor(4, None), Factor(3, 0)), (1, 1, 0))
    assert_exact(Move(expand).reference(x)[0], np.broadcast_to(x.reshape(1, 3, 1), (4, 3, 1)))


def test_symbolic_maps_are_bound():
    c, h = symbol("C"), symbol("H")
    half = floordiv(c, 2)
    split = IndexMap(((c,), (h,)), (Factor(half, 0, add(c, mul(half, -1))), Factor(h, 1)), (1, 1))
    x = np.arange(14.0).reshape(7, 2)
    op = Move(split)
    assert op.infer([TensorType(DType.F64, (c, h))])[0].shape == (half, h)
    assert_exact(op.bind({"C": 7, "H": 2}).reference(x)[0], x[4:])


@pytest.mark.parametrize(
    ("index_map", "message"),
    [
        (IndexMap(((2,), (6,)), (A, C), (1, 1)), "is not the map's"),
        (IndexMap(((2,), (7,), (5,)), (), ()), "6 on one side and 7"),
        (whole([A], [A]), "names an input factor twice"),
        (whole([A], [C]), "reads one of 5"),
        (whole([A], [C], [E], [Factor(2, 3)]), "no input factor 3"),
        (whole([A], [Factor(4, 1, 3)], [E]), "reads 3 to 6 of 6"),
        (whole([A], [C], [Factor(5, 2, 3, -1)]), "reads -1 to 3 of 5"),
        (whole([A], [C], [Factor(5, 2, 0, 0)]), "a step of the map is 0"),
        (replace(whole([A], [C], [E]), out_groups=(1, 1)), "do not take all"),
    ],
)
def test_broken_maps_are_refused(index_map, message):
    with pytest.raises(ModelError, match=message):
        Move(index_map).infer([TensorType(F32, X.shape)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_agrees(axis, rng, peer, agrees_exactly):
    shapes = [[3, 4, 5] for _ in range(3)]
    for n, shape in enumerate(shapes):
        shape[axis] = n  # the first is empty
    parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    theirs = peer("Concat", parts, axis=axis)
    (got,) = Concat(axis).reference(*parts)
    assert_exact(got, theirs)
    n = symbol("N")
    types = [TensorType(F32, (n, 4, 5)), TensorType(F32, (2, 4, 5))]
    assert Concat(0).infer(types)[0].shape == (add(n, 2), 4, 5)
    assert Concat(1).infer(types)[0].shape == (2, 8, 5)


def test_concat_refuses_misfits():
    with pytest.raises(ModelError, match="axis 1 is 3 on one side and 4"):
        Concat(0).infer([TensorType(F32, (1, 3)), TensorType(F32, (1, 4))])
    with pytest.raises(ModelError, match=r"\[3\] beside \[1, 3\]"):
        Concat(0).infer([TensorType(F32, (1, 3)), TensorType(F32, (3,))])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [((0, 0), (1, 2), (3, 0)), ((1, 0), (0, 5), (4, 4))])
def test_pad_agrees(mode, pads, rng, peer, agrees_exactly):
    x = rng.standard_normal((2, 6, 5)).astype(np.float32)
    flat = np.array([p[0] for p in pads] + [p[1] for p in pads], np.int64)
    value = np.array(7, np.float32) if mode == "constant" else None
    op = Pad(pads, mode, 7.0 if mode == "constant" else 0.0)
    agrees_exactly(op, (x,), peer("Pad", (x, flat, value), mode=mode))


def test_pad_binds_and_refuses():
    h = symbol("H")
    op = Pad(((0, h),))
    assert op.infer([TensorType(F32, (3,))])[0].shape == (add(h, 3),)
    assert_exact(op.bind({"H": 2}).reference(np.ones(3))[0], np.array([1.0, 1, 1, 0, 0]))
    with pytest.raises(ModelError, match="negative pads"):
        Pad(((0, -1),)).infer([TensorType(F32, (3,))])
    with pytest.raises(ModelError, match="cannot reflect 1 elements"):
        Pad(((0, 1),), "reflect").infer([TensorType(F32, (1,))])
    with pytest.raises(ModelError, match="1 pairs of pads"):
        Pad(((0, 1),)).infer([TensorType(F32, (1, 1))])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("indices", [2, [[0, -1], [1, -2], [0, 0]], np.zeros((0, 2), int)])
def test_gather_agrees(axis, indices, rng, peer, agrees_exactly):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    at = np.array(indices, np.int64)
    agrees_exactly(Gather(axis), (x, at), peer("Gather", (x, at), axis=axis))


def test_gather_refuses():
    with pytest.raises(InputError, match="outside axis 0 of 2"):
        Gather(0).reference(np.zeros(2), np.array([0, 2]))
    with pytest.raises(InputError, match="outside axis 0 of 2"):
        Gather(0).reference(np.zeros(2), np.array([-3]))
    with pytest.raises(ModelError, match="indices are float32"):
        Gather(0).infer([TensorType(F32, (2,)), TensorType(F32, (2,))])


@pytest.mark.parametrize(
    ("batch", "where"),
    [(0, (2, 1)), (0, (2, 3)), (0, (3, 2, 2)), (1, (3, 1)), (1, (3, 6, 2)), (2, (3, 4, 1)),
     (0, (0, 2)), (0, (3,))],
)  # fmt: skip
def test_gather_nd_agrees(batch, where, rng, peer, agrees_exactly):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    sizes = np.array(x.shape[batch : batch + where[-1]])
    at = rng.integers(-sizes, sizes, where)
    agrees_exactly(GatherNd(batch), (x, at), peer("GatherND", (x, at), batch_dims=batch))


def test_gather_nd_refuses():
    x, two = TensorType(F32, (3, 4)), TensorType(DType.I64, (7, 2))
    with pytest.raises(InputError, match="outside axis 1 of 4"):
        GatherNd().reference(np.zeros((3, 4)), np.array([[0, 3], [2, 4]]))
    with pytest.raises(ModelError, match="indices are float32"):
        GatherNd().infer([x, x])
    with pytest.raises(ModelError, match="tuples of 2 indices"):
        GatherNd(1).infer([x, TensorType(DType.I64, (3, 2))])
    with pytest.raises(ModelError, match="axis 0"):
        GatherNd(1).infer([TensorType(F32, (3, 4, 5)), two])
    with pytest.raises(ModelError, match="2 leading axes"):
        GatherNd(2).infer([x, two])
