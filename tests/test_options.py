"""What options may be, and that anything else is one clear error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade import Limits, Options
from saccade.backends.cpu.machines import MACHINES
from saccade.devices import DEVICES
from saccade.errors import ModelError, OptionError, SaccadeError
from saccade.options import MOST_THREADS, Precision


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"exact": "no"}, "exact='no' must be True or False"),
        ({"exact": 1}, "exact=1 must be True or False"),
        ({"checked": "x"}, "checked='x' must be True or False"),
        ({"cache": "x"}, "cache='x' must be True or False"),
        ({"cache": None}, "cache=None must be True or False"),
        ({"isa": 512}, "isa=512 must be a string"),
        ({"limits": {}}, "limits={} must be Limits"),
        ({"algorithms": 5}, "algorithms=5 must be the path of a file"),
        ({"algorithms": b"a"}, "algorithms=b'a' must be the path of a file"),
        ({"algorithms": "a\0b"}, "must be the path of a file"),
        ({"algorithms": "a\ud800"}, "must be the path of a file"),
        ({"threads": True}, "threads=True must be an integer from 1 to 1024"),
        ({"threads": 2.0}, "threads=2.0 must be"),
        ({"threads": "2"}, "threads='2' must be"),
        ({"threads": 0}, "threads=0 must be"),
        ({"threads": np.bool_(True)}, "must be an integer"),
        ({"threads": MOST_THREADS + 1}, "must be an integer"),
        ({"threads": np.array([2, 3])}, "must be an integer"),
        ({"precision": "fp64"}, "precision='fp64' is not one of fp32, bf16"),
        ({"precision": ["fp32"]}, "is not one of fp32, bf16"),
        ({"device": "gpu"}, "device='gpu' is not one of"),
        ({"device": ["cpu"]}, "is not one of"),
        ({"thread": 1}, "there is no option 'thread' (is threads meant?); there are device"),
        ({"turbo": 1}, "there is no option 'turbo'; there are device, precision, threads, exact"),
        ({"resolved_threads": 1}, "there is no option 'resolved_threads'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, says):
    with pytest.raises(OptionError, match=r"(?s)^.*$") as caught:
        saccade.compile(b"", **given)
    assert says in str(caught.value)


@pytest.mark.parametrize("width", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_any_integer_is_a_number_of_threads(width):
    options = Options.make(threads=width)
    assert options.threads == options.resolved_threads == 2
    assert type(options.threads) is int


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_machine_is_one_that_the_device_describes(device):
    assert Options(device, machine="zen4-64").resolved_threads == 64
    assert Options(device, machine="zen4-64", threads=3).resolved_threads == 3
    for other in ("pentium", "", 5, ["zen4"], {}):
        for threads in (None, 3):
            with pytest.raises(OptionError) as caught:
                Options(device, machine=other, threads=threads)
            assert str(caught.value) == f"machine={other!r} is not one of {', '.join(MACHINES)}"


def test_a_device_knows_its_own_machines_and_no_other(monkeypatch):
    monkeypatch.setitem(DEVICES, "made-up", f"{__name__}:{_MadeUp.__name__}")
    assert Options("made-up", machine="abacus").resolved_threads == 10
    with pytest.raises(OptionError, match="zen4 is no abacus"):
        Options("made-up", machine="zen4")
    with pytest.raises(OptionError, match="'bf16' is not one of fp32 on made-up"):
        Options.make("made-up", "bf16")


class _MadeUp:
    """As far as options ask."""

    precisions = ("fp32",)

    @staticmethod
    def team(machine):
        if machine != "abacus":
            raise OptionError(f"{machine} is no abacus")
        return 10


def test_options_import_no_machine_unless_one_is_named():
    code = "import sys, saccade.options as o; o.Options(); print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "saccade.backends.cpu.device" in found.stdout.split()
    assert "saccade.backends.cpu.machines" not in found.stdout.split()


def test_a_device_computes_in_its_own_precisions():
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        assert Options.make("cuda", precision).resolved_threads == 1
    for precision in ("tf32", "fp16"):
        with pytest.raises(OptionError, match=f"'{precision}' is not one of fp32, bf16 on cpu"):
            Options.make("cpu", precision)


def test_the_defaults():
    options = Options.make()
    assert options == Options() and options.limits == Limits()
    assert options.precision is Precision.FP32 and options.threads is None


@pytest.mark.parametrize("source", [None, 5, object(), [b"a"], {"path": "a"}])
def test_what_is_no_model_is_refused(source):
    with pytest.raises(ModelError, match="a model must be a path, bytes, ModelProto or onnx_ir"):
        saccade.compile(source)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("path", ["a\0b.onnx", "a\ud800b.onnx", "\0", ""])
def test_what_no_file_can_be_called_is_refused(path, cache):
    for source in (path, Path(path)):
        with pytest.raises(ModelError):
            saccade.compile(source, cache=cache)


@pytest.mark.parametrize("bound", Limits.__dataclass_fields__)
@pytest.mark.parametrize("value", [0, -1, True, "5", None, float("nan")])
def test_bounds_are_positive_numbers(bound, value):
    with pytest.raises(OptionError, match=f"Limits: {bound}="):
        Limits(**{bound: value})


def test_bounds_are_integers_but_for_seconds():
    assert Limits(seconds=0.5).seconds == 0.5
    with pytest.raises(SaccadeError, match=r"elements=0.5 must be an integer above 0"):
        Limits(elements=0.5)
