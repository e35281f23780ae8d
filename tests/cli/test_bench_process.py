"""The worker's side in this process, and one real engine in a process of its own."""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import time
import types

import numpy as np
import onnx
import pytest

from saccade.cli import _bench_worker, _engines
from saccade.cli._bench_messages import Failure, Open, Opened, Round, RoundDone
from saccade.cli._bench_process import EngineProcess
from saccade.cli._engines import EngineSpec
from saccade.errors import OptionError, SaccadeError, UnsupportedModelError

FEEDS = {"input": np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)}


def spec(path, engine="onnxruntime", **more):
    shapes = {"input": (1, 3, 4, 4)}
    return EngineSpec(engine, str(path), shapes, {"N": 1, "H": 4, "W": 4}, **more)


class Doubling:
    version = "1.0"

    def __init__(self, spec):
        self.watches = []
        self.buffer = np.zeros(4)
        self.runs = 0

    def run(self, inputs):
        self.runs += 1
        self.buffer[:] = inputs["x"] * 2 + (self.runs - 1)
        return [self.buffer]

    def stopwatch(self, inputs):
        def timed():
            start = time.perf_counter()
            self.run(inputs)
            return (time.perf_counter() - start) * 1e3

        self.watches = [*self.watches, timed]
        assert len(self.watches) == 1, "what is timed is put in place once"
        return timed

    def work(self, shapes):
        return {"flops": 8}


def ask(monkeypatch, *requests, engine=Doubling):
    monkeypatch.setitem(_engines.ENGINES, "fake", engine)
    monkeypatch.setitem(sys.modules, "fake", types.ModuleType("fake"))
    replies = io.BytesIO()
    _bench_worker.serve(io.BytesIO(b"".join(map(pickle.dumps, requests))), replies)
    replies.seek(0)
    return [pickle.load(replies) for _ in requests]


def opening():
    return Open(EngineSpec("fake", "m.onnx", {"x": (4,)}), {"x": np.arange(4.0)})


def test_the_worker_answers_each_request(monkeypatch):
    opened, done, again = ask(monkeypatch, opening(), Round(0.0), Round(0.0))
    assert isinstance(again, RoundDone)
    assert isinstance(opened, Opened)
    assert opened.version == "1.0"
    assert opened.work == {"flops": 8}
    assert 0 < opened.load_s <= opened.first_answer_s
    # The first answer, although the engine wrote the next ones into the same memory.
    np.testing.assert_array_equal(opened.outputs[0], [0, 2, 4, 6])
    assert isinstance(done, RoundDone)
    assert len(done.times_ms) == _bench_worker.LEAST_RUNS
    assert done.peak_rss_bytes > 1 << 20


def test_a_round_lasts_as_long_as_asked(monkeypatch):
    _, done = ask(monkeypatch, opening(), Round(0.05))
    assert sum(done.times_ms) <= done.wall_s * 1e3 + 1e-6
    assert len(done.times_ms) > _bench_worker.LEAST_RUNS


def test_concurrent_callers_all_report(monkeypatch):
    _, done = ask(monkeypatch, opening(), Round(0.0, callers=4))
    assert len(done.times_ms) == 4 * _bench_worker.LEAST_RUNS


def test_an_engine_that_raises_is_reported_and_the_worker_lives_on(monkeypatch):
    class Broken(Doubling):
        def run(self, inputs):
            if self.runs == 1:
                self.runs = 2
                raise RuntimeError("no memory")
            return super().run(inputs)

    opened, failure, done = ask(monkeypatch, opening(), Round(0.0), Round(0.0), engine=Broken)
    assert isinstance(opened, Opened)
    assert failure == Failure("RuntimeError: no memory")
    assert isinstance(done, RoundDone)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(_engines.ENGINES, "absent_engine", Doubling)
    with pytest.raises(OptionError, match=r"pip install 'saccade\[absent_engine\]'"):
        _engines.import_engine("absent_engine")


