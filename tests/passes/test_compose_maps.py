from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.ir.compose_maps import canonical, compose, is_identity, is_view, same_map
from saccade.ir.dim import evaluate, floordiv, mul, symbol
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.reshape_maps import reshape


def apply(index_map, x):
    """Gather by the definition of an index map, element by element index."""
    split = x.reshape([size for axis in index_map.in_factors for size in axis])
    read = [np.zeros((), np.int64)] * split.ndim
    rank = len(index_map.factors)
    for axis, factor in enumerate(index_map.factors):
        if factor.source is not None:
            index = factor.start + factor.step * np.arange(factor.size)
            assert index.size == 0 or (index.min() >= 0)
            read[factor.source] = index.reshape([-1] + [1] * (rank - 1 - axis))
    shape = [f.size for f in index_map.factors]
    return np.broadcast_to(split[tuple(read)], shape).reshape(index_map.out_shape)


def transpose(shape, perm):
    sizes = tuple((size,) for size in shape)
    factors = tuple(Factor(shape[p], p) for p in perm)
    return IndexMap(sizes, factors, (1,) * len(perm))


def sliced(shape, axis, start, size, step):
    factors = [Factor(s, i) for i, s in enumerate(shape)]
    factors[axis] = Factor(size, axis, start, step)
    return IndexMap(tuple((s,) for s in shape), tuple(factors), (1,) * len(shape))


def tile(shape, axis, times):
    factors = [Factor(s, i) for i, s in enumerate(shape)]
    factors.insert(axis, Factor(times, None))
    groups = [1] * len(shape)
    groups[axis] = 2
    return IndexMap(tuple((s,) for s in shape), tuple(factors), tuple(groups))


