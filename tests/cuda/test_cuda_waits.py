"""Which launches wait for which, held against every pair of them, and that graphs obey."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.backends.cuda.runtime.waits import waits_of
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.testing.fake_streams import latest_first

READ, WRITE, TEMP, PACKED = Role.INPUT, Role.OUTPUT, Role.TEMP, Role.PACKED


def phase(*arguments):
    """A launch whose arguments are roles, bases, first bytes and numbers of bytes."""
    made = [
        Argument(f"a{i}", role, Ref(base, offset, nbytes))
        for i, (role, base, offset, nbytes) in enumerate(arguments)
    ]
    return Phase(None, tuple(made), {}, 1)


def conflict(a, b):
    """Whether two launches touch a byte that one of them writes."""
    pairs = [(x, y) for x in a.arguments for y in b.arguments]
    return any(
        x.ref.base == y.ref.base
        and max(x.ref.offset, y.ref.offset)
        < min(x.ref.offset + x.ref.nbytes, y.ref.offset + y.ref.nbytes)
        and not (x.role is READ and y.role is READ)
        and PACKED not in (x.role, y.role)
        for x, y in pairs
    )


def after(waits):
    """For each launch all that it comes after."""
    found = []
    for earlier in waits:
        found.append(set(earlier).union(*(found[i] for i in earlier)))
    return found


def test_a_chain_waits_link_by_link():
    links = [phase((READ, 0, 64 * i, 64), (WRITE, 0, 64 * (i + 1), 64)) for i in range(5)]
    assert waits_of(links) == [(), (0,), (1,), (2,), (3,)]


def test_readers_run_side_by_side():
    first = phase((WRITE, 0, 0, 64))
    readers = [phase((READ, 0, 0, 64), (WRITE, 0, 64 * i, 64)) for i in (1, 2, 3)]
    last = phase((READ, 0, 64, 192), (WRITE, 1, 0, 4))
    assert waits_of([first, *readers, last]) == [(), (0,), (0,), (0,), (1, 2, 3)]


@pytest.mark.parametrize("role", [WRITE, TEMP, Role.SCRATCH])
def test_memory_of_others_is_waited_for(role):
    """Until it was read, and until it was written, even by a byte."""
    launches = [phase((READ, 0, 0, 64)), phase((role, 0, 63, 64)), phase((role, 0, 126, 4))]
    assert waits_of(launches) == [(), (0,), (1,)]
    assert waits_of([phase((READ, 0, 0, 63)), launches[1]]) == [(), ()]
    assert waits_of([phase((READ, 1, 0, 64)), launches[1]]) == [(), ()]


def test_what_is_packed_and_what_is_empty_is_not_waited_for():
    launches = [phase((WRITE, 2, 0, 64)), phase((PACKED, 2, 0, 64)), phase((READ, 2, 5, 0))]
    assert waits_of(launches) == [(), (), ()]


REFS = st.tuples(
    st.sampled_from([READ, READ, WRITE, TEMP, PACKED]),
    st.integers(0, 1), st.integers(0, 12), st.integers(0, 5),
)  # fmt: skip


@given(st.lists(st.lists(REFS, max_size=3), max_size=14))
def test_all_that_touch_the_same_bytes_wait_and_no_others(launches):
    phases = [phase(*arguments) for arguments in launches]
    waits = waits_of(phases)
    pairs = [(i, j) for i, j in combinations(range(len(phases)), 2)
             if conflict(phases[i], phases[j])]  # fmt: skip
    asked = [sorted({i for i, k in pairs if k == j}) for j in range(len(phases))]
    assert after(waits) == after(asked)
    # Without what follows from the others.
    assert all(
        not any(i in after(waits)[k] for k in earlier if k != i)
        for earlier in waits for i in earlier
    )  # fmt: skip


def test_the_fake_runs_what_may_come_later_first():
    assert latest_first([(), (), ()]) == (2, 1, 0)
    assert latest_first([(), (0,), (0,), (1, 2), ()]) == (4, 0, 2, 1, 3)
