"""Timing and tuning on a real GPU.

Skipped where there is none; run alone, as `python -m pytest tests/cuda/test_cuda_gpu_tuning.py`.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import triton_version
from saccade.backends.cuda.measuring import MeasuringProcess
from saccade.backends.cuda.runtime.bindings import devices
from saccade.backends.cuda.runtime.gauge import Contest, Region
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.processes import Processes

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "runtime"))
from runtime_models import convolutions
from test_cuda_gpu_runtime import code_of

pytestmark = pytest.mark.gpu

N = 1 << 20


@pytest.fixture
def process():
    processes = Processes()
    found = MeasuringProcess(processes)
    yield found
    found.close()
    processes.close()


def variant(code, n, chunks=132):
    arguments = tuple(
        Argument(name, Role.INPUT, Ref(i, 0, 4 * N)) for i, name in enumerate(("x", "w", "y"))
    )
    return ((Phase(None, arguments, {"n": n}, chunks), code),)


def contest(*variants):
    regions = (Region(4 * N, noise="float32"),) * 2 + (Region(4 * N, read=False),)
    return Contest(regions, variants, 7, 100 << 20, 16)


def test_more_work_takes_longer_and_turns_agree(process):
    code = code_of()
    found = process.times(contest(variant(code, N), variant(code, N // 8), variant(code, N)))
    whole, part, again = np.median(found.micros, axis=1)
    assert 1 < part < whole < 1000
    assert 0.8 < whole / again < 1.25


def test_launches_that_wait_by_themselves(process):
    if devices()[0].arch < 90:
        pytest.skip("launches cannot wait by themselves")
    found = process.times(contest(variant(code_of(waits=True), N), variant(code_of(), N)))
    assert (found.micros > 0).all()


def test_what_breaks_its_process_does_not_break_this_one(process):
    good = contest(variant(code_of(), N))
    wild = contest(variant(code_of(), 1 << 30))  # reads where nothing is
    assert process.times(good).micros is not None
    lost = process.times(wild)
    assert lost.micros is None and lost.lost and "was lost" in lost.reason
    refused = contest(variant(Cubin("f", b"no code", ("x", "w", "y", "n"), 4, 0), N))
    found = process.times(refused)
    assert found.micros is None and not found.lost
    huge = Contest((Region(1 << 50),) * 3, good.variants, 1, 0, 1)
    assert "bytes of memory free" in process.times(huge).reason
    assert process.times(good).micros is not None


@pytest.mark.skipif(not triton_version(), reason="there is no Triton")
def test_a_network_is_tuned_and_still_right(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions(16).SerializeToString())
    x = np.random.default_rng(0).standard_normal((8, 3, 64, 64)).astype(np.float32)
    truth = saccade.compile(path)(x)
    model, told = saccade.compile(path, device="cuda", precision="fp16"), []
    outcome = model.tune(x, report=told.append)
    assert outcome.failures == () and outcome.measured > 10 and told
    assert np.linalg.norm(model(x) - truth) / np.linalg.norm(truth) < 5e-3
    again = saccade.compile(path, device="cuda", precision="fp16")
    assert again.plan(x.shape) == model.plan(x.shape)
    assert again.tune(x).measured == 0
