from __future__ import annotations

import math

import numpy as np
import pytest

from saccade.testing.compare import compare_arrays, compare_outputs, outer_ring, relative_l2


def test_relative_l2_of_known_vectors():
    assert relative_l2(np.array([3.0, 4.0]), np.array([3.0, 4.0])) == 0.0
    assert relative_l2(np.array([3.0, 9.0]), np.array([3.0, 4.0])) == 1.0
    assert relative_l2(np.zeros(3), np.zeros(3)) == 0.0
    assert relative_l2(np.ones(3), np.zeros(3)) == math.inf
    assert relative_l2(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0


def test_relative_l2_is_taken_in_float64():
    big = np.full(4, 60000, np.float16)  # its square overflows float16
    assert relative_l2(big, big) == 0.0
    assert relative_l2(np.full(4, 30000, np.float16), big) == 0.5


@pytest.mark.parametrize(
    ("height", "width", "pixels"), [(1, 1, 1), (2, 3, 6), (3, 3, 8), (5, 7, 20)]
)
def test_the_outer_ring_holds_the_border_alone(height, width, pixels):
    array = np.zeros((2, 3, height, width))
    array[:, :, 1:-1, 1:-1] = 1.0
    ring = outer_ring(array)
    assert ring.shape == (2, 3, pixels)
    assert not ring.any()


def test_a_border_error_shows_in_the_ring():
    wanted = np.ones((1, 1, 100, 100), np.float32)
    got = wanted.copy()
    got[0, 0, -1, 50] = 1.001
    result = compare_arrays("y", got, wanted)
    assert result.relative_l2 == pytest.approx(1e-5, rel=1e-3)
    assert result.ring_l2 == pytest.approx(1e-3 / math.sqrt(396), rel=1e-3)
    assert not result.within(2e-5)
    inside = wanted.copy()
    inside[0, 0, 50, 50] = 1.001
    assert compare_arrays("y", inside, wanted).within(2e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("ours", [True, False])
def test_a_non_finite_element_on_one_side_fails(value, ours):
    clean, spoilt = np.ones(5, np.float32), np.ones(5, np.float32)
    spoilt[2] = value
    result = compare_arrays("y", *((spoilt, clean) if ours else (clean, spoilt)))
    assert not result.within(math.inf)
    assert "1 NaN or infinite" in (result.problem or "")


def test_the_same_non_finite_elements_on_both_sides_are_equal():
    array = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    assert compare_arrays("y", array, array.copy()).within(0.0)
    flipped = array.copy()
    flipped[2] = -np.inf
    assert not compare_arrays("y", flipped, array).within(math.inf)


def test_shapes_and_dtypes_have_to_agree():
    ones = np.ones((2, 3), np.float32)
    assert "shape (3, 2)" in (compare_arrays("y", np.ones((3, 2), np.float32), ones).problem or "")
    assert "dtype float64" in (compare_arrays("y", np.ones((2, 3)), ones).problem or "")


def test_every_expected_output_is_compared_in_order():
    expected = {"b": np.ones(2), "a": np.ones(2), "c": np.ones(2)}
    results = compare_outputs({"a": np.ones(2), "b": np.zeros(2)}, expected)
    assert [result.name for result in results] == ["b", "a", "c"]
    assert [result.within(1e-9) for result in results] == [False, True, False]
    assert results[2].problem == "missing"
