"""What `BoundDriver` makes of return codes, over a stand-in for the bindings."""

import enum
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from saccade.backends.cuda.runtime import bindings
from saccade.backends.cuda.runtime.driver import KernelLaunch
from saccade.errors import DeviceError, OutOfMemoryError


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Attribute:
    """Any attribute of a device, as a number."""

    def __getattr__(self, name):
        return name


class StandIn(ModuleType):
    """`cuda.bindings.driver` with one GPU; `says` has statuses and results by call."""

    def __init__(self):
        super().__init__("cuda.bindings.driver")
        numbers = {"COMPUTE_CAPABILITY_MAJOR": 9, "MULTIPROCESSOR_COUNT": 132}
        self.CUdevice_attribute = Attribute()
        self.says = {
            "cuDeviceGetCount": (0, 1),
            "cuDeviceGetName": (0, b"NVIDIA H200\0\0"),
            "cuMemGetInfo": (0, 1000, 5000),
            "cuDeviceTotalMem": (0, 5000),
        }
        self.cuDeviceGetAttribute = lambda name, _: (
            Status(0),
            numbers.get(name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 0),
        )

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*_arguments):
            status, *results = self.says.get(name, (0, 7))
            return (Status(status), *results)

        return call


@pytest.fixture
def api(monkeypatch):
    made, package = StandIn(), ModuleType("cuda.bindings")
    package.driver, package.__version__ = made, "13.5.0"
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    bindings._api.cache_clear()
    yield made
    bindings._api.cache_clear()


def test_facts(api):
    (facts,) = bindings.devices()
    assert (facts.name, facts.arch, facts.multiprocessors) == ("NVIDIA H200", 90, 132)
    assert facts.memory == 5000 and not facts.virtual and facts.dlpack == (2, 0)


def test_out_of_memory_says_how_much_is_missing(api):
    driver = bindings.BoundDriver(0)
    api.says["cuMemAlloc"] = 2, 0
    message = "NVIDIA H200 has 1000 of its 5000 bytes .* 1600 more are needed: 600 are missing"
    with pytest.raises(OutOfMemoryError, match=message):
        driver.allocate(1600)
    assert driver.lost is None
    api.says["cuGraphCreate"] = 2, 0
    with pytest.raises(OutOfMemoryError, match="less than the driver needs"):
        driver.make_graph([], [])


def test_a_launch_comes_early_only_behind_a_single_one(api):
    """Edges of a graph: of code that waits by itself, where it waits for one launch alone."""
    added = []
    types = SimpleNamespace(
        CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC="early", CU_GRAPH_NODE_TYPE_KERNEL=0
    )
    api.CUgraphDependencyType = api.CUgraphNodeType = types
    api.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1
    api.CUgraphNodeParams = lambda: SimpleNamespace(kernel=SimpleNamespace())
    api.CUgraphEdgeData = lambda: SimpleNamespace(type="late", from_port=0)
    api.CUfunction = int

    def add(_graph, before, edges, count, _made):
        assert count == len(before) == len(edges)
        added.append([(node, edge.type) for node, edge in zip(before, edges, strict=True)])
        return Status(0), len(added)

    api.cuGraphAddNode = add
    plain, chained = (
        KernelLaunch(1, 1, 32, 0, each, np.zeros(1, np.int64), np.zeros(1, np.int64))
        for each in (False, True)
    )
    waits = [(), (0,), (0,), (2, 1), (3,)]
    launches = [chained, chained, plain, chained, chained]
    made = bindings.BoundDriver(0).make_graph(launches, waits)
    assert added == [[], [(1, "early")], [(1, "late")], [(3, "late"), (2, "late")], [(4, "early")]]
    assert made.nodes == (1, 2, 3, 4, 5)


def test_an_error_that_takes_the_context_is_said_again_at_once(api):
    driver = bindings.BoundDriver(0)
    api.says["cuStreamSynchronize"] = (700,)
    message = "NVIDIA H200 was lost .cuStreamSynchronize says CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match=message):
        driver.wait_stream(1)
    api.says.clear()
    with pytest.raises(DeviceError, match=message):
        driver.happened(1)
    with pytest.raises(DeviceError, match=message), driver.current():
        pass


def test_other_errors_leave_the_gpu(api):
    driver = bindings.BoundDriver(0)
    api.says["cuStreamSynchronize"] = (400,)
    with pytest.raises(DeviceError, match="cuStreamSynchronize says CUDA_ERROR_INVALID_HANDLE"):
        driver.wait_stream(1)
    api.says["cuEventQuery"] = (600,)
    assert not driver.happened(1)
    api.says["cuEventQuery"] = (0,)
    assert driver.happened(1)


def test_code_for_another_gpu(api):
    driver = bindings.BoundDriver(0)
    api.says["cuModuleLoadData"] = 209, 0
    with pytest.raises(DeviceError, match=r"another GPU than this NVIDIA H200 \(sm_90\)"):
        driver.load(b"", "kernel", 0)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"cuInit": (100,)}, "needs an NVIDIA GPU, and the driver shows none"),
        ({"cuInit": (400,)}, "the driver says CUDA_ERROR_INVALID_HANDLE"),
        ({"cuDeviceGetCount": (0, 0)}, "the driver shows none"),
        ({"cuDeviceTotalMem": (400, 0)}, "cuDeviceTotalMem says CUDA_ERROR_INVALID_HANDLE"),
    ],
)
def test_no_gpu(api, says, message):
    api.says |= says
    with pytest.raises(DeviceError, match=message):
        bindings.devices()


def test_no_such_gpu(api):
    with pytest.raises(DeviceError, match="there is no GPU cuda:1, only 1"):
        bindings.BoundDriver(1)


def test_no_driver(api):
    def missing(_flags):
        raise RuntimeError("libcuda.so.1")

    api.cuInit = missing
    with pytest.raises(DeviceError, match="needs NVIDIA's driver"):
        bindings.devices()


def test_bindings_that_are_too_old(api):
    sys.modules["cuda.bindings"].__version__ = "12.9.1"
    with pytest.raises(DeviceError, match=r"needs cuda-bindings 13, installed is 12\.9\.1"):
        bindings.devices()


def test_no_bindings(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    bindings._api.cache_clear()
    with pytest.raises(DeviceError, match="needs the package cuda-bindings"):
        bindings.devices()


def test_a_forked_child_is_told(api, monkeypatch):
    driver = bindings.BoundDriver(0)
    with driver.current():
        pass
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="before a fork"), driver.current():
        pass


_EXIT = """
import builtins, sys
sys.path.insert(0, {tests!r})
import torch
from cuda_programs import chain_program, info, opened
device, arrays = opened()
program, x = chain_program(device, 64), torch.randn(64)
builtins.kept = arrays.give(program.run([arrays.take(info(), x)]), [x])[0]
torch.kept = torch.nn.Parameter(arrays.give(program.run([arrays.take(info(), x)]), [x])[0])
builtins.capsule = arrays.take(info(), x.numpy()).__dlpack__()
"""


def test_results_that_outlive_the_interpreter():
    script = _EXIT.format(tests=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
