"""Measured speeds, which profiles are held against and no choice depends on."""

from dataclasses import astuple

import pytest

from saccade.backends.cpu.runtime.speeds import measured_speeds
from saccade.backends.cpu.target import host_target
from saccade.kernels.cpu.machine import machine

WIDTHS = ["native", "avx2"]


@pytest.mark.parametrize("isa", WIDTHS)
def test_a_measurement_is_plausible_for_every_width_of_vectors(isa):
    target = host_target(isa)
    found, usual = measured_speeds(target), machine(target)
    assert found.name == "" and found.cache == target.l3
    *rates, step = zip(astuple(found)[:5], astuple(usual)[:5], strict=True)
    for speed, nominal in rates:
        assert nominal / 64 < speed < nominal * 64
    # Where other processes have the cores, a barrier waits for the scheduler.
    assert step[1] / 64 < step[0] < 2e4, "microseconds"


def test_one_process_measures_once():
    assert measured_speeds(host_target()) is measured_speeds(host_target())
