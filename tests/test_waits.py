"""Which parts wait for which, held against every pair of them, and that graphs and teams obey."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.testing.fake_streams import latest_first
from saccade.waits import Lane, Use, between_meetings, meetings, waits_of


def read(start, stop, base=0):
    return Use(base, start, stop, True)


def write(start, stop, base=0):
    return Use(base, start, stop, False)


def conflict(a, b):
    """Whether two parts touch a byte that one of them writes."""
    return any(
        x.base == y.base
        and max(x.start, y.start) < min(x.stop, y.stop)
        and not (x.reads and y.reads)
        and (x.lane is None or y.lane is None or x.lane.pitch != y.lane.pitch
             or bool(places(x.lane) & places(y.lane)))
        for x in a for y in b
    )  # fmt: skip


def places(lane):
    """Of the bytes of a pitch those that are the lane's."""
    return {(lane.begin + i) % lane.pitch for i in range(lane.width)}


def after(waits):
    """For each part all that it comes after."""
    found = []
    for earlier in waits:
        found.append(set(earlier).union(*(found[i] for i in earlier)))
    return found


def test_a_chain_waits_link_by_link():
    links = [(read(64 * i, 64 * i + 64), write(64 * i + 64, 64 * i + 128)) for i in range(5)]
    assert waits_of(links) == [(), (0,), (1,), (2,), (3,)]
    assert meetings(links) == [False, True, True, True, True]


def test_readers_run_side_by_side():
    readers = [(read(0, 64), write(64 * i, 64 * i + 64)) for i in (1, 2, 3)]
    parts = [(write(0, 64),), *readers, (read(64, 256), write(0, 4, base=1))]
    assert waits_of(parts) == [(), (0,), (0,), (0,), (1, 2, 3)]
    assert meetings(parts) == [False, True, False, False, True]


def test_memory_of_others_is_waited_for():
    """Until it was read, and until it was written, even by a byte."""
    first, second, third = (read(0, 64),), (write(63, 127),), (write(126, 130),)
    assert waits_of([first, second, third]) == [(), (0,), (1,)]
    assert waits_of([(read(0, 63),), second]) == [(), ()]
    assert waits_of([(read(0, 64, base=1),), second]) == [(), ()]


def test_parts_of_the_same_pixels_are_written_side_by_side():
    """Two branches of a network, whose concatenation a third one reads."""
    left, right = Lane(48, 0, 16), Lane(48, 16, 32)
    branches = [(Use(0, 0, 480, False, left),), (Use(0, 16, 496, False, right),)]
    parts = [*branches, (read(0, 496),), (Use(0, 0, 480, True, left), write(0, 8, base=1))]
    assert waits_of(parts) == [(), (), (0, 1), (0,)]
    assert waits_of([*parts, branches[1]])[-1] == (2,)
    # Of another width of pixels nothing is known.
    other = (Use(0, 0, 480, False, Lane(32, 16, 8)),)
    assert waits_of([branches[0], other]) == [(), (0,)]


def test_what_is_empty_is_not_waited_for():
    assert waits_of([(write(0, 64),), (read(5, 5),)]) == [(), ()]
    assert meetings([(write(0, 64),), (read(5, 5),)]) == [False, False]


@pytest.mark.parametrize(
    ("role", "uses"),
    [
        (Role.INPUT, [Use(2, 8, 20, True)]),
        (Role.OUTPUT, [Use(2, 8, 20, False)]),
        (Role.TEMP, [Use(2, 8, 20, False)]),
        (Role.SCRATCH, [Use(2, 8, 44, False)]),
        (Role.PACKED, []),
    ],
)
def test_a_phase_says_what_it_uses(role, uses):
    """Scratch of each thread; nothing that was packed before any run."""
    phase = Phase(None, (Argument("x", role, Ref(2, 8, 12)),), {}, 1)
    assert list(phase.uses(3)) == uses


LANES = st.builds(Lane, st.integers(4, 5), st.integers(0, 3), st.integers(1, 4))


def test_operands_have_lanes_and_work_memory_has_none():
    """A temporary may lie where an operand of another time did, and is written as a whole."""
    place, lane = Ref(0, 8, 88), Lane(48, 8, 16)
    for role in Role:
        phase = Phase(None, (Argument("x", role, place),), {}, 1)
        expected = lane if role in (Role.INPUT, Role.OUTPUT) else None
        assert all(use.lane == expected for use in phase.uses(lanes={place: lane}))


USES = st.builds(
    Use, st.integers(0, 1), st.integers(0, 12), st.integers(0, 5), st.booleans(), st.none() | LANES
).map(lambda use: use._replace(stop=use.start + use.stop))
PARTS = st.lists(st.lists(USES, max_size=3), max_size=14)


@given(PARTS)
def test_all_that_touch_the_same_bytes_wait_and_no_others(parts):
    waits = waits_of(parts)
    pairs = [(i, j) for i, j in combinations(range(len(parts)), 2) if conflict(parts[i], parts[j])]
    asked = [sorted({i for i, k in pairs if k == j}) for j in range(len(parts))]
    assert after(waits) == after(asked)
    # Without what follows from the others.
    assert all(
        not any(i in after(waits)[k] for k in earlier if k != i)
        for earlier in waits for i in earlier
    )  # fmt: skip


@given(PARTS)
def test_a_team_meets_where_it_has_to_and_nowhere_else(parts):
    groups = list(between_meetings(meetings(parts)))
    assert [i for group in groups for i in group] == list(range(len(parts)))
    for group in groups:
        assert not any(conflict(parts[i], parts[j]) for i, j in combinations(group, 2))
    for group, then in pairwise(groups):
        assert any(conflict(parts[i], parts[then[0]]) for i in group)


def test_the_fake_runs_what_may_come_later_first():
    assert latest_first([(), (), ()]) == (2, 1, 0)
    assert latest_first([(), (0,), (0,), (1, 2), ()]) == (4, 0, 2, 1, 3)
