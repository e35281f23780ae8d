"""Gains are told from noise."""

import numpy as np
import pytest

from saccade.tuning.judge import judge

RNG = np.random.default_rng(5)


def readings(mean, rounds=21, noise=0.02):
    return mean * (1 + noise * RNG.standard_normal(rounds))


def test_a_clear_gain_is_one():
    verdict = judge(readings(100), readings(90))
    assert verdict.faster
    assert verdict.gain == pytest.approx(0.1, abs=0.03)
    assert (verdict.before, verdict.after) == pytest.approx((100, 90), rel=0.03)


@pytest.mark.parametrize("after", [100, 105, 99.9])
def test_equal_and_slower_are_not_faster(after):
    assert not judge(readings(100), readings(after)).faster


def test_equals_are_seldom_called_different():
    wrong = sum(judge(readings(100, 21, 0.1), readings(100, 21, 0.1)).faster for _ in range(1000))
    assert wrong <= 20  # of a chance of one in a hundred


def test_what_slows_both_down_does_not_matter():
    drift = np.linspace(1, 3, 21)
    assert judge(readings(100) * drift, readings(90) * drift).faster
    assert not judge(readings(100) * drift, readings(102) * drift).faster


def test_a_gain_has_to_be_worth_it():
    before, after = readings(100, noise=0.0005), readings(99.5, noise=0.0005)
    assert judge(before, after).faster
    assert not judge(before, after, least=0.01).faster


def test_few_turns_prove_nothing():
    assert not judge(np.full(5, 100.0), np.full(5, 50.0)).faster
    assert judge(np.full(7, 100.0), np.full(7, 50.0)).faster


def test_a_few_disturbed_turns_do_not_decide():
    before, after = readings(100), readings(90)
    after[:3] *= 20
    assert judge(before, after).faster


def test_steps_that_take_no_time_are_no_gain():
    assert not judge(np.zeros(9), np.zeros(9)).faster
