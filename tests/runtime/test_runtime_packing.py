"""Constants are packed by all threads, in memory or into a file; their bits do not say how."""

import gc
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper
from runtime_models import compiled, model_of, picture, tensor, weights

from saccade.codegen.target import host_target
from saccade.ir import DType, Value
from saccade.kernels.base import Packing
from saccade.plan.types import Constant
from saccade.processes import Processes
from saccade.runtime import packing
from saccade.runtime.cpu import packers as native
from saccade.runtime.cpu.objects import Objects
from saccade.runtime.cpu.packers import Packers
from saccade.runtime.weights import place

WORK = {
    "conv": ("pack_conv_weights", (1, "natural", 64), (200, 300, 3, 3)),
    "large": ("pack_conv_weights", (1, "natural", 64), (1024, 1100, 1, 1)),
    "panels": ("pack_winograd", (4, 32, "natural", False, 1), (70, 128, 3, 3)),
    "frequencies": ("pack_winograd", (6, 16, "natural", True, 1), (250, 64, 3, 3)),
    "columns": ("pack_matrix", (False, 64), (300, 1000)),
    "gates": ("pack_gates", (48, "float32"), (101, 24, 1, 1)),
    "channels": ("pack_channels", ("natural",), (40,)),
    "raw": (None, (), (17,)),
}


def sources():
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(shape, np.float32) for name, (*_, shape) in WORK.items()}


@pytest.fixture(scope="module")
def work():
    arrays = sources()
    graph = SimpleNamespace(constants={Value(n, DType.F32, a.shape): a for n, a in arrays.items()})
    wanted = {}
    for name, (function, parameters, _) in WORK.items():
        how = None if function is None else Packing(function, parameters, (0,), 0)
        one = packing.Unpacked(Constant((name,), how, 0), (arrays[name],), ())
        nbytes = arrays[name].nbytes if how is None else made_by_function(one).nbytes
        wanted[name] = Constant((name,), how, nbytes)
    return packing.unpacked(graph, wanted)


def made_by_function(one):
    how = one.constant.packing
    return packing.packing.FUNCTIONS[how.function](*one.sources, *how.parameters)


@pytest.fixture(scope="module")
def truth(work):
    return {name: one.pack().tobytes() for name, one in work.items()}


@pytest.fixture(scope="module")
def packers(work):
    processes = Processes()
    objects = Objects(host_target(), disk=False)
    found = Packers(objects)
    keys = found.prepare([p for one in work.values() for p in one.panels], processes)
    found.take(objects.get(keys, processes))
    processes.close()
    return found


@pytest.fixture(params=[1, 2, 7])
def threads(request, monkeypatch):
    monkeypatch.setattr(packing, "default_threads", lambda: request.param)


@pytest.fixture(params=[1 << 10, 1 << 20])
def part(request, monkeypatch):
    monkeypatch.setattr(packing, "_PART", request.param)


@pytest.mark.usefixtures("threads", "part")
def test_memory_holds_the_bits_of_the_functions(work, truth, packers):
    for who in (packers, None):
        have = packing.pack_into_memory(work, who)
        assert {name: array.tobytes() for name, array in have.items()} == truth


def test_memory_of_native_packers_begins_at_pages(work, packers):
    have = packing.pack_into_memory(work, packers)
    for name, one in work.items():
        if one.panels:
            huge = have[name].nbytes >= 4 << 20
            assert have[name].ctypes.data % (2 << 20 if huge else 4096) == 0
    large = have["large"]
    others = [array for name, array in have.items() if name != "large"]
    assert not any(np.may_share_memory(large, other) for other in others)
    assert all(large.base is not other.base for other in others)


@pytest.mark.usefixtures("threads", "part")
def test_files_hold_the_bits_of_the_functions(work, truth, packers):
    placed = place((name, one.constant.nbytes) for name, one in work.items())
    size = placed[-1][1] + placed[-1][2]
    for who in (packers, None):
        content = np.full(size, 0xA5, np.uint8)

        def put(at, array, content=content):
            flat = array.reshape(-1).view(np.uint8)
            assert (content[at : at + len(flat)] == 0xA5).any() or not flat.size
            content[at : at + len(flat)] = flat

        packing.pack_into_file(work, placed, put, who)
        assert {n: content[at : at + b].tobytes() for n, at, b in placed} == truth


def test_a_disk_that_is_full_says_so(work, packers):
    def put(at, array):
        raise OSError("full")

    placed = place((name, one.constant.nbytes) for name, one in work.items())
    with pytest.raises(OSError, match="full"):
        packing.pack_into_file(work, placed, put, packers)


def test_the_functions_are_not_asked_for_what_is_packed_natively(work, packers, monkeypatch):
    asked = []
    original = packing.Unpacked.pack
    monkeypatch.setattr(
        packing.Unpacked, "pack", lambda one: asked.append(one.constant.sources) or original(one)
    )
    packing.pack_into_memory(work, packers)
    assert sorted(asked) == [("channels",), ("raw",)]


def large_model():
    """9 MB of weights for a convolution over pixels, and Winograd's or others for another one."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["y"], pads=[1] * 4),
    ]
    shapes = {"w0": (1500, 3, 1, 1), "w1": (64, 1500, 5, 5), "w2": (64, 64, 3, 3)}
    return model_of(
        nodes,
        [tensor("x", ["N", 3, "H", "W"])],
        [tensor("y", ["N", 64, "H", "W"])],
        [weights(name, shape) for name, shape in shapes.items()],
    )


def test_a_models_bits_do_not_depend_on_who_packed(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    packed = []
    original = Packers.pack
    monkeypatch.setattr(
        Packers, "pack", lambda own, panels, *rest: packed.append(1) or original(own, panels, *rest)
    )
    x, model = picture(1, 3, 20, 20), large_model()

    def result(**options):
        packed.clear()
        gc.collect()  # constants that a former program still holds would be taken
        return compiled(model, **options)(x).tobytes(), bool(packed)

    cold, natively = result()
    assert natively
    assert result() == (cold, False)  # mapped
    assert result(cache=False) == (cold, True)
    monkeypatch.setattr(native, "_WORTH_COMPILING", 1 << 40)
    assert result(cache=False) == (cold, False)
    shutil.rmtree(tmp_path / "bundles")
    assert result() == (cold, True)  # packers that are on disk cost nothing


def test_little_to_pack_compiles_no_packer(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    objects = Objects(host_target())
    found = Packers(objects)
    processes = Processes()
    shape = (64, 64, 3, 3)
    panels = packing.packing.panels_of(
        "pack_conv_weights", (1, "natural", 32), [np.zeros(shape, np.float32)]
    )
    assert found.prepare(panels, processes) == []
    assert not found.ready(panels[0])
    many = panels * 100
    (key,) = found.prepare(many, processes)
    found.take(objects.get([key], processes))
    assert found.ready(panels[0]) and found.prepare(many, processes) == []
    again = Packers(Objects(host_target()))
    assert again.prepare(panels, processes) == [] and again.ready(panels[0])
    processes.close()
