"""Views: an index map applied to a stored value by strides alone gives what NumPy gives."""

import numpy as np
import pytest

from saccade.ir import DType, Factor, IndexMap
from saccade.kernels.base import View
from saccade.layout.views import aligned, channels_last, moved, row_major, unmoved
from saccade.opdefs import Move


def transpose(shape, order):
    return IndexMap(
        tuple((n,) for n in shape),
        tuple(Factor(shape[i], i) for i in order),
        (1,) * len(shape),
    )


def split(n, parts):
    """[n] as [parts, n / parts]."""
    return IndexMap(((parts, n // parts),), (Factor(parts, 0), Factor(n // parts, 1)), (1, 1))


def merge(shape):
    sources = tuple(Factor(n, i) for i, n in enumerate(shape))
    return IndexMap(tuple((n,) for n in shape), sources, (len(shape),))


def slices(shape, starts, sizes, steps):
    factors = (Factor(*f) for f in zip(sizes, range(len(shape)), starts, steps, strict=True))
    return IndexMap(tuple((n,) for n in shape), tuple(factors), (1,) * len(shape))


SHAPE = (2, 6, 4, 5)
VIEWS = {
    "transpose": (SHAPE, transpose(SHAPE, (0, 2, 3, 1))),
    "reverse axes": (SHAPE, transpose(SHAPE, (3, 2, 1, 0))),
    "slice": (SHAPE, slices(SHAPE, (1, 2, 0, 1), (1, 3, 4, 4), (1, 1, 1, 1))),
    "every other": (SHAPE, slices(SHAPE, (0, 1, 0, 0), (2, 3, 2, 3), (1, 2, 2, 2))),
    "split": ((12,), split(12, 3)),
    "expand": ((3,), IndexMap(((3,),), (Factor(4, None), Factor(3, 0)), (1, 1))),
    "squeeze": ((3, 1, 2), IndexMap(((3,), (), (2,)), (Factor(3, 0), Factor(2, 1)), (1, 1))),
    "unsqueeze": ((3, 2), IndexMap(((3,), (2,)), (Factor(3, 0), Factor(2, 1)), (1, 0, 0, 1))),
    "empty": ((0, 3), transpose((0, 3), (1, 0))),
}


def read(memory, offset, view):
    assert offset >= 0 and offset + view.extent <= memory.size
    steps = tuple(s * memory.itemsize for s in view.strides)
    return np.lib.stride_tricks.as_strided(memory[offset:], view.shape, steps)


@pytest.mark.parametrize("dense", [row_major, channels_last])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_reads_what_the_movement_gives(name, dense):
    shape, index_map = VIEWS[name]
    if dense is channels_last and len(shape) != 4:
        pytest.skip("feature maps only")
    view = dense(DType.F32, shape)
    memory = np.full(max(view.extent, 1), np.nan, np.float32)
    logical = np.arange(view.size, dtype=np.float32).reshape(shape)
    if view.size:
        read(memory, 0, view)[...] = logical
    found = moved(view, index_map)
    assert found is not None
    (wanted,) = Move(index_map).reference(logical)
    assert found[1].shape == wanted.shape
    if wanted.size:
        assert np.array_equal(read(memory, *found), wanted)


def test_merging_needs_neighbours():
    assert moved(row_major(DType.F32, (4, 5)), merge((4, 5))) == (0, row_major(DType.F32, (20,)))
    apart = View(DType.F32, (4, 5), (8, 1))
    assert moved(apart, merge((4, 5))) is None
    last = channels_last(DType.F32, SHAPE)
    assert moved(last, merge(SHAPE)) is None


def test_pixels_of_a_channels_last_image_merge():
    flat = IndexMap(
        tuple((n,) for n in SHAPE),
        (Factor(2, 0), Factor(4, 2), Factor(5, 3), Factor(6, 1)),
        (1, 2, 1),
    )
    offset, view = moved(channels_last(DType.F32, SHAPE), flat)
    assert (offset, view) == (0, row_major(DType.F32, (2, 20, 6)))


def test_a_flip_is_never_a_view():
    flip = IndexMap(((5,),), (Factor(5, 0, 4, -1),), (1,))
    assert moved(row_major(DType.F32, (5,)), flip) is None


def test_dense_views():
    assert row_major(DType.F32, (2, 3, 4)).strides == (12, 4, 1)
    assert channels_last(DType.F16, SHAPE).strides == (120, 1, 30, 6)
    assert row_major(DType.F32, ()).extent == 1
    assert row_major(DType.F32, (2, 0)).extent == 0


@pytest.mark.parametrize(
    ("dtype", "pitch", "begin", "found"),
    [
        (DType.F16, 24, 0, True),
        (DType.BF16, 24, 32, True),
        (DType.F16, 24, 8, False),  # between multiples of 16 bytes
        (DType.F16, 20, 0, False),  # the next pixel does
        (DType.F16, 8, 0, False),  # no part: pixels lie side by side
        (DType.F32, 24, 0, False),
    ],
)
def test_parts_that_begin_at_multiples_of_16_bytes_say_so(dtype, pitch, begin, found):
    view = View(dtype, (2, 8, 3, 5), (15 * pitch, 1, 5 * pitch, pitch))
    assert aligned(view, begin).aligned is found


UNIT = IndexMap(((6,), (5,)), (Factor(6, 0), Factor(5, 1)), (1, 1, 0))
PIXELS = IndexMap(
    ((2,), (3,), (4,), (5,)), (Factor(2, 0), Factor(4, 2), Factor(5, 3), Factor(3, 1)), (1, 2, 1)
)
MERGED = IndexMap(((2, 3), (5,)), (Factor(2, 0), Factor(3, 1), Factor(5, 2)), (1, 1, 1))


@pytest.mark.parametrize(
    ("index_map", "place", "strides"),
    [
        (UNIT, View(DType.F32, (6, 5, 1), (20, 4, 1)), (20, 4)),  # one column of four
        # Pixels of a head behind those of others, in each of two images.
        (PIXELS, View(DType.F32, (2, 20, 3), (90, 3, 1)), (90, 1, 15, 3)),
        (MERGED, View(DType.F32, (2, 3, 5), (15, 5, 1)), (5, 1)),
    ],
)
def test_what_has_a_place_says_how_what_it_is_a_view_of_lies(index_map, place, strides):
    found = unmoved(place, index_map)
    assert found == View(DType.F32, index_map.in_shape, strides)
    assert moved(found, index_map) == (0, place)


def test_two_axes_of_one_operand_have_to_be_dense():
    assert unmoved(View(DType.F32, (2, 3, 5), (30, 5, 1)), MERGED) is None


@pytest.mark.parametrize(
    "index_map",
    [
        IndexMap(((6,),), (Factor(3, 0, 1),), (1,)),  # a part
        IndexMap(((6,),), (Factor(6, 0, 5, -1),), (1,)),  # backwards
        IndexMap(((6,),), (Factor(6, 0), Factor(2, None)), (1, 1)),  # repeated
        IndexMap(((2, 3),), (Factor(3, 1), Factor(2, 0)), (1, 1)),  # of one axis, the inner first
    ],
)
def test_other_movements_have_no_operand_that_lies_like_their_result(index_map):
    assert unmoved(row_major(DType.F32, index_map.out_shape), index_map) is None


@pytest.mark.parametrize(
    ("shape", "strides", "found"),
    [
        ((2, 16, 5, 7), (35 * 48, 1, 7 * 48, 48), (48, 16)),  # channels of wider pixels
        ((1, 16, 5, 1), (240, 1, 48, 48), (48, 16)),
        ((3, 20), (50, 1), (50, 20)),  # parts of rows
        ((2, 3, 4, 5), (600, 20, 5, 1), (600, 60)),
        ((2, 3, 4, 5), (60, 20, 5, 1), None),  # all of it
        ((4, 1, 3), (6, 1, 0), (6, 1)),
        ((4, 3), (6, 4), (2, 1)),
        ((3,), (-1,), None),
        ((), (), None),
    ],
)
def test_what_lies_between_the_elements_is_others(shape, strides, found):
    view = View(DType.F16, shape, strides)
    assert view.lane == found
    if found is not None:
        pitch, width = found
        memory = np.arange(view.extent)
        places = np.lib.stride_tricks.as_strided(memory, shape, [8 * s for s in strides]) % pitch
        assert places.max() < width


def test_room_behind_channels_is_theirs():
    view = View(DType.F16, (1, 13, 4, 4), (16 * 64, 1, 256, 64), room=3)
    assert view.lane == (64, 16)
