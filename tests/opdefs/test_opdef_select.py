"""Elements by rank, by value and by index: the references against PyTorch and plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.errors import InputError, ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import NonZero, PackedPlaces, ScatterRows, TopK, Unique

ROWS = TensorType(DType.F32, (3, 1))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_best_are_pytorchs(axis, largest):
    x = np.random.default_rng(axis).permutation(3 * 8 * 7).reshape(3, 8, 7).astype(np.float32)
    values, places = TopK(3, axis, largest).reference(x)
    expected = torch.topk(torch.from_numpy(x), 3, axis, largest)
    np.testing.assert_array_equal(values, expected.values.numpy())
    np.testing.assert_array_equal(places, expected.indices.numpy())


@pytest.mark.parametrize("largest", [True, False])
def test_equal_elements_keep_their_order_and_nan_is_the_largest(largest):
    x = np.array([1, np.nan, 0.0, 1, -0.0, np.nan, -2], np.float32)
    _, places = TopK(7, 0, largest).reference(x)
    assert list(places) == ([1, 5, 0, 3, 2, 4, 6] if largest else [6, 2, 4, 0, 3, 1, 5])


def test_places_of_what_is_not_zero():
    x = np.array([[0, 2, -0.0], [np.nan, 0, 1]])
    places, count = NonZero(6).reference(x)
    assert count.tolist() == [3]
    assert places.tolist() == [[0, 1, 1, 0, 0, 0], [1, 0, 2, 0, 0, 0]]


@pytest.mark.parametrize("ordered", [True, False])
def test_each_row_once(ordered):
    x = np.array([[3, 1], [2, 2], [3, 1], [0, 5]])
    slices, first, inverse, counts, number = Unique(4, 0, ordered).reference(x)
    order = [3, 1, 0] if ordered else [0, 1, 3]
    assert number.tolist() == [3]
    np.testing.assert_array_equal(slices[:3], x[order])
    assert first[:3].tolist() == order
    assert counts[:3].tolist() == [2 if i == 0 else 1 for i in order]
    np.testing.assert_array_equal(slices[inverse], x)


def test_lists_behind_each_other():
    places, count = PackedPlaces(9, (4, 2, 3)).reference(np.array([2, 7, -1]))
    assert count.tolist() == [4]
    assert places.tolist() == [0, 1, 4, 5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_rows_by_index(reduction):
    generator = np.random.default_rng(1)
    data, updates = generator.normal(size=(5, 3)), generator.normal(size=(4, 3))
    (result,) = ScatterRows(reduction).reference(data, np.array([2, -1, 2, 0]), updates)
    combine = {"none": lambda _, b: b, "add": np.add, "mul": np.multiply}.get(reduction)
    combine = combine or getattr(np, f"{reduction}imum")
    expected = data.copy()
    for index, update in ((2, updates[0]), (2, updates[2]), (0, updates[3])):
        expected[index] = combine(expected[index], update)
    np.testing.assert_array_equal(result, expected)


def test_rows_that_are_not_there():
    with pytest.raises(InputError, match="outside of 5 rows"):
        ScatterRows().reference(np.zeros((5, 1)), np.array([5]), np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (TopK(4, 0), [TensorType(DType.F32, (3,))]),
        (TopK(1, 1), [TensorType(DType.F32, (3,))]),
        (TopK(1, 0), [TensorType(DType.BOOL, (3,))]),
        (NonZero(3), [TensorType(DType.F32, ())]),
        (PackedPlaces(3, (3,)), [TensorType(DType.I32, (1,))]),
        (PackedPlaces(3, (3,)), [TensorType(DType.I64, (2,))]),
        (ScatterRows("mean"), [ROWS, TensorType(DType.I64, (1,)), TensorType(DType.F32, (1, 1))]),
        (ScatterRows(), [ROWS, TensorType(DType.I64, (1,)), TensorType(DType.F32, (1, 2))]),
    ],
)  # fmt: skip
def test_what_does_not_fit(op, types):
    with pytest.raises(ModelError):
        op.infer(types)
