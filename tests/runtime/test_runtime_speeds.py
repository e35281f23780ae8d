"""Measured speeds: taken once, kept, checked; nominal ones where there are none."""

import json
from dataclasses import astuple

import pytest

from saccade.codegen.target import host_target
from saccade.errors import CompileError
from saccade.kernels.machine import nominal
from saccade.options import Options
from saccade.processes import Processes
from saccade.runtime.cpu import speeds as module
from saccade.runtime.cpu.backend import CpuBackend
from saccade.runtime.cpu.speeds import Speeds, keep_speeds, kept_speeds, measure_speeds


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))


def record(tmp_path):
    (path,) = (tmp_path / "machine").glob("*.json")
    return path


def test_a_measurement_is_plausible_for_every_width_of_vectors():
    for isa in ("native", "avx2"):
        target = host_target(isa)
        found = measure_speeds(target)
        assert found.plausible(nominal(target)) and found == found.rounded()
        assert found.cache == target.l3


def test_speeds_are_measured_once_and_kept(tmp_path, monkeypatch):
    target, asked = host_target(), []

    class Fake(Processes):
        def start(self, function, argument):
            asked.append(function)
            return lambda: nominal(argument)

    first = Speeds(target, Fake()).get()
    assert first == nominal(target) and asked == [measure_speeds]
    assert Speeds(target, Fake()).get() == first and len(asked) == 1
    assert json.loads(record(tmp_path).read_text())["isa"] == target.isa
    monkeypatch.setattr(module, "_VERSION", 0)
    assert kept_speeds(target) is None


def test_a_backend_uses_what_was_kept(tmp_path):
    target = host_target()
    found = nominal(target).rounded()
    keep_speeds(target, found)
    device = CpuBackend(Options.make(), Processes())
    assert device.target.speeds == astuple(found)
    assert CpuBackend(Options.make(cache=False), Processes()).target.speeds is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"flops": "x"}', "null"])
def test_a_record_that_makes_no_sense_is_dropped(tmp_path, text):
    target = host_target()
    keep_speeds(target, nominal(target))
    assert kept_speeds(target) is not None
    record(tmp_path).write_text(text)
    assert kept_speeds(target) is None


def test_absurd_speeds_are_dropped(tmp_path):
    target = host_target()
    keep_speeds(target, nominal(target))
    path = record(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bandwidth": 1e12}))
    assert kept_speeds(target) is None


def test_where_measuring_fails_speeds_are_nominal(tmp_path):
    class Broken(Processes):
        def start(self, function, argument):
            def finish():
                raise CompileError("the process died")

            return finish

    assert Speeds(host_target(), Broken()).get() is None
    assert not list((tmp_path / "machine").glob("*.json"))