def test_a_broken_installation_is_not_an_absent_one(monkeypatch, tmp_path):
    (tmp_path / "broken_engine.py").write_text("import absent_part")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(_engines.ENGINES, "broken_engine", Doubling)
    with pytest.raises(ModuleNotFoundError, match="absent_part"):
        _engines.import_engine("broken_engine")


def test_peers_refuse_what_they_cannot_do():
    with pytest.raises(OptionError, match="no setting for precision 'bf16'"):
        _engines.open_engine(spec("m.onnx", precision="bf16"))
    with pytest.raises(OptionError, match="on the cpu only, not on 'cuda'"):
        _engines.OpenVINOEngine(spec("m.onnx", engine="openvino", device="cuda"))
    with pytest.raises(OptionError, match="'tvm' is not one of saccade, onnxruntime, openvino"):
        _engines.open_engine(spec("m.onnx", engine="tvm"))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_real_engine_in_its_own_process(model_file, engine):
    pytest.importorskip(engine)
    core = min(os.sched_getaffinity(0))
    with EngineProcess(spec(model_file, engine)) as process:
        opened = process.open(FEEDS, (core,))
        (output,) = opened.outputs
        np.testing.assert_array_equal(output, np.maximum(-FEEDS["input"], 0))
        assert os.sched_getaffinity(process.pid) == {core}
        process.wait_idle()
        done = process.round(0.0)
        assert len(done.times_ms) >= _bench_worker.LEAST_RUNS
        assert process.peak_rss_bytes >= opened.peak_rss_bytes > 10 << 20
        pid = process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_model_that_the_engine_refuses_raises_here(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    with (
        EngineProcess(spec(tmp_path / "broken.onnx")) as process,
        pytest.raises(SaccadeError, match=r"^onnxruntime: \w+: .*broken\.onnx"),
    ):
        process.open(FEEDS, ())


def test_what_our_own_engine_refuses_is_raised_as_it_is(model_file, tmp_path):
    own = spec(model_file, "saccade", precision="fp16")
    with EngineProcess(own) as process, pytest.raises(OptionError, match=r"^precision='fp16' is"):
        process.open(FEEDS, ())
    model = onnx.load(model_file)
    model.graph.node[0].op_type = "NoSuch"
    onnx.save(model, tmp_path / "other.onnx")
    other = spec(tmp_path / "other.onnx", "saccade")
    with EngineProcess(other) as process, pytest.raises(UnsupportedModelError) as raised:
        process.open(FEEDS, ())
    assert [row.operator for row in raised.value.rows] == ["NoSuch"]


def test_and_a_peer_is_named_once(model_file):
    pytest.importorskip("onnxruntime")
    with (
        EngineProcess(spec(model_file, "onnxruntime", precision="bf16")) as process,
        pytest.raises(OptionError, match=r"^onnxruntime has no setting for"),
    ):
        process.open(FEEDS, ())


def test_a_process_that_dies_is_an_error_and_not_a_hang(model_file):
    with EngineProcess(spec(model_file)) as process:
        os.kill(process.pid, 9)
        with pytest.raises(SaccadeError, match="ended with status -9"):
            process.open(FEEDS, ())


def test_ctrl_c_of_a_terminal_does_not_reach_it(model_file):
    with EngineProcess(spec(model_file)) as process:
        os.kill(process.pid, signal.SIGINT)  # while it still imports
        opened = process.open(FEEDS, ())
        os.kill(process.pid, signal.SIGINT)
        assert len(opened.outputs) == 1 and process.round(0.0).times_ms


def test_but_an_interrupt_here_ends_it_at_once(model_file):
    with pytest.raises(KeyboardInterrupt), EngineProcess(spec(model_file)) as process:
        os.kill(process.pid, signal.SIGSTOP)  # whatever it does
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_wait_idle_refuses_an_engine_that_never_rests(model_file, monkeypatch):
    monkeypatch.setattr("saccade.cli._bench_process.IDLE_LIMIT_SECONDS", 0.0)
    monkeypatch.setattr("saccade.cli._bench_process._runs", lambda pid: True)
    with (
        EngineProcess(spec(model_file)) as process,
        pytest.raises(SaccadeError, match="still uses the processor"),
    ):
        process.wait_idle()
