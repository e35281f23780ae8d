"""Traces: what is computed from one count holds for others, or says that it does not."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.backends.trace import SymbolicNumber, SymbolicTrace, larger, smaller

COUNTS = st.integers(0, 5000)


def chunks(count, most, share):
    """As kernels do it: sizes, alignment, limits, a choice."""
    parts = max(1, min(most, -(-count // share)))
    rest = count % share if count > most else share - count % 7
    again = 7 - (2 * (5 - count) + 3) * 4 - (count * 2 - count) * 0
    loads = [
        again,
        (again - 8 * count) * count,
        abs(rest - 5),
        3 * count + parts,
        2 - count,
        (count + 1) * (count - parts),
    ]
    if not count:
        loads.append(-1)
    elif 8.0 * count / (parts + 0.5) <= 40.0 and count != 6:
        loads[0] += 1
    return [*loads, larger(parts, 5), smaller(count, 100), 64]


def values(found, trace, count):
    words = dict(enumerate(found))
    places = {at: value for at, value in words.items() if isinstance(value, SymbolicNumber)}
    given = trace.replay(places, found)(words, count)
    if given is None:
        assert words == dict(enumerate(found)), "nothing is written"
        return None
    assert list(given) == list(words.values())
    return list(given)


@given(COUNTS, COUNTS, st.integers(1, 200), st.integers(1, 50))
def test_another_count_has_the_same_numbers_or_another_formula(first, second, most, share):
    trace = SymbolicTrace(first)
    found = chunks(trace.count, most, share)
    assert values(found, trace, first) == chunks(first, most, share)
    assert values(found, trace, second) in (None, chunks(second, most, share))


def test_a_formula_holds_where_comparisons_come_out_the_same():
    trace = SymbolicTrace(1000)
    found = chunks(trace.count, 20, 10)
    assert values(found, trace, 700) == chunks(700, 20, 10)
    assert values(found, trace, 8) is None


def test_chains_are_short_and_what_nobody_asks_for_is_not_computed():
    trace = SymbolicTrace(5)
    found = (((trace.count * 3 + 1) * 4 - 2) * -1 + 0) * 1
    assert values([found], trace, 7) == [-86]
    assert len(trace._needed([found.place])) == 2
    assert trace._needed([]) == []


def test_the_number_itself():
    count = SymbolicTrace(7).count
    assert (count.value, (count * 3).value, (count / 2).value) == (7, 21, 3.5)


@pytest.mark.parametrize(
    "use", [hash, int, float, range, operator.index, operator.invert, lambda n: n.bit_length()]
)
def test_nothing_is_decided_unnoticed(use):
    with pytest.raises(TypeError):
        use(SymbolicTrace(7).count)


def test_a_limit_of_two_numbers_decides_nothing():
    trace = SymbolicTrace(3)
    found = [larger(trace.count, 10), smaller(trace.count, 10)]
    assert [values(found, trace, count) for count in (3, 30)] == [[10, 3], [30, 10]]
