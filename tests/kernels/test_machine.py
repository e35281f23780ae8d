"""Speeds that estimates divide by."""

from dataclasses import replace

import pytest

from saccade.codegen.target import Target
from saccade.kernels.machine import Machine, machine, nominal

TARGET = Target("avx512", 512, 32, "", "", "")


def test_a_target_is_as_fast_as_was_measured():
    assert machine(TARGET) == nominal(TARGET)
    speeds = (1e5, 2e5, 2e4, 5e4, 2.0, 2.0**25)
    assert machine(replace(TARGET, speeds=speeds)) == Machine(*speeds)


def test_code_does_not_depend_on_speeds():
    measured = replace(TARGET, speeds=(1e5, 2e5, 2e4, 5e4, 2.0, 2.0**25))
    assert repr(measured) == repr(TARGET) and measured != TARGET


def test_traffic_comes_from_the_cache_until_it_does_not_fit():
    m = Machine(1e5, 2e5, 2e4, 5e4, 1.0, 2.0**24)
    assert m.traffic(2.0**20, 2) == 2.0**20 / 1e5
    assert m.traffic(0.0, 2) == 0
    assert m.traffic(2.0**30, 2) == pytest.approx(2.0**30 / 2e4, rel=0.02)
    times = [m.traffic(2.0**24 * share, 2) for share in (0.4, 0.5, 0.8, 1.2, 1.5, 2.0)]
    assert times == sorted(times)


def test_noise_is_rounded_away():
    m = Machine(1.17e5, 2.34e5, 3.1e4, 9.1e4, 1.02, 2.0**25)
    again = Machine(1.172e5, 2.344e5, 3.11e4, 9.12e4, 1.021, 2.0**25)
    assert m.rounded() == again.rounded()
    assert m.rounded().flops == pytest.approx(m.flops, rel=0.05)


def test_the_better_of_two_measurements_counts():
    one = Machine(1e5, 2e5, 2e4, 9e4, 2.0, 2.0**25)
    other = Machine(1.2e5, 2.4e5, 1e4, 9e4, 1.0, 2.0**25)
    best = Machine(1.2e5, 2.4e5, 2e4, 9e4, 1.0, 2.0**25)
    assert one.improved(other) == other.improved(one) == best
    assert one.improved(other, 1.25) == replace(one, step=1.0)
    assert other.improved(one, 2.5) == other


def test_what_makes_no_sense_is_not_plausible():
    usual = nominal(TARGET)
    assert usual.plausible(usual) and replace(usual, flops=usual.flops / 3).plausible(usual)
    for wrong in (0.0, -1.0, float("inf"), float("nan"), 1e9):
        assert not replace(usual, bandwidth=wrong).plausible(usual)
