"""Measured speeds: taken, kept, corrected, checked; nominal ones where there are none."""

import json
from dataclasses import astuple, replace

import pytest

from saccade.codegen.target import host_target
from saccade.errors import CompileError
from saccade.kernels.machine import nominal
from saccade.options import Options
from saccade.processes import Processes
from saccade.runtime.cpu import speeds as module
from saccade.runtime.cpu.backend import CpuBackend
from saccade.runtime.cpu.speeds import Record, Speeds, keep_speeds, kept_speeds, measure_speeds


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


def test_the_best_of_all_rounds_counts(monkeypatch):
    target = host_target()
    usual = nominal(target).rounded()
    rounds = iter([replace(usual, flops=usual.flops / 4), replace(usual, step=4 * usual.step)])
    monkeypatch.setattr(module, "_look_at_all", lambda *_: next(rounds))
    monkeypatch.setattr("saccade.runtime.cpu.peaks.Peaks", lambda *_: None)
    assert measure_speeds(target) == usual and next(rounds, None) is None


class Planted(Processes):
    """Measurements in place of a child's, one for each start."""

    def __init__(self, *found, started=False):
        super().__init__()
        self.left, self._children = list(found), started

    @property
    def started(self):
        return self._children

    def start(self, function, argument):
        assert function is measure_speeds and argument == host_target()
        found = self.left.pop(0)
        return lambda: found


class Broken(Planted):
    def start(self, function, argument):
        def finish():
            raise CompileError("the process died")

        return finish


def test_speeds_are_measured_once_and_kept(tmp_path, monkeypatch):
    target = host_target()
    first = Speeds(target, Planted(nominal(target))).get()
    assert first == nominal(target)
    assert Speeds(target, Planted()).get() == first
    assert json.loads(record(tmp_path).read_text())["isa"] == target.isa
    monkeypatch.setattr(module, "_VERSION", 0)
    assert kept_speeds(target) is None


def test_a_record_from_a_loud_moment_is_corrected():
    target = host_target()
    quiet = nominal(target)
    loud = replace(quiet, bandwidth=quiet.bandwidth / 6, step=3 * quiet.step)
    assert Speeds(target, Planted(loud)).get() == loud
    assert Speeds(target, Planted(quiet, started=True)).get() == quiet == kept_speeds(target).speeds
    # What is measured in a loud moment later is worth nothing.
    assert Speeds(target, Planted(loud, started=True)).get() == quiet == kept_speeds(target).speeds


def test_noise_corrects_nothing():
    target = host_target()
    usual = nominal(target)
    Speeds(target, Planted(usual)).get()
    better = replace(usual, flops=1.2 * usual.flops, bandwidth=1.24 * usual.bandwidth)
    assert Speeds(target, Planted(better, started=True)).get() == usual
    assert kept_speeds(target) == Record(usual, 2)


def test_a_few_starts_measure_and_no_more():
    target = host_target()
    usual = nominal(target)
    for starts in (1, 2, 3):
        Speeds(target, Planted(usual, started=True)).get()
        assert kept_speeds(target).starts == starts
    faster = Planted(replace(usual, flops=2 * usual.flops), started=True)
    assert Speeds(target, faster).get() == usual and faster.left


def test_one_start_has_one_set_of_speeds():
    target = host_target()
    usual = nominal(target)
    faster = replace(usual, bandwidth=2 * usual.bandwidth)
    speeds = Speeds(target, Planted(usual))
    assert speeds.get() == usual
    Speeds(target, Planted(faster, started=True)).get()
    assert speeds.get() == usual and kept_speeds(target).speeds == faster


def test_where_measuring_again_fails_kept_speeds_stand():
    target = host_target()
    kept = Record(nominal(target), 1)
    keep_speeds(target, kept)
    assert Speeds(target, Broken(started=True)).get() == kept.speeds
    assert kept_speeds(target) == kept


def test_a_backend_uses_what_was_kept(tmp_path):
    target = host_target()
    found = nominal(target).rounded()
    keep_speeds(target, Record(found, 1))
    device = CpuBackend(Options.make(), Processes())
    assert device.target.speeds == astuple(found)
    assert CpuBackend(Options.make(cache=False), Processes()).target.speeds is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"flops": "x"}', "null", '"starts"'])
def test_a_record_that_makes_no_sense_is_dropped(tmp_path, text):
    target = host_target()
    keep_speeds(target, Record(nominal(target), 1))
    assert kept_speeds(target) is not None
    record(tmp_path).write_text(text)
    assert kept_speeds(target) is None


def test_absurd_speeds_are_dropped(tmp_path):
    target = host_target()
    keep_speeds(target, Record(nominal(target), 1))
    path = record(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bandwidth": 1e12}))
    assert kept_speeds(target) is None


def test_where_measuring_fails_speeds_are_nominal(tmp_path):
    assert Speeds(host_target(), Broken()).get() is None
    assert not list((tmp_path / "machine").glob("*.json"))
