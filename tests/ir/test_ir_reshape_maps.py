"""Reshapes as index maps: right where they exist, absent where they are not certain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.ir.dim import Dim, evaluate
from saccade.ir.dim_parser import parse_dims
from saccade.ir.reshape_maps import (
    assumed,
    divisible,
    infer_reshape,
    meeting,
    quotient,
    refine,
    reshape,
)
from saccade.opdefs import Move

N, C, H, W = (parse_dims(name) for name in "NCHW")


def _dims(text: str) -> tuple[Dim, ...]:
    return tuple(parse_dims(part) for part in text.split())


def _apply(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    found = reshape(shape, target)
    assert found is not None
    x = np.arange(math.prod(shape)).reshape(shape)
    (y,) = Move(map=found).reference(x)
    np.testing.assert_array_equal(y, x.reshape(target))
    assert (found.in_shape, found.out_shape) == (shape, target)


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_merging_and_splitting_neighbours_always_has_a_map(sizes: list[int], data) -> None:
    cuts = [sorted(data.draw(st.sets(st.integers(0, len(sizes)), max_size=4))) for _ in range(2)]
    shapes = []
    for cut in cuts:
        edges = [0, *cut, len(sizes)]
        shapes.append(tuple(math.prod(sizes[a:b]) for a, b in itertools.pairwise(edges)))
    between = meeting(*shapes)
    assert between is not None
    _apply(shapes[0], between)
    _apply(between, shapes[1])


@pytest.mark.parametrize(
    ("shape", "target"),
    [((), (1, 1)), ((1, 6, 1), (2, 3)), ((6, 4), (3, 8)), ((2, 3, 4), (24,)), ((24,), (4, 1, 6))],
)
def test_known_sizes(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    _apply(shape, target)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ("N 116 H W", "N 2 58 H W"),
        ("N 2 58 H W", "N 116 H W"),
        ("N 768 H W", "N 768 H*W"),
        ("197 N 768", "197 12*N 64"),
        ("N*H C", "N H C"),
        ("N 4*H+4 W", "N 4 H+1 W"),
        ("N 1 H//2 W", "N (H//2)*W"),
    ],
)
def test_symbolic_sizes(shape: str, target: str) -> None:
    source, wanted = _dims(shape), _dims(target)
    found = reshape(source, wanted)
    assert found is not None
    assert (found.in_shape, found.out_shape) == (source, wanted)
    sizes = {"N": 3, "C": 5, "H": 6, "W": 7}
    have, want = (tuple(evaluate(d, sizes) for d in dims) for dims in (source, wanted))
    x = np.arange(math.prod(have)).reshape(have)
    (y,) = Move(map=found).bind(sizes).reference(x)
    np.testing.assert_array_equal(y, x.reshape(want))


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ("6 4", "4 6"),
        ("H", "2 H//2"),
        ("N 3", "3 N"),
        ("H W", "W H"),
        ("6", "7"),
        ("N", "H"),
        ("0 4", "4 0"),
    ],
)  # fmt: skip
def test_no_map_without_proof(shape: str, target: str) -> None:
    assert reshape(_dims(shape), _dims(target)) is None


def test_factors_of_both_sides_agree() -> None:
    found = refine((N, 12, H), (N, 3, 2, 2, H))
    assert found == (((N,), (3, 2, 2), (H,)), ((N,), (3,), (2,), (2,), (H,)))


def test_meeting_point() -> None:
    assert meeting((N, 6, 4), (N, 4, 6)) == (N, 24)
    assert meeting((H, W), (W, H)) == _dims("H*W")
    assert meeting((N, 6), (N, 7)) is None
    assert meeting((0, 4), (4, 0)) is None


def test_assumed_divisibility() -> None:
    half, third = parse_dims("H//2"), parse_dims("W//3")
    assumed = divisible((N, H, W), (N, half, 2, third, 3))
    assert assumed == (N, parse_dims("2*(H//2)"), parse_dims("3*(W//3)"))
    found = reshape(assumed, (N, half, 2, third, 3))
    assert found is not None
    assert (found.in_shape, found.out_shape) == (assumed, (N, half, 2, third, 3))
    assert divisible((N, H, 6), (N, 2, H, 3)) == (N, H, 6)
    assert divisible((parse_dims("2*H"),), (H, 2)) == (parse_dims("2*H"),)


def test_quotients() -> None:
    assert quotient(parse_dims("4*H*W"), parse_dims("2*W")) == parse_dims("2*H")
    assert quotient(parse_dims("2*H+2"), parse_dims("H+1")) == 2
    assert quotient(H, W) is None
    assert quotient(parse_dims("3*H"), 2) is None
    assert quotient(H, 0) is None


def test_the_missing_axis() -> None:
    assert infer_reshape((N, 4, H, W), (N, -1, W)) == (N, parse_dims("4*H"), W)
    assert infer_reshape((N, 4, H), (N, 5, -1)) is None
    assert infer_reshape((6, 4), (8, 3)) == (8, 3)
    assert infer_reshape((N, H), (N, 2, -1)) is None
    assert infer_reshape((N, H), (N, 2, -1), assume=True) == (N, 2, parse_dims("H//2"))
    assert infer_reshape((N, H), (W, -1), assume=True) is None
    assert infer_reshape((6, 4), (5, -1), assume=True) is None


@pytest.mark.parametrize(
    ("shape", "target", "merged", "taken_as"),
    [
        ("N (H//8)*W 120", "N 1 W 120", "N (H//8)*W 120", "N W 120"),
        ("N H W", "N H//4 4*W", "N H*W", "N (H//4)*4*W"),
        ("H W C", "2 3 C", "H*W C", "6 C"),
        ("H W", "N C", "H*W", "N*C"),
        ("N H W", "N C", "N H*W", "N C"),
        ("N H", "N W", "N H", "N W"),
    ],
)
def test_what_a_reshape_takes_for_granted(
    shape: str, target: str, merged: str, taken_as: str
) -> None:
    assert assumed(_dims(shape), _dims(target)) == (_dims(merged), _dims(taken_as))


@pytest.mark.parametrize(("shape", "target"), [("N 4 5", "N 3 7"), ("H", "H")])
def test_nothing_is_taken_for_granted_of_numbers_or_of_what_is_equal(
    shape: str, target: str
) -> None:
    assert assumed(_dims(shape), _dims(target)) is None


AXES = ("1", "2", "8", "N", "H", "W", "H+1", "H//2", "(W+1)//2", "H*W", "(H//8)*W", "2*H+3")


@given(st.lists(st.sampled_from(AXES), max_size=4), st.lists(st.sampled_from(AXES), max_size=4))
def test_what_is_taken_for_granted_has_maps(shape: list[str], target: list[str]) -> None:
    before, after = _dims(" ".join(shape)), _dims(" ".join(target))
    found = assumed(before, after)
    if found is not None:
        merged, taken_as = found
        assert reshape(before, merged) is not None
        step = reshape(taken_as, after)
        assert step is not None and step.in_shape == taken_as
