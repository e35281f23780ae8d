"""What phases ask for ahead: constants of later phases, the nearest first, none of them twice."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from layout_graphs import Builder, plan_of

from saccade.plan import Phase, Plan, Ref
from saccade.plan.ahead import asking_ahead

FIRST = 3


def chain(channels):
    b = Builder((1, channels[0], 14, 14))
    x = b.inputs[0]
    for count in channels[1:]:
        x = b.conv(x, count, taps=1)
    return plan_of(b.graph(x))


def steps_of(plan, weights, micros):
    """Steps of one phase, each with a constant of so many bytes and an estimate."""
    step = plan.steps[0]
    found = []
    for i, (nbytes, time) in enumerate(zip(weights, micros, strict=True)):
        refs = (Ref(0, 0, 64), Ref(FIRST + i, 0, nbytes))
        phase = Phase(step.phases[0].config, refs, (), 4)
        found.append(replace(step, phases=(phase,), estimate=time))
    return found


def asked(steps, plan, asking=None, cache=32 << 20):
    names = frozenset([plan.steps[0].kernel] if asking is None else asking)
    speeds = replace(plan.speeds, cache=cache)
    return [step.phases[0].ahead for step in asking_ahead(steps, FIRST, names, speeds)]


@pytest.fixture(scope="module")
def plan():
    return chain((16, 32))


def test_a_phase_asks_for_what_the_next_one_reads(plan):
    found = asked(steps_of(plan, [8192, 16384, 8192], [10.0] * 3), plan)
    assert found[1] == (Ref(FIRST + 2, 0, 8192),)
    assert found[2] == (), "nothing is read behind the last one"
    assert found[0] == (Ref(FIRST + 1, 0, 16384),), "what the second asks for is not asked twice"


def test_what_does_not_fit_is_left_to_the_phases_before(plan):
    large = 1 << 21
    found = asked(steps_of(plan, [64, 64, large], [100.0, 50.0, 1.0]), plan)
    (second,), (first,) = found[1], found[0]
    assert second == Ref(FIRST + 2, large - second.nbytes, second.nbytes), "its end"
    assert first.offset + first.nbytes == second.offset, "and what lies before that"
    assert first.nbytes == 2 * second.nbytes == 800_000


def test_kernels_that_do_not_ask_leave_it_to_those_before(plan):
    steps = steps_of(plan, [64, 64, 8192], [10.0] * 3)
    steps[1] = replace(steps[1], kernel="another")
    assert asked(steps, plan) == [(Ref(FIRST + 2, 0, 8192),), (), ()]
    assert asked(steps, plan, asking=()) == [(), (), ()]


def test_no_more_is_on_its_way_than_a_part_of_the_cache(plan):
    steps = steps_of(plan, [64, 64, 1 << 20, 1 << 20], [1000.0, 0.0, 0.0, 0.0])
    (nearest,), *_ = asked(steps, plan, cache=8 << 20)
    assert nearest == Ref(FIRST + 2, 0, 1 << 20), "the nearest are kept"
    found = asked(steps, plan, cache=12 << 20)[0]
    assert found[0] == nearest, "and asked for first"
    assert found[1] == Ref(FIRST + 3, 1 << 19, 1 << 19)


def test_small_constants_are_not_worth_it(plan):
    assert asked(steps_of(plan, [64, 4032], [10.0] * 2), plan) == [(), ()]


def test_plans_ask_for_parts_of_constants_that_are_read_later():
    plan = chain((64, 256, 128, 512, 64))
    phases = [phase for step in plan.steps for phase in step.phases]
    parts = defaultdict(list)
    for i, phase in enumerate(phases):
        for ref in phase.ahead:
            constant = plan.constants[ref.base - plan.constant_base]
            assert ref.offset >= 0 and ref.offset + ref.nbytes <= constant.nbytes
            readers = [j for j, p in enumerate(phases) if any(r.base == ref.base for r in p.refs)]
            assert i < min(readers)
            parts[ref.base].append((ref.offset, ref.offset + ref.nbytes))
    for ranges in parts.values():
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(ranges)), "once each"
    assert parts


def test_what_is_asked_for_survives_json():
    plan = chain((64, 256, 512))
    assert any(phase.ahead for step in plan.steps for phase in step.phases)
    assert Plan.from_json(plan.to_json()) == plan