@st.composite
def moves(draw, shape):
    """A random elementary movement from this shape."""
    kind = draw(st.sampled_from(["transpose", "reshape", "slice", "flip", "tile", "pick"]))
    axis = draw(st.integers(0, len(shape) - 1))
    if kind == "transpose":
        return transpose(shape, draw(st.permutations(range(len(shape)))))
    if kind == "tile":
        return tile(shape, axis, draw(st.integers(1, 3)))
    if kind == "flip":
        return sliced(shape, axis, shape[axis] - 1, shape[axis], -1)
    if kind == "pick":
        return sliced(shape, axis, draw(st.integers(0, shape[axis] - 1)), 1, 1)
    if kind == "slice":
        step = draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2]))
        start = draw(st.integers(0, shape[axis] - 1))
        span = (shape[axis] - 1 - start) // step if step > 0 else start // -step
        return sliced(shape, axis, start, draw(st.integers(1, span + 1)), step)
    factors = []
    for size in shape:  # split every axis at a random divisor, then merge random neighbours
        divisor = draw(st.sampled_from([q for q in range(1, size + 1) if size % q == 0]))
        factors += [divisor, size // divisor]
    target = [factors[0]]
    for factor in factors[1:]:
        if draw(st.booleans()):
            target.append(factor)
        else:
            target[-1] *= factor
    return reshape(shape, target)


@st.composite
def chains(draw):
    shape = draw(st.sampled_from([(12,), (4, 6), (2, 12, 3), (1, 8, 2, 3), (3, 5)]))
    chain = []
    for _ in range(draw(st.integers(2, 6))):
        chain.append(draw(moves(chain[-1].out_shape if chain else shape)))
        if np.prod(chain[-1].out_shape) > 4000:
            break
    return chain


@settings(max_examples=400)
@given(chains())
def test_a_composed_chain_does_what_its_links_do(chain):
    x = np.arange(np.prod(chain[0].in_shape)).reshape(chain[0].in_shape)
    total, expected = chain[0], apply(chain[0], x)
    np.testing.assert_array_equal(apply(canonical(total), x), expected)
    for link in chain[1:]:
        composed = compose(total, link)
        if isinstance(composed, str):
            x, total = expected, link
        else:
            total = composed
            assert total == canonical(total)
        expected = apply(link, expected)
        np.testing.assert_array_equal(apply(total, x), expected)
        assert total.out_shape == expected.shape


@settings(max_examples=200)
@given(chains())
def test_identity_and_view_are_told_by_the_elements(chain):
    for link in chain:
        x = np.arange(np.prod(link.in_shape)).reshape(link.in_shape)
        y = apply(link, x)
        flat = y.size == x.size and bool((y.reshape(-1) == x.reshape(-1)).all())
        assert is_view(link) == flat
        assert is_identity(link) == (flat and y.shape == x.shape)


def test_reshapes_and_transposes_always_compose():
    """The three steps of a channel shuffle are one map, and two shuffles cancel."""
    n, h, w = symbol("N"), symbol("H"), symbol("W")
    split = reshape((n, 12, h, w), (n, 3, 4, h, w))
    swap = transpose((n, 3, 4, h, w), (0, 2, 1, 3, 4))
    back = transpose((n, 4, 3, h, w), (0, 2, 1, 3, 4))
    once = compose(split, swap)
    assert isinstance(once, IndexMap)
    twice = compose(once, back)
    assert isinstance(twice, IndexMap)
    assert is_view(twice)
    assert not is_view(once)
    home = compose(twice, reshape((n, 3, 4, h, w), (n, 12, h, w)))
    assert isinstance(home, IndexMap)
    assert is_identity(home)


@pytest.mark.parametrize(
    ("links", "factors"),
    [
        ([reshape((12,), (4, 3)), sliced((4, 3), 1, 1, 1, 1)], (Factor(4, 0, 1, 3),)),
        ([reshape((12,), (4, 3)), sliced((4, 3), 0, 2, 1, 1)], (Factor(3, 0, 6, 1),)),
        (
            [sliced((12,), 0, 11, 12, -1), reshape((12,), (4, 3)), reshape((4, 3), (12,))],
            (Factor(12, 0, 11, -1),),
        ),
        (
            [reshape((24,), (4, 6)), sliced((4, 6), 0, 1, 2, 1), reshape((2, 6), (12,))],
            (Factor(12, 0, 6, 1),),
        ),
        (
            [
                reshape((8, 5), (2, 4, 5)),
                sliced((2, 4, 5), 0, 1, 1, 1),
                sliced((1, 4, 5), 1, 2, 1, 1),
            ],
            (Factor(1, 0, 6, 1), Factor(5, 1)),
        ),
    ],
)
def test_neighbours_merge_again(links, factors):
    total = links[0]
    x = np.arange(np.prod(total.in_shape)).reshape(total.in_shape)
    expected = apply(total, x)
    for link in links[1:]:
        total, expected = compose(total, link), apply(link, expected)
    assert total.factors == factors
    np.testing.assert_array_equal(apply(total, x), expected)


def test_symbolic_products_refine():
    n, h, w = symbol("N"), symbol("H"), symbol("W")
    flat = reshape((n, 8, h, w), (mul(mul(n, 8), mul(h, w)),))
    back = reshape((mul(mul(w, h), mul(n, 8)),), (n, 2, 4, h, w))
    total = compose(flat, back)
    assert isinstance(total, IndexMap)
    sizes = {"N": 2, "H": 3, "W": 5}
    assert [evaluate(s, sizes) for s in total.out_shape] == [2, 2, 4, 3, 5]
    assert same_map(total, reshape((n, 8, h, w), (n, 2, 4, h, w)))


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        (reshape((24,), (4, 6)), reshape((4, 6), (24,)), None),
        (sliced((24,), 0, 1, 12, 1), reshape((12,), (3, 4)), "does not fall on blocks of 4"),
        (sliced((24,), 0, 0, 12, 2), reshape((12,), (3, 4)), "with step 2 cannot be split"),
        (transpose((4, 6), (1, 0)), reshape((6, 4), (3, 8)), None),
        (reshape((4, 6), (24,)), sliced((24,), 0, 7, 4, 1), None),
        (
            compose(transpose((4, 6), (1, 0)), reshape((6, 4), (24,))),
            sliced((24,), 0, 3, 6, 1),
            "does not fall on blocks of 4",
        ),
        (
            compose(transpose((4, 9), (1, 0)), reshape((9, 4), (36,))),
            reshape((36,), (6, 6)),
            "do not refine each other",
        ),
        (transpose((0, 4), (1, 0)), transpose((4, 0), (1, 0)), "empty"),
    ],
)
def test_what_cannot_be_composed_says_why(first, then, reason):
    result = compose(first, then)
    if reason is None:
        assert isinstance(result, IndexMap)
    else:
        assert isinstance(result, str)
        assert reason in result


def test_halves_of_symbolic_dims_are_not_taken_for_granted():
    h = symbol("H")
    halves = IndexMap(((2, floordiv(h, 2)),), (Factor(floordiv(h, 2), 1), Factor(2, 0)), (1, 1))
    start = reshape((h,), (h,))
    assert compose(start, halves) == "factors of H and (H//2) do not refine each other"


def test_ranks_must_meet():
    with pytest.raises(ValueError, match="rank 1 does not meet 2"):
        compose(reshape((4, 6), (24,)), reshape((4, 6), (24,)))
