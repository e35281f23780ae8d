"""Small steps are neighbours of those that they do not wait for."""

from dataclasses import replace
from itertools import combinations, groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_graphs import ADD, RELU, Builder, laid_out, plan_of

from saccade.plan import make
from saccade.plan.order import interleaved
from saccade.testing.simulate import live_masks
from saccade.waits import meetings, waits_of

EVERY = 1000


def classes(count, length, side=4, before=lambda b: b.inputs[0]):
    """Chains of as many convolutions behind one value, one chain after the other."""
    b = Builder((1, 8, side, side))
    x = before(b)
    ends = []
    for _ in range(count):
        y = x
        for _ in range(length):
            y = b.conv(y, 8, taps=1)
        ends.append(y)
    total = ends[0]
    for end in ends[1:]:
        total = b.add(ADD, total, end)
    return b.graph(b.add(RELU, total))


def names(steps):
    return [step.name for step in steps]


def order(laid, window=EVERY):
    """Numbers of the steps as they were, and the ends of those that run side by side."""
    before = names(laid.steps)
    found, beside = interleaved(laid, window)
    return [before.index(name) for name in names(found.steps)], list(beside)


def test_chains_advance_together():
    steps, beside = order(laid_out(classes(3, 2)))
    assert steps == [0, 2, 4, 1, 3, 5, 6, 7, 8]
    assert beside == [2, 2, 2, 5, 5, 5, 6, 7, 8]


def test_a_chain_stays_as_it_is():
    laid = laid_out(classes(1, 5))
    assert order(laid) == (list(range(6)), list(range(6)))


def test_the_window_is_what_may_be_mixed():
    """One that ends makes room for the next."""
    laid = laid_out(classes(4, 2))
    assert order(laid, 1) == (list(range(12)), list(range(12)))
    steps, beside = order(laid, 3)
    assert steps == [0, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert beside[:7] == [1, 1, 4, 4, 4, 6, 6]


def test_large_steps_stay_where_they_are(monkeypatch):
    laid = laid_out(classes(3, 2, side=16))
    monkeypatch.setattr("saccade.plan.order._SMALL", 8 * 16 * 16 * 4)
    assert order(laid)[0][:3] == [0, 2, 4]
    monkeypatch.setattr("saccade.plan.order._SMALL", 8 * 16 * 16 * 4 - 1)
    assert order(laid) == (list(range(9)), list(range(9)))


def test_steps_on_the_host_stay_where_they_are():
    laid = laid_out(classes(3, 2))
    host = laid.steps[2]._replace(choice=replace(laid.steps[2].choice, kernel=None))
    steps, _ = order(replace(laid, steps=(*laid.steps[:2], host, *laid.steps[3:])))
    assert steps == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_steps_side_by_side_meet_once():
    """None takes memory that another one beside it needs, be it an operand in whose place it is."""
    plan = plan_of(classes(3, 3))
    phases = [phase for step in plan.steps for phase in step.phases]
    assert sum(meetings(waits_of(phase.uses(plan.threads) for phase in phases))) == 5
    b = Builder((1, 8, 4, 4))
    x = b.conv(b.inputs[0], 8)
    both = [b.add(RELU, x), b.add(RELU, x)]
    plan = plan_of(b.graph(b.conv(b.add(ADD, *both), 8)))
    first, second = (step for step in plan.steps if step.op == RELU)
    assert first.inputs == second.inputs
    assert len({slot.ref for slot in (*first.inputs, *first.outputs, *second.outputs)}) == 3


def test_a_step_behind_others_still_takes_its_operands_place():
    b = Builder((1, 8, 4, 4))
    x = b.conv(b.inputs[0], 8)
    y = b.add(RELU, x)
    z = b.add(RELU, b.add(ADD, b.conv(x, 8), y))
    plan = plan_of(b.graph(b.conv(z, 8)))
    assert sum(s.inputs[0].ref == s.outputs[0].ref for s in plan.steps if s.op in (RELU, ADD)) >= 2


@st.composite
def tangles(draw):
    b = Builder((1, 8, 4, 4))
    values = [b.inputs[0]]
    for _ in range(draw(st.integers(1, 12))):
        one, other = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["conv", "relu", "add"]))
        if kind == "conv":
            values.append(b.conv(one, 8, taps=1))
        else:
            values.append(b.add(RELU, one) if kind == "relu" else b.add(ADD, one, other))
    return b.graph(b.conv(values[-1], 8))


@settings(max_examples=40, deadline=None)
@given(tangles(), st.sampled_from([1, 2, 5, EVERY]))
def test_everything_is_written_before_it_is_read_whatever_the_graph(graph, window):
    laid = laid_out(graph)
    found, beside = interleaved(laid, window)
    assert sorted(names(found.steps)) == sorted(names(laid.steps))
    plan = make(graph, found, {}, 2, "avx512")
    live_masks(plan)  # raises if something is read that nobody wrote
    for _, level in groupby(zip(found.steps, beside, strict=True), lambda pair: pair[1]):
        for (one, _), (other, _) in combinations(level, 2):
            written = {stored.buffer for stored in one.outputs}
            assert not written & {stored.buffer for stored in other.inputs}


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_arena_grows_by_what_is_side_by_side_alone(threads):
    graph = classes(64, 4)
    plan = make(graph, laid_out(graph, threads), {}, threads, "avx512")
    one = 8 * 4 * 4 * 4
    assert plan.arena_bytes <= one * (64 + 2 * 64 * threads)
