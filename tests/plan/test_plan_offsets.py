"""Offsets: no two blocks that are live together share a byte, whatever the lifetimes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import PlanError
from saccade.limits import Deadline, Limits
from saccade.plan.offsets import LiveBlock, assign_offsets, live_bytes

ALIGNMENT = 64


@st.composite
def blocks(draw):
    first = draw(st.integers(0, 12))
    last = first + draw(st.integers(0, 6))
    return LiveBlock.aligned(draw(st.integers(0, 700)), first, last, ALIGNMENT)


@given(st.lists(blocks(), max_size=24))
def test_live_blocks_never_share_a_byte(found):
    offsets, size = assign_offsets(found)
    assert len(offsets) == len(found)
    for i, (a, at) in enumerate(zip(found, offsets, strict=True)):
        assert at % ALIGNMENT == 0 and 0 <= at <= size - a.nbytes
        for b, other in zip(found[:i], offsets[:i], strict=True):
            together = a.first <= b.last and b.first <= a.last
            apart = at + a.nbytes <= other or other + b.nbytes <= at
            assert apart or not together or not a.nbytes or not b.nbytes
    assert size >= live_bytes(found)
    assert size <= sum(b.nbytes for b in found)


@given(st.lists(blocks(), min_size=1, max_size=24))
def test_live_bytes_is_the_largest_sum_of_any_step(found):
    sums = [sum(b.nbytes for b in found if b.first <= step <= b.last) for step in range(20)]
    assert live_bytes(found) == max(sums)


@pytest.mark.parametrize(
    ("found", "size"),
    [
        ([], 0),
        ([LiveBlock(64, 0, 0)], 64),
        (
            [LiveBlock(64, 0, 1), LiveBlock(64, 1, 2), LiveBlock(64, 2, 3)],
            128,
        ),  # a chain plays ping-pong
        (
            [LiveBlock(128, 0, 3), LiveBlock(64, 0, 0), LiveBlock(64, 1, 1)],
            192,
        ),  # the small ones share
        (
            [LiveBlock(64, 0, 0), LiveBlock(64, 1, 1), LiveBlock(128, 2, 2)],
            128,
        ),  # large after small
    ],
)
def test_known_cases_reach_the_bound(found, size):
    assert assign_offsets(found)[1] == size == live_bytes(found)


@given(st.lists(blocks(), max_size=24), st.data())
def test_blocks_that_are_to_be_apart_are(found, data):
    apart = [0] * len(found)
    for _ in range(len(found) // 2):
        one, other = (data.draw(st.integers(0, len(found) - 1)) for _ in range(2))
        if one != other:
            apart[one] |= 1 << other
            apart[other] |= 1 << one
    offsets, size = assign_offsets(found, None, apart)
    for i, (block, at) in enumerate(zip(found, offsets, strict=True)):
        assert at + block.nbytes <= size
        for j in range(i):
            if apart[i] >> j & 1 and block.nbytes and found[j].nbytes:
                assert at >= offsets[j] + found[j].nbytes or offsets[j] >= at + block.nbytes
    # Without any it is what it was.
    assert assign_offsets(found, None, [0] * len(found)) == assign_offsets(found)


def test_a_deadline_ends_it():
    """Where many live at once, the time grows with their square."""
    many = [LiveBlock(64 + i % 7, 0, 1) for i in range(20_000)]  # nearly a minute
    with pytest.raises(PlanError, match=r"planning memory takes longer than 0\.2 seconds"):
        assign_offsets(many, Deadline("planning memory", Limits(seconds=0.2)))


@pytest.mark.parametrize(("nbytes", "size"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_sizes_are_rounded_up(nbytes, size):
    assert LiveBlock.aligned(nbytes, 2, 3, 64) == LiveBlock(size, 2, 3)
