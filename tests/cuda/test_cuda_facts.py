"""What is told of a GPU and of code on it."""

import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cuda_programs as made
from cuda_programs import chain_program, info, opened
from test_cuda_driver import api  # noqa: F401 - a fixture

from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.device import CUDA
from saccade.backends.cuda.runtime import facts
from saccade.backends.cuda.runtime.bindings import BoundDriver
from saccade.backends.cuda.runtime.driver import FunctionFacts, Multiprocessor
from saccade.backends.cuda.runtime.facts import matrix_instructions, phase_facts, programs_by
from saccade.backends.cuda.runtime.graph import PhaseCode
from saccade.errors import DeviceError
from saccade.kernels.bind import Phase

HOPPER = Multiprocessor(65536, 228 << 10, 1 << 10, 2048, 32)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "most"),
    [
        (128, 168, 48 << 10, {"registers": 3, "shared": 4, "threads": 16, "programs": 32}),
        (256, 234, 145 << 10, {"registers": 1, "shared": 1, "threads": 8, "programs": 32}),
        (32, 16, 0, {"registers": 128, "shared": 228, "threads": 64, "programs": 32}),
        (32, 48, 1, {"registers": 40, "shared": 202, "threads": 64, "programs": 32}),
    ],
)
def test_programs_of_a_multiprocessor(threads, registers, shared, most):
    assert programs_by(HOPPER, threads, registers, shared) == most


def test_facts_of_a_phase():
    class Driver:
        facts = opened()[0].driver.facts

        def describe(self, function, threads, shared):
            assert (function, threads, shared) == (5, 256, 144 << 10)
            return FunctionFacts(168, 40, 1 << 10, 1)

    cubin = Cubin("kernel", b"no cubin", (), 8, 144 << 10)
    phase = Phase(made.PlainConfig("any"), (), {}, 264)
    assert phase_facts(Driver(), PhaseCode(0, phase, cubin, 5)) == {
        "programs": 264, "warps": 8, "registers": 168, "shared": 145 << 10, "spilled": 40,
        "resident": 1, "limit": "registers", "occupancy": 0.125, "matrix": "",
    }  # fmt: skip


def test_facts_stand_in_profiles_beside_their_phases():
    device, arrays = opened()
    program = chain_program(device, 64, links=3)
    x = arrays.take(info(), np.ones(64, np.float32))
    readings, told = program.profile([x], 2), program.facts()
    assert len(told) == 3 and told[0]["registers"] == 96 and told[0]["resident"] == 5
    assert [list(one) for one in told] == [list(told[0])] * 3
    assert len(readings) == len(told)
    device.driver.lose()
    with pytest.raises(DeviceError, match="was lost"):
        program.facts()


def test_phases_without_chunks_have_none():
    device, _ = opened()
    assert chain_program(device, 0).facts() == [{}, {}]


def test_the_driver_is_asked(api, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(facts, "_KERNEL_MODULE", tmp_path / "version")
    api.says |= {
        "cuFuncGetAttribute": (0, 33), "cuOccupancyMaxActiveBlocksPerMultiprocessor": (0, 4),
        "cuDriverGetVersion": (0, 13020),
    }  # fmt: skip
    api.CUfunction_attribute, api.CUfunction = api.CUdevice_attribute, int
    driver = BoundDriver(0)
    assert driver.describe(7, 128, 0) == FunctionFacts(33, 33, 33, 4)
    assert CUDA.facts() == {
        "gpu": "NVIDIA H200", "gpu_arch": "sm_90", "gpu_multiprocessors": "132",
        "gpu_memory_bytes": "5000", "cuda": "13.2",
    }  # fmt: skip
    (tmp_path / "version").write_text("580.1\n")
    assert CUDA.facts()["gpu_driver"] == "580.1"
    api.says["cuFuncGetAttribute"] = 400, 0
    with pytest.raises(DeviceError, match="cuFuncGetAttribute says CUDA_ERROR_INVALID_HANDLE"):
        driver.describe(7, 128, 0)


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x02", b"\x7fELF\x01" + bytes(200), b".version 7"])
def test_what_is_no_cubin_has_no_instructions(code):
    assert matrix_instructions(code) == {}


def test_a_clock_on_a_thread_of_its_own():
    device, arrays = opened()
    found = []
    thread = Thread(target=lambda: found.append(arrays.clock(lambda: None, 1)))
    thread.start()
    thread.join()
    assert len(found) == 1 and device.driver.counts["make_stream"] == 1


def test_a_clock_waits_for_the_last_call_alone():
    device, arrays = opened()
    program = chain_program(device, 64)
    x = arrays.take(info(), np.ones(64, np.float32))
    program.run([x])
    device.driver.counts.clear()
    assert arrays.clock(lambda: program.run([x]), 5) > 0
    assert device.driver.counts["launch_graph"] == 5
    assert device.driver.counts["wait_stream"] == 1
    assert device.driver.counts["free_event"] == 2
    device.driver.lose()
    with pytest.raises(DeviceError, match="was lost"):
        arrays.clock(lambda: program.run([x]), 5)
