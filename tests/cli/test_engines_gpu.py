"""Engines on a device: what is timed, how their peers are set, and what they say without a GPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))
import cuda_programs as made
from fake_engine import save_model

import saccade
from saccade import devices
from saccade.backends.host_arrays import HostArrays
from saccade.cli import _engines
from saccade.cli._engines import EngineSpec, SaccadeEngine
from saccade.cli._signature import MOST_SETS, input_sets
from saccade.errors import OptionError
from saccade.signature import TensorInfo

SHAPE = (1, 3, 4, 4)
FEEDS = {"input": np.linspace(-1, 1, 48, dtype=np.float32).reshape(SHAPE)}


def spec(path, engine, **more):
    return EngineSpec(engine, str(path), {"input": SHAPE}, {"N": 1, "H": 4, "W": 4}, **more)


def test_sets_of_inputs_are_unlike_each_other():
    sets = input_sets(FEEDS, 20)
    assert len(sets) == MOST_SETS and sets[0] is FEEDS
    assert {one["input"].shape for one in sets} == {SHAPE}
    assert {one["input"].dtype for one in sets} == {np.dtype(np.float32)}
    firsts = [float(one["input"].ravel()[0]) for one in sets]
    assert len(set(firsts)) == MOST_SETS
    assert [float(one["input"].ravel()[0]) for one in input_sets(FEEDS, 20)] == firsts
    assert input_sets(FEEDS, 1) == [FEEDS]


class Chain:
    """A model of one program, as `saccade.compile` gives."""

    def __init__(self, arrays, program):
        self.inputs = (TensorInfo("x", "float32", (64,)),)
        self._arrays, self._program = arrays, program
        self.addresses = []

    def run(self, inputs):
        taken = [self._arrays.take(self.inputs[0], inputs["x"])]
        self.addresses.append(taken[0].address)
        return dict(enumerate(self._arrays.give(self._program.run(taken), inputs.values())))


def opened(monkeypatch, arrays, model, team):
    def compiled(path, *, threads, **options):
        assert threads == (None if team else 3), "programs of a grid are no threads of a team"
        return model

    monkeypatch.setattr(saccade, "compile", compiled, raising=False)
    device = SimpleNamespace(arrays=arrays, team=lambda machine: team)
    monkeypatch.setattr(devices, "device_named", lambda name: device)
    return SaccadeEngine(EngineSpec("saccade", "m.onnx", {"x": (64,)}, threads=3))


def test_ours_is_timed_on_arrays_that_are_on_the_gpu(monkeypatch):
    device, arrays = made.opened()
    model = Chain(arrays, made.chain_program(device, 64))
    engine = opened(monkeypatch, arrays, model, 1)
    x = {"x": np.ones(64, np.float32)}
    watch = engine.stopwatch(x)
    uploads = device.driver.counts["upload"]
    assert watch() > 0
    assert len(model.addresses) == arrays.queued
    assert len(set(model.addresses)) == MOST_SETS
    assert device.driver.counts["upload"] == uploads and not device.driver.counts["download"]
    (result,) = engine.run(x)
    np.testing.assert_array_equal(result, made.chained(x["x"]))


def test_on_the_host_a_call_is_timed_by_itself(monkeypatch):
    class Doubling:
        inputs = (TensorInfo("x", "float32", (64,)),)
        runs = 0

        def run(self, inputs):
            self.runs += 1
            assert inputs["x"] is x["x"]
            return {"y": inputs["x"] * 2}

    x, model = {"x": np.ones(64, np.float32)}, Doubling()
    watch = opened(monkeypatch, HostArrays(), model, None).stopwatch(x)
    assert watch() > 0 and watch() > 0 and model.runs == 2


def test_torch_gives_the_answers_of_the_file(tmp_path):
    pytest.importorskip("torch")
    path = save_model(tmp_path / "m.onnx")
    for precision in ("fp32", "fp64", "bf16"):
        engine = _engines.open_engine(spec(path, f"torch:{precision}"))
        (y,) = engine.run(FEEDS)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, np.maximum(-FEEDS["input"], 0), rtol=1e-2)
        assert engine.stopwatch(FEEDS)() > 0
        assert engine.version and engine.work({}) == {}


def test_inductor_is_set_as_for_latency(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    settings = importlib.import_module("torch._inductor.config")
    asked = []

    def compiled(module, **options):
        asked.append(options)
        return module

    monkeypatch.setattr(torch, "compile", compiled)
    path = save_model(tmp_path / "m.onnx")
    # Not `monkeypatch.setattr`: the settings are no attributes, and undoing would delete one.
    with settings.patch(freezing=False):
        engine = _engines.open_engine(spec(path, "inductor"))
        assert settings.freezing
    assert asked == [{"mode": "reduce-overhead", "dynamic": False}]
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    np.testing.assert_array_equal(engine.run(FEEDS)[0], np.maximum(-FEEDS["input"], 0))
    (placed,) = engine._placed(FEEDS)
    assert placed.is_contiguous(memory_format=torch.channels_last)


def test_a_burst_on_a_gpu_lies_between_two_events(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 20.0

    engine = _engines.open_engine(spec(save_model(tmp_path / "m.onnx"), "torch"))
    engine._device, engine._queued = SimpleNamespace(type="cuda"), 20
    engine._placed = lambda inputs: [inputs]
    engine._module = lambda inputs: log.append(id(inputs))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert engine.stopwatch(FEEDS)() == 1.0
    assert log[0] == "record" and log[-2:] == ["record", "wait"]
    assert len(log) == 23 and len(set(log[1:-2])) == MOST_SETS


def test_peers_that_are_not_there_say_so_in_a_line(tmp_path, monkeypatch):
    path = save_model(tmp_path / "m.onnx")
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for engine in ("inductor", "torch"):
        with pytest.raises(OptionError, match=r"PyTorch [\w.+]+ sees no GPU"):
            _engines.open_engine(spec(path, engine, device="cuda"))
    with pytest.raises(OptionError, match="no setting for precision 'int8'"):
        _engines.open_engine(spec(path, "inductor", precision="int8"))
    with pytest.raises(OptionError, match="cpu and cuda only, not on 'reference'"):
        _engines.open_engine(spec(path, "torch", device="reference"))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        OptionError, match=r"torch is not installed: pip install 'saccade\[torch\]'"
    ):
        _engines.import_engine("inductor")


class Value:
    """`onnxruntime.OrtValue`."""

    def __init__(self, array):
        self.array = array

    @classmethod
    def ortvalue_from_numpy(cls, array, kind, number):
        assert (kind, number) == ("cuda", 0)
        return cls(array.copy())

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape, dtype, kind, number):
        return cls(np.zeros(shape, dtype))

    def numpy(self):
        return self.array


class Binding:
    def __init__(self):
        self.inputs, self.outputs, self.waits = {}, {}, 0

    def bind_ortvalue_input(self, name, value):
        self.inputs[name] = value

    def bind_ortvalue_output(self, name, value):
        self.outputs[name] = value

    def synchronize_outputs(self):
        self.waits += 1

    def get_outputs(self):
        return list(self.outputs.values())


class Session:
    """`onnxruntime.InferenceSession`: computes relu(-x), and remembers how it was asked."""

    made = None

    def __init__(self, model, options, providers):
        self.model, self.options, self.providers = model, options, providers
        self.runs, self.bindings = [], []
        Session.made = self

    def disable_fallback(self):
        self.alone = True

    def io_binding(self):
        self.bindings.append(Binding())
        return self.bindings[-1]

    def get_inputs(self):
        return [SimpleNamespace(name="input", type="tensor(float16)", shape=list(SHAPE))]

    def get_outputs(self):
        return [SimpleNamespace(name="output", type="tensor(float)", shape=list(SHAPE))]

    def run_with_iobinding(self, binding, how):
        self.runs.append(how.entries)
        x = binding.inputs["input"].array
        assert x.dtype == np.float16
        binding.outputs["output"].array[:] = np.maximum(-x, 0)


class HowToRun:
    def __init__(self):
        self.entries = {}

    def add_run_config_entry(self, name, value):
        self.entries[name] = value


@pytest.fixture
def onnxruntime(monkeypatch):
    class Options:
        def __init__(self):
            self.sizes = {}

        def add_free_dimension_override_by_name(self, name, size):
            self.sizes[name] = size

    package = ModuleType("onnxruntime")
    package.__version__ = "9.9"
    package.get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    package.SessionOptions, package.RunOptions = Options, HowToRun
    package.InferenceSession, package.OrtValue = Session, Value
    package.GraphOptimizationLevel = SimpleNamespace(ORT_ENABLE_ALL=99)
    monkeypatch.setitem(sys.modules, "onnxruntime", package)
    return package


def test_onnxruntime_launches_a_graph_for_each_set(onnxruntime, model_file):
    engine = _engines.open_engine(spec(model_file, "onnxruntime", device="cuda", precision="tf32"))
    session = Session.made
    assert session.providers == [
        ("CUDAExecutionProvider", {"enable_cuda_graph": "1", "use_tf32": "1"})
    ]
    assert session.options.sizes == {"N": 1, "H": 4, "W": 4} and session.alone
    half = FEEDS["input"].astype(np.float16)
    (y,) = engine.run(FEEDS)
    np.testing.assert_array_equal(y, np.maximum(-half, 0))
    assert y.dtype == np.float32
    session.runs.clear()
    watch = engine.stopwatch(FEEDS)
    recorded = [entries["gpu_graph_id"] for entries in session.runs]
    assert len(set(recorded)) == MOST_SETS
    session.runs.clear()
    assert watch() > 0
    assert [entries["gpu_graph_id"] for entries in session.runs] == recorded * 5
    assert {e["disable_synchronize_execution_providers"] for e in session.runs} == {"1"}


def test_onnxruntime_without_its_cuda_provider(onnxruntime):
    onnxruntime.get_available_providers = lambda: ["CPUExecutionProvider"]
    with pytest.raises(OptionError, match=r"onnxruntime 9\.9 has no CUDA provider: pip install"):
        _engines.open_engine(spec("m.onnx", "onnxruntime", device="cuda"))
    onnxruntime.get_available_providers = lambda: ["CUDAExecutionProvider"]
    with pytest.raises(OptionError, match="no setting for precision 'bf16'"):
        _engines.open_engine(spec("m.onnx", "onnxruntime", device="cuda", precision="bf16"))
