"""Elements by rank and by value: searches of long rows, many blocks, types that cases lack."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cuda.select import non_zero, packed, top_k
from saccade.kernels.cuda.select.non_zero import SELECT_NON_ZERO
from saccade.kernels.cuda.select.packed import SELECT_PACKED
from saccade.kernels.cuda.select.top_k import SELECT_TOP_K
from saccade.opdefs import NonZero, PackedPlaces, TopK
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200, interpret

RNG = np.random.default_rng(0)


def call_of(op, x, strides=None):
    view = row_major(DType.of(x.dtype), x.shape)
    view = view if strides is None else View(view.dtype, view.shape, strides)
    with np.errstate(all="ignore"):
        truth = op.reference(x)
    outputs = tuple(row_major(DType.of(a.dtype), a.shape) for a in truth)
    return Call(op, (view,), outputs, (False,), H200), truth


def held(kernel, op, x, launches=None):
    call, truth = call_of(op, x)
    found = interpret(kernel, call, [x], launches and launches(call))
    for one, true in zip(found, truth, strict=True):
        np.testing.assert_array_equal(one, true)
    return call


def special(shape):
    x = RNG.integers(-9, 9, shape).astype(np.float32) / 2
    x.flat[::7] = np.nan
    x.flat[1::11] = -0.0
    x.flat[2::13] = np.inf
    return x


NUMBERS = {
    "float32": RNG.standard_normal((2, 140)).astype(np.float32),
    "special": special((2, 140)),
    "float16": special((2, 140)).astype(np.float16),
    "float64": RNG.standard_normal((2, 140)),
    "int8": RNG.integers(-128, 128, (2, 140)).astype(np.int8),
    "int64": RNG.integers(-(1 << 62), 1 << 62, (2, 140)),
    "uint32": RNG.integers(0, 1 << 32, (2, 140)).astype(np.uint32),
    "uint64": RNG.integers(0, 1 << 63, (2, 140)).astype(np.uint64) * 2,
    "alike": np.ones((2, 140), np.int32),
}


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_search_finds_what_ranks_say(kind, largest, monkeypatch):
    monkeypatch.setattr(top_k, "_BLOCK", 32)  # a row has several blocks, of several turns
    monkeypatch.setattr(top_k, "_share", lambda _size: 64)
    op = TopK(37 if largest else 139, 1, largest)
    assert len(top_k._searched(call_of(op, NUMBERS[kind])[0])) > 6
    held(SELECT_TOP_K, op, NUMBERS[kind], top_k._searched)


def test_many_blocks_and_places_apart(monkeypatch):
    """More blocks than one look at their counts takes; rows that are columns."""
    monkeypatch.setattr(top_k, "_BLOCK", 16)
    monkeypatch.setattr(top_k, "_share", lambda _size: 16)
    held(SELECT_TOP_K, TopK(90, 1), special((1, 170, 1)), top_k._searched)
    held(SELECT_TOP_K, TopK(1, 0), special((41, 3, 2)), top_k._searched)


def test_short_rows_are_ranked_and_long_ones_searched():
    def first(shape, best):
        x = np.zeros(shape, np.float32)
        return [launch.config.phase for launch in SELECT_TOP_K.launch(call_of(TopK(best, 1), x)[0])]

    assert first((1, 663), 663) == first((1, 3234), 300) == ["rank"]
    assert first((1, 163200), 1000) == ["digits"] * 4 + ["ties", "gather", "rank"]
    # Nothing of a row is searched for if all are wanted.
    x = np.zeros((1, 40000), np.float32)
    assert len(list(SELECT_TOP_K.variants(call_of(TopK(40000, 1), x)[0]))) == 1


@pytest.mark.parametrize("kind", ["float32", "special", "float16", "float64", "int8", "int64"])
@pytest.mark.parametrize("block", [128, 4096])
def test_places_block_by_block(kind, block, monkeypatch):
    monkeypatch.setattr(non_zero, "_BLOCK", block)
    x = NUMBERS[kind].copy().reshape(2, 7, 20)
    x[RNG.random(x.shape) < 0.7] = 0
    held(SELECT_NON_ZERO, NonZero(x.size), x)
    for one in (np.zeros_like(x), np.ones_like(x)):
        held(SELECT_NON_ZERO, NonZero(x.size), one)


def test_places_of_more_blocks_than_one_look_takes(monkeypatch):
    monkeypatch.setattr(non_zero, "_BLOCK", 128)
    x = (RNG.random(128 * 260 + 5) < 0.1).astype(np.uint8)
    held(SELECT_NON_ZERO, NonZero(x.size), x)


def test_lists_over_several_programs(monkeypatch):
    monkeypatch.setattr(packed, "_BLOCK", 16)
    room = (20, 0, 7, 31, 1)
    sizes = np.array([20, 3, -5, 1 << 40, 1], np.int64)
    held(SELECT_PACKED, PackedPlaces(sum(room), room), sizes)
    held(SELECT_PACKED, PackedPlaces(0, (0,)), np.array([3], np.int64))


def test_refusals():
    x = np.zeros((4, 6), np.float32)
    apart = call_of(NonZero(24), x, (7, 1))[0]
    assert SELECT_NON_ZERO.supports(apart) == "not row-major, or with gaps"
    many = call_of(PackedPlaces(257, (1,) * 257), np.zeros(257, np.int64))[0]
    assert SELECT_PACKED.supports(many) == "not 1 to 256 lists"
    axes = np.zeros((2, 3, 2, 3, 2), np.float32)
    gaps = call_of(TopK(1, 4), axes, (1000, 300, 90, 25, 9))[0]
    assert SELECT_TOP_K.supports(gaps) == "more than 3 separate axes besides"
