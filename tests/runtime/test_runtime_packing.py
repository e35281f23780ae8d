"""Constants are packed by all threads, in memory or into a file; their bits do not say how."""

import gc
import json
import shutil
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper
from runtime_models import compiled, image, model_of, tensor, weights

from saccade.backends.cpu.runtime.objects import Objects
from saccade.backends.cpu.store import derived, native_packing, packing
from saccade.backends.cpu.store import packers as native
from saccade.backends.cpu.store.packers import Packers
from saccade.backends.cpu.store.weights import place
from saccade.backends.cpu.target import host_target
from saccade.errors import CacheError, OutOfMemoryError
from saccade.ir import DType, Value
from saccade.kernels.base import Packing
from saccade.plan.types import Constant
from saccade.processes import Processes

WORK = {
    "conv": ("pack_conv_weights", (1, "natural", 64, False), (200, 300, 3, 3)),
    "large": ("pack_conv_weights", (1, "natural", 64, False), (1024, 1100, 1, 1)),
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
    monkeypatch.setattr(native_packing, "default_threads", lambda: request.param)


@pytest.fixture(params=[1 << 10, 1 << 20])
def part(request, monkeypatch):
    monkeypatch.setattr(native_packing, "_PART", request.param)


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
    x, model = image(1, 3, 20, 20), large_model()

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
        "pack_conv_weights", (1, "natural", 32, False), [np.zeros(shape, np.float32)]
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


# -- records ------------------------------------------------------------


@pytest.fixture(scope="module")
def wanted(work):
    """How to derive what can be derived of some constants."""
    return {
        name: derived.Derived(name, one.sources[0].nbytes, one.constant.nbytes, one.panels)
        for name, one in work.items()
        if one.panels or one.constant.packing is None
    }


@pytest.fixture(scope="module")
def symbols(wanted):
    configs = {panels.config for one in wanted.values() for panels in one.panels}
    return {config: f"pack_{config.gather}_{config.result}" for config in configs}


@pytest.fixture
def raw(work):
    """Bytes of the sources, as a graph's file gives them."""
    found = {name: one.sources[0].reshape(-1).view(np.uint8) for name, one in work.items()}
    return {name: lambda array=array: array for name, array in found.items()}


def restored(wanted, symbols):
    header, words = derived.encode(wanted, symbols)
    return derived.decode(json.loads(json.dumps(header)), np.frombuffer(words.tobytes(), np.int32))


def test_records_come_back_and_give_the_same_bits(work, packers, wanted, symbols, raw):
    assert {"raw", "panels", "frequencies", "columns", "gates"} <= wanted.keys()
    found, names = restored(wanted, symbols)
    assert names == symbols and found.keys() == wanted.keys()
    have = derived.derive(found, raw, packers)
    truth = packing.pack_into_memory({name: work[name] for name in wanted}, None)
    assert all(have[name].tobytes() == truth[name].tobytes() for name in wanted)
    assert have["raw"].ctypes.data != raw["raw"]().ctypes.data, "the graph is let go"


def test_a_source_that_is_missing_damaged_or_another_is_an_error(packers, wanted, raw):
    def damaged():
        raise CacheError("it is damaged")

    for change, message in (
        ({"panels": lambda: np.zeros(4, np.uint8)}, "'panels' is another one"),
        ({"panels": damaged}, "it is damaged"),
    ):
        with pytest.raises(CacheError, match=message):
            derived.derive(wanted, raw | change, packers)
    raw.pop("raw")
    with pytest.raises(CacheError, match="no constant 'raw'"):
        derived.derive(wanted, raw, packers)


def test_words_that_are_missing_are_noticed(wanted, symbols):
    header, words = derived.encode(wanted, symbols)
    with pytest.raises(ValueError, match="more numbers"):
        derived.decode(header, words[:-1])


def test_numbers_that_are_too_large_for_a_word_are_no_words():
    with pytest.raises(AssertionError):
        derived._words(np.array([1 << 40]))


# -- side by side -------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_task_is_done_once(monkeypatch, threads):
    monkeypatch.setattr(native_packing, "default_threads", lambda: threads)
    done = Counter()
    size = native_packing._ALONE  # or one thread does it all
    native_packing.side_by_side([(i % 5 * size, lambda i=i: done.update([i])) for i in range(100)])
    assert done == Counter(range(100))
    native_packing.side_by_side([])


@pytest.mark.parametrize("threads", [1, 3])
def test_the_largest_task_is_first_and_errors_are_raised(monkeypatch, threads):
    monkeypatch.setattr(native_packing, "default_threads", lambda: threads)
    order = []

    def fail():
        order.append("large")
        raise KeyError("large")

    with pytest.raises(KeyError, match="large"):
        native_packing.side_by_side([(1, lambda: order.append("small")), (1 << 20, fail)])
    assert threads > 1 or order == ["large"], "the rest is left out"
    assert "large" in order


def test_memory_that_is_not_there_is_one_clear_error(monkeypatch):
    def refuse(_nbytes):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(native_packing, "fresh_block", refuse)
    with pytest.raises(OutOfMemoryError, match="packed weights take 8388608 bytes"):
        native_packing.allocate_each({"a": 8 << 20})


def test_sources_are_let_go_of_by_the_last_task_that_reads_them(monkeypatch):
    gone = []
    monkeypatch.setattr(packing, "let_go", lambda array: gone.append(array.size))
    read, done = packing._Read(), []
    one, two = np.ones(3), np.ones(4)
    tasks = [
        read.by(partial(done.append, 0), (one,)),
        read.by(partial(done.append, 1), (one, two)),
        read.by(partial(done.append, 2), (two,)),
    ]
    tasks[1]()
    assert (done, gone) == ([1], [])
    tasks[2]()
    assert (done, gone) == ([1, 2], [4])
    tasks[0]()
    assert (done, gone) == ([1, 2, 0], [4, 3])
