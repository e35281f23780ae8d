"""Tuned choices in plans: taken, shown, or refused with the reason."""

import dataclasses
import json

import pytest
from layout_graphs import backend
from tuning_fakes import MACHINE, network

from saccade import layout
from saccade import plan as planner
from saccade.opdefs import Conv2d
from saccade.plan.json import dump, load
from saccade.tuning import Algorithms, Bounds, Lookup, TunedCall
from saccade.tuning.candidates import candidates
from saccade.tuning.keys import call_key


def laid_with(timings=None, threads=2):
    return layout.assign(network(), {}, backend(threads), threads=threads, timings=timings)


def plan_with(timings, threads=2):
    return planner.make(network(), laid_with(timings, threads), {}, threads, "avx512")


@pytest.fixture(scope="module")
def untuned():
    return laid_with()


@pytest.fixture(scope="module")
def entries(untuned):
    """For every convolution, another variant than the untuned one."""
    found = {}
    for step in untuned.steps:
        if not isinstance(step.op, Conv2d):
            continue
        ways = candidates(step.call, backend().candidates(step.call.op), Bounds(within=9.0))
        other = next(w for w in ways if w.launches != step.launches)
        key = call_key(step.call)
        found.setdefault(
            key, TunedCall(step.name, key, other.kernel.name, other.id, other.rank, 12.5, 12.5, ())
        )
    return tuple(found.values())


def test_choices_are_taken_and_shown(untuned, entries):
    lookup = Lookup(Algorithms("cpu", MACHINE, entries), "cpu", MACHINE)
    laid = laid_with(lookup)
    assert laid.refused == ()
    for tuned, default in zip(laid.steps, untuned.steps, strict=True):
        convolution = isinstance(tuned.op, Conv2d)
        assert tuned.choice.measured == (12.5 if convolution else None)
        assert tuned.choice.cost == default.choice.cost
        assert (tuned.launches != default.launches) == convolution
    plan = plan_with(Lookup(Algorithms("cpu", MACHINE, entries), "cpu", MACHINE))
    assert str(plan).count("12.5*") == 4
    assert "(4 measured*)" in str(plan)
    assert sum(step["measured"] for step in json.loads(dump(plan))["steps"]) == 4
    assert load(dump(plan)) == plan


def test_without_choices_everything_is_estimated(untuned):
    assert all(s.choice.measured is None for s in untuned.steps)
    plan = plan_with(None)
    assert "*" not in str(plan)
    assert laid_with(Lookup(Algorithms("cpu", MACHINE, ()), "cpu", MACHINE)) == untuned


def test_choices_for_some_steps_leave_the_others(untuned, entries):
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, entries[:1]), "cpu", MACHINE))
    for tuned, default in zip(laid.steps, untuned.steps, strict=True):
        if call_key(tuned.call) == entries[0].call:
            assert tuned.choice.measured == 12.5
        else:
            assert tuned == default


def test_layouts_weigh_what_was_saved_and_not_measured_times(untuned, entries):
    """A measured time beside estimates would drive layouts away from what was measured."""
    slow = tuple(dataclasses.replace(e, micros=4e6, before=5e6) for e in entries)
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, slow), "cpu", MACHINE))
    for tuned, default in zip(laid.steps, untuned.steps, strict=True):
        if tuned.choice.measured is not None:
            assert tuned.choice.cost == pytest.approx(0.8 * default.choice.cost)


REFUSED = {
    "no such kernel": {"kernel": "conv2d.fast"},
    "not one filter for each channel": {"kernel": "conv2d.depthwise"},
    "has no variant 0000": {"variant": "0000"},
    "other sizes, storage or settings": {"call": "Conv2d(): something else"},
    "no such step": {"call": "Conv2d(): something else", "step": "gone"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_does_not_fit_is_refused_with_the_reason(untuned, entries, reason):
    bad = dataclasses.replace(entries[0], **REFUSED[reason])
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, (bad,)), "cpu", MACHINE))
    assert laid.steps == untuned.steps
    (refusal,) = laid.refused
    assert reason in refusal
    assert bad.step in refusal
    plan = plan_with(Lookup(Algorithms("cpu", MACHINE, (bad,)), "cpu", MACHINE))
    assert plan.refused == laid.refused
    assert f"tuned choice not taken: {refusal}" in str(plan)
    assert load(dump(plan)) == plan


def test_choices_of_another_machine_are_refused_together(untuned, entries):
    laid = laid_with(Lookup(Algorithms("cpu", {"cpu": "another"}, entries), "cpu", MACHINE))
    assert laid.steps == untuned.steps
    (refusal,) = laid.refused
    assert f"all {len(entries)} choices" in refusal
    assert "cpu another, here a made-up one" in refusal


@pytest.mark.parametrize("machine", [MACHINE, {}])
def test_choices_of_another_device_are_refused_together(untuned, entries, machine):
    laid = laid_with(Lookup(Algorithms("abacus", machine, entries), "cpu", MACHINE))
    assert laid.steps == untuned.steps
    several = f"all {len(entries)} choices"
    assert laid.refused == (f"{several}: measured on another device: abacus, here cpu",)
    assert laid_with(Lookup(Algorithms("cpu", MACHINE, entries), "cpu", MACHINE)).refused == ()


def test_another_number_of_threads_is_another_setting(entries):
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, entries), "cpu", MACHINE), threads=3)
    assert all(s.choice.measured is None for s in laid.steps)
    assert len(laid.refused) == len(entries)


def test_a_file_for_several_sizes_fits_each(entries):
    """Entries of a step for other calls are no fault while one of them fits."""
    elsewhere = [dataclasses.replace(e, call=f"{e.call} at another size") for e in entries]
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, (*elsewhere, *entries)), "cpu", MACHINE))
    assert laid.refused == ()


def test_what_tune_kept_for_other_sizes_is_no_refusal(untuned, entries):
    elsewhere = tuple(dataclasses.replace(e, call=f"{e.call} elsewhere") for e in entries)
    laid = laid_with(Lookup(Algorithms("cpu", MACHINE, elsewhere), "cpu", MACHINE, whole=False))
    assert laid == untuned
