"""Small steps are neighbours of those that they do not wait for."""

from dataclasses import replace
from itertools import combinations, groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_graphs import ADD, RELU, Builder, laid_out, plan_of

from saccade.layout.order import interleaved
from saccade.plan import make
from saccade.testing.simulate import live_masks
from saccade.waits import meetings


def classes(count, length, side=4):
    """Chains of as many convolutions behind one value, one chain after the other."""
    b = Builder((1, 8, side, side))
    x = b.inputs[0]
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


def order(graph, change=lambda steps: steps, **how):
    """Numbers of the steps as the graph has them, and the last ones that run beside them."""
    before = names(graph.nodes)
    laid = laid_out(graph, 16)
    ordered = sorted(laid.steps, key=lambda step: before.index(step.name))
    found, beside = interleaved(change(ordered), 16, **how)
    return [before.index(step.name) for step in found], list(beside)


def test_chains_advance_together():
    steps, beside = order(classes(3, 2))
    assert steps == [0, 2, 4, 1, 3, 5, 6, 7, 8]
    assert beside == [2, 2, 2, 5, 5, 5, 6, 7, 8]


def test_a_chain_stays_as_it_is():
    assert order(classes(1, 5)) == (list(range(6)), list(range(6)))


def test_the_window_is_what_may_be_mixed(monkeypatch):
    """One that ends makes room for the next."""
    graph = classes(4, 2)
    steps = laid_out(graph, 1).steps
    monkeypatch.setattr("saccade.layout.order._WINDOW", 1)
    assert interleaved(alone := interleaved(steps, 1)[0], 1) == (alone, tuple(range(12)))
    ordered = sorted(steps, key=lambda step: names(graph.nodes).index(step.name))
    found, beside = interleaved(ordered, 3)
    assert [ordered.index(step) for step in found] == [0, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert beside[:7] == (1, 1, 4, 4, 4, 6, 6)


def test_large_steps_stay_where_they_are(monkeypatch):
    graph = classes(3, 2, side=16)
    monkeypatch.setattr("saccade.layout.order._SMALL", 8 * 16 * 16 * 4)
    assert order(graph)[0][:3] == [0, 2, 4]
    monkeypatch.setattr("saccade.layout.order._SMALL", 8 * 16 * 16 * 4 - 1)
    assert order(graph) == (list(range(9)), list(range(9)))


def test_devices_that_run_steps_side_by_side_look_at_all_of_them(monkeypatch):
    graph = classes(20, 3)
    monkeypatch.setattr("saccade.layout.order._WINDOW", 1)
    together = [*range(0, 60, 3), *range(1, 60, 3), *range(2, 60, 3)]
    steps, beside = order(graph, side_by_side=True)
    # The sums come as soon as what they add, which is level by level, too.
    assert [step for step in steps if step < 60] == together
    assert beside[:60:20] == [19, 39, 59] and order(graph)[0] != steps


def test_and_take_larger_ones_for_small(monkeypatch):
    graph = classes(3, 2, side=16)
    monkeypatch.setattr("saccade.layout.order._SMALL", 1)
    assert order(graph)[0] == list(range(9))
    assert order(graph, side_by_side=True)[0][:6] == [0, 2, 4, 1, 3, 5]
    monkeypatch.setattr("saccade.layout.order._SMALL_BESIDE", 8 * 16 * 16 * 4 - 1)
    assert order(graph, side_by_side=True)[0] == list(range(9))


def test_steps_on_the_host_stay_where_they_are():
    def hosted(steps):
        steps[2] = steps[2]._replace(choice=replace(steps[2].choice, kernel=None))
        return steps

    assert order(classes(3, 2), hosted)[0] == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_plans_have_the_steps_of_their_layout_in_order():
    """Tuning knows steps of both by number."""
    graph = classes(5, 3)
    laid = laid_out(graph, 2)
    assert names(make(graph, laid, {}, 2, "avx512").steps) == names(laid.steps)
    assert laid.steps == interleaved(laid.steps, 2)[0] and max(laid.beside) == len(laid.steps) - 1


def test_steps_side_by_side_meet_once():
    """None takes memory that another one beside it needs, be it an operand in whose place it is."""
    plan = plan_of(classes(3, 3))
    phases = [phase for step in plan.steps for phase in step.phases]
    assert sum(meetings(phase.uses(plan.threads) for phase in phases)) == 5
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
@given(tangles(), st.sampled_from([1, 2, 16]))
def test_everything_is_written_before_it_is_read_whatever_the_graph(graph, threads):
    laid = laid_out(graph, threads)
    live_masks(make(graph, laid, {}, threads, "avx512"))  # raises if nobody wrote what is read
    for _, level in groupby(zip(laid.steps, laid.beside, strict=True), lambda pair: pair[1]):
        for (one, _), (other, _) in combinations(level, 2):
            written = {stored.buffer for stored in one.outputs}
            assert not written & {stored.buffer for stored in other.inputs}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_arena_grows_by_what_is_side_by_side_alone(monkeypatch, threads):
    """The ends of all chains, which wait for their sum, and what is between two steps."""
    chains, window, one = 96, 8, 8 * 4 * 4 * 4
    graph = classes(chains, 4)
    most = one * (chains + 2 * window * threads)
    monkeypatch.setattr("saccade.layout.order._WINDOW", window)
    assert make(graph, laid_out(graph, threads), {}, threads, "avx512").arena_bytes <= most
    monkeypatch.setattr("saccade.layout.order._WINDOW", 1000)
    assert make(graph, laid_out(graph, threads), {}, threads, "avx512").arena_bytes > most
